package badger

import (
	"errors"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// messageClock follows the times of an inbox's messages. Copies do not count.
type messageClock struct {
	newest int64 // of all so far, Unix ms
	skew   int64 // by how much one that came later was older at most, in ms
}

func (c *messageClock) add(p *posting) {
	if !p.isCopy() {
		c.skew = max(c.skew, c.newest-p.time)
		c.newest = max(c.newest, p.time)
	}
}

// gather calls do with the entries of an inbox or stream behind one position and up
// to another, until it returns false. Those that nobody gets are left out: whose
// message is gone, or that are there for something else; see isAside. The names are
// valid during the call. Cost: about 0.3 µs an entry, 1 µs if its body is kept apart.
func (s *Store) gather(txn *badger.Txn, inc incarnation, after, upTo inbox.Position, do func(p posting, sender, topic string, expiresAt uint64) bool) {
	g := gatherer{s: s, txn: txn, after: after, upTo: upTo, do: do, deleted: s.histories.has(inc), more: true}
	it := blocksOf(txn, inc)
	defer it.Close()
	for it.Seek(blockKey(inc, after+1)); g.more && it.Valid(); it.Next() {
		g.expiresAt = it.Item().ExpiresAt()
		if err := it.Item().Value(g.block); err != nil {
			s.reportDamage("block", it.Item().KeyCopy(nil), err)
		}
	}
}

// gatherer looks at the entries of blocks and keeps nothing of them.
type gatherer struct {
	s           *Store
	txn         *badger.Txn
	after, upTo inbox.Position
	do          func(p posting, sender, topic string, expiresAt uint64) bool
	deleted     bool // messages that were deleted count, as in histories, which have marks of them
	more        bool // do wants more

	expiresAt uint64 // of the block at hand
	envelope  inbox.Envelope
}

func (g *gatherer) block(value []byte) error {
	block, err := readBlock(value)
	if err != nil {
		return err
	}
	for g.more {
		e, ok, err := block.next()
		switch {
		case err != nil || !ok:
			return err
		case e.position <= g.after:
			continue
		case e.position > g.upTo:
			g.more = false
			return nil
		case !e.reference:
			g.message(e, e.record)
			continue
		}
		key := numberKey(prefixBody, uint64(e.id))
		item, err := g.txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			continue
		}
		if err == nil {
			err = item.Value(func(v []byte) error {
				_, record, err := parseBody(v)
				if err == nil {
					g.message(e, record)
				}
				return err
			})
		}
		if err != nil {
			g.s.reportDamage("body", key, err)
		}
	}
	return nil
}

// message looks at the message of an entry.
func (g *gatherer) message(e stored, record []byte) {
	env := &g.envelope
	if err := inbox.ParseEnvelopeInto(env, record); err != nil {
		g.s.reportDamage("envelope", numberKey(prefixBody, uint64(e.id)), err)
		return
	}
	if isAside(inbox.Entry{Envelope: env, Grant: e.grant}) || !g.deleted && (env.Deleted || e.id != e.position && g.s.isDeleted(g.txn, e.id)) {
		return
	}
	p := posting{
		position: e.position, id: e.id,
		bytes: uint64(env.Size() - emptyEnvelope), time: env.Time, expiry: env.Expiry,
	}
	// A copy waits as long as its block, which its own message says nothing about.
	if over := int64(g.expiresAt) * 1000; p.isCopy() && g.expiresAt != 0 && (p.expiry == 0 || over < p.expiry) {
		p.expiry = over
	}
	g.more = g.do(p, env.Sender(), env.Topic, g.expiresAt)
}

// emptyEnvelope is what [inbox.Count] leaves out of a message's size.
var emptyEnvelope = (&inbox.Envelope{}).Size()
