package badger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Delete implements [inbox.Archive]. The body of the message becomes a mark, so that all
// who refer to it have no more than that. Cost: a commit, and a seek for each history.
func (s *Store) Delete(ctx context.Context, id inbox.MessageID, by string) error {
	return s.do(ctx, "delete", func(g *commitGroup) error {
		if !s.knows(id, inbox.Position(s.visible.Load())) {
			return inbox.ErrUnknownID
		}
		stored := s.db.NewTransaction(false)
		defer stored.Discard()
		m, err := g.inHistory(stored, id.Sequence)
		switch {
		case err != nil:
			return err
		case m.over:
			return inbox.ErrUnknownID
		case by != "" && by != m.envelope.Sender():
			return inbox.ErrNotSender
		}
		return g.mark(m, false)
	})
}

// archivedMessage is a message that is in history, or its mark, as it is stored.
type archivedMessage struct {
	envelope   *inbox.Envelope
	references uint64
	expiresAt  uint64
	over       bool // its time is, in all histories that have it
}

// inHistory returns message id, if a history has it, though its time may be over. The blocks
// are read from what is committed: an iterator over that at hand would sort all that the
// group has written.
func (g *commitGroup) inHistory(stored *badger.Txn, id inbox.Position) (m archivedMessage, err error) {
	s := g.s
	item, err := g.txn.Get(numberKey(prefixBody, uint64(id)))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return m, inbox.ErrUnknownID
	}
	var value, record []byte
	if err == nil {
		m.expiresAt = item.ExpiresAt()
		value, err = item.ValueCopy(nil)
	}
	if err == nil {
		m.references, record, err = parseBody(value)
	}
	if err == nil {
		m.envelope, err = inbox.ParseEnvelope(record)
	}
	if err != nil {
		return m, fmt.Errorf("read message %d: %w", id, err)
	}
	m.envelope.ID = inbox.MessageID{Sequence: id, Store: s.id}
	err = inbox.ErrUnknownID
	for _, h := range s.histories.all {
		if id <= s.sweptOf(stored, h.incarnation) || !s.has(stored, h.incarnation, id, nil) {
			continue
		}
		if m.over = h.keepUntil(m.envelope) <= g.now.UnixMilli(); !m.over {
			return m, nil
		}
		err = nil
	}
	return m, err
}

// mark puts a mark in the place of a message, and has everybody pass over it who is not
// a history: in one transaction, since what is marked is passed over the next time. A message
// that is marked already loses its names if asked.
func (g *commitGroup) mark(m archivedMessage, nameless bool) error {
	s, e := g.s, m.envelope
	mark := inbox.Envelope{Time: e.Time, Topic: e.Topic, QoS: e.QoS, Expiry: e.Expiry, Client: e.Client, User: e.User, Deleted: true}
	name := ""
	if nameless {
		mark.Client, mark.User, name = "", "", e.MessageID()
	} else if e.Deleted {
		return nil
	}
	value := binary.AppendUvarint(nil, m.references)
	body := &badger.Entry{Key: numberKey(prefixBody, uint64(e.ID.Sequence)), Value: inbox.AppendEnvelope(value, &mark), ExpiresAt: m.expiresAt}
	deletion := deletionOf(e).append(nil)
	// The body, that it was deleted, its topic if it is retained there, and its name.
	g.together(4, len(body.Key)+len(body.Value)+len(deletionKey(0))+len(deletion)+len(retainedKey(e.Topic))+len(nameKey("", "")))
	if name != "" {
		g.delete(nameKey(e.Client, name))
	}
	g.write(body)
	g.size += len(body.Key) + len(body.Value)
	if e.Deleted {
		return nil
	}
	until := int64(never)
	if s.retention > 0 {
		until = g.now.Add(s.retention).UnixMilli() // nobody has got a copy later than now
	}
	g.putUntil(deletionKey(e.ID.Sequence), deletion, until)
	g.deleted = append(g.deleted, e.ID.Sequence)
	s.sweeper.replaced.Add(int64(e.Size()))
	return g.unretain(e)
}

// unretain takes a message away that is retained in its topic.
func (g *commitGroup) unretain(e *inbox.Envelope) error {
	key := retainedKey(e.Topic)
	kept, _, err := g.s.getRetained(g.txn, key)
	switch {
	case errors.Is(err, badger.ErrKeyNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read retained message: %w", err)
	}
	if kept.ID == e.ID {
		g.delete(key)
	}
	return nil
}
