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
		case by != "" && by != m.envelope.Sender():
			return inbox.ErrNotSender
		}
		return g.mark(m, false)
	})
}

// eraseAtOnce is how many messages are erased in one commit.
const eraseAtOnce = 200

// Erase implements [inbox.Archive]. What the sender publishes meanwhile may stay. Cost:
// that of reading all that the sender has in history, and a commit for each 200 messages;
// a look at each inbox that has an index, and making those anew that have the name.
func (s *Store) Erase(ctx context.Context, sender string) (n int, err error) {
	if sender == "" {
		return 0, nil // nobody is called so
	}
	upTo := inbox.Position(s.visible.Load())
	q := inbox.Query{
		Selection: inbox.Selection{Sender: sender}, Max: eraseAtOnce, MaxBytes: groupBytes,
		Before: inbox.Bound{Position: upTo + 1},
	}
	for {
		page, err := s.History(ctx, q)
		if err != nil {
			return n, fmt.Errorf("erase: %w", err)
		}
		erased, err := run(ctx, s, "erase", func(g *commitGroup) (int, error) { return g.erase(page.Entries, sender) })
		n += erased
		if err != nil {
			return n, err
		}
		if !page.More {
			break
		}
		if q.After.Position = page.Next; page.Next == 0 {
			q.After.Position = page.Entries[len(page.Entries)-1].Position
		}
	}
	for _, h := range s.histories.all {
		if err := s.indexer.forget(ctx, h.incarnation, forgotten{sender, upTo}); err != nil {
			return n, fmt.Errorf("erase the name: %w", err)
		}
	}
	if err := s.forgetInInboxes(ctx, sender); err != nil {
		return n, fmt.Errorf("erase the name: %w", err)
	}
	return n, nil
}

// erase makes marks without names of messages that a sender has published, and returns
// how many were none before.
func (g *commitGroup) erase(all []inbox.Entry, sender string) (n int, err error) {
	stored := g.s.db.NewTransaction(false)
	defer stored.Discard()
	for i := range all {
		m, err := g.inHistory(stored, all[i].Position)
		switch {
		case errors.Is(err, inbox.ErrUnknownID) || err == nil && m.envelope.Sender() != sender:
			continue // its time was over meanwhile, or somebody else was faster
		case err != nil:
			return n, err
		}
		if !m.envelope.Deleted {
			n++
		}
		if name := m.envelope.MessageID(); name != "" {
			g.delete(nameKey(m.envelope.Client, name))
		}
		if err := g.mark(m, true); err != nil {
			return n, err
		}
	}
	return n, nil
}

// archivedMessage is a message that is in history, or its mark, as it is stored.
type archivedMessage struct {
	envelope   *inbox.Envelope
	references uint64
	expiresAt  uint64
}

// inHistory returns message id, if a history has it and its time is not over. The blocks
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
	for _, h := range s.histories.all {
		if h.keepUntil(m.envelope) > g.now.UnixMilli() && id > s.sweptOf(stored, h.incarnation) && s.has(stored, h.incarnation, id, nil) {
			return m, nil
		}
	}
	return m, inbox.ErrUnknownID
}

// mark puts a mark in the place of a message, and has everybody pass over it who is not
// a history. A message that is marked already loses its names if asked.
func (g *commitGroup) mark(m archivedMessage, nameless bool) error {
	s, e := g.s, m.envelope
	mark := inbox.Envelope{Time: e.Time, Topic: e.Topic, QoS: e.QoS, Expiry: e.Expiry, Client: e.Client, User: e.User, Deleted: true}
	if nameless {
		mark.Client, mark.User = "", ""
	} else if e.Deleted {
		return nil
	}
	value := binary.AppendUvarint(nil, m.references)
	body := &badger.Entry{Key: numberKey(prefixBody, uint64(e.ID.Sequence)), Value: inbox.AppendEnvelope(value, &mark), ExpiresAt: m.expiresAt}
	g.write(body)
	g.size += len(body.Key) + len(body.Value)
	if e.Deleted {
		return nil
	}
	until := int64(never)
	if s.retention > 0 {
		until = g.now.Add(s.retention).UnixMilli() // nobody has got a copy later than now
	}
	g.putUntil(deletionKey(e.ID.Sequence), deletionOf(e).append(nil), until)
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
