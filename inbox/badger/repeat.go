package badger

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A message that its publisher has named is stored once, however often it comes
// (see [inbox.PropertyMessageID]). Its name stands on disk, written in the same
// commit, until the message may be gone:
//
//	d hash:16   until:uvarint sequence:uvarint
//
// hash begins the SHA-256 of the publisher's client id, a zero byte, which client
// ids do not have, and the name. until is in Unix milliseconds.

// nameFor is how long a name is kept of a message that is kept for ever.
const nameFor = defaultRetention

func nameKey(client, name string) []byte {
	sum := sha256.Sum256([]byte(client + "\x00" + name))
	return append([]byte{prefixName}, sum[:16]...)
}

// appendOnce applies one message of a client, unless it repeats one.
func (g *commitGroup) appendOnce(e *inbox.Envelope, record []byte) (inbox.Receipt, error) {
	id := e.MessageID()
	if id == "" || e.QoS == 0 {
		return g.append(e, record)
	}
	key := nameKey(e.Client, id)
	earlier, err := g.repeated(key)
	if err != nil {
		return inbox.Receipt{}, err
	}
	if earlier != 0 {
		return inbox.Receipt{ID: inbox.MessageID{Sequence: earlier, Store: g.s.id}, Duplicate: true, Matched: -1}, nil
	}
	receipt, err := g.append(e, record)
	if err == nil && (receipt.Matched > 0 || e.Retain || g.archived) {
		g.remember(key, e)
	}
	return receipt, err
}

// repeated returns the number of the message that has a name already, 0 if none
// has. Cost: a look-up in the database, a few microseconds.
func (g *commitGroup) repeated(key []byte) (inbox.Position, error) {
	if p, known := g.names[string(key)]; known {
		return p, nil
	}
	item, err := g.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return 0, nil
	}
	var until, sequence uint64
	if err == nil {
		err = item.Value(func(v []byte) (err error) { until, sequence, err = parseName(v); return err })
	}
	if err != nil {
		return 0, fmt.Errorf("look for an earlier message of the same name: %w", err)
	}
	if int64(until) <= g.now.UnixMilli() {
		return 0, nil
	}
	return inbox.Position(sequence), nil
}

// remember notes the name of a message that is being stored.
func (g *commitGroup) remember(key []byte, e *inbox.Envelope) {
	until := g.s.keepUntil(e, e.Time)
	if g.archived {
		until = max(until, g.keptInHistory(e))
	}
	if until == never {
		until = g.now.UnixMilli() + nameFor.Milliseconds()
	}
	value := binary.AppendUvarint(nil, uint64(until))
	value = binary.AppendUvarint(value, uint64(e.ID.Sequence))
	g.putMark(e.ID.Sequence, key, value, until)
	if g.names == nil {
		g.names = map[string]inbox.Position{}
	}
	g.names[string(key)] = e.ID.Sequence
}

func parseName(b []byte) (until, sequence uint64, err error) {
	until, n := binary.Uvarint(b)
	if n > 0 {
		b = b[n:]
		sequence, n = binary.Uvarint(b)
	}
	if n <= 0 {
		return 0, 0, fmt.Errorf("read name: %w", inbox.ErrDamaged)
	}
	return until, sequence, nil
}
