package badger

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A body that a history refers to stays until that lets go of it, so it has no
// time after which Badger may drop it, but that of the message. The references in
// inboxes do have one, and those that Badger drops are never counted down. So when the
// last history lets go of a body, and others refer to it still or seem to, it gets the
// time by which all of those are gone.

// retire gives such a time to the bodies that are let go of with the batch. Cost: a
// look at each, and a copy of those that others seem to refer to.
func (b *sweepBatch) retire() error {
	s := b.w.s
	if len(b.released) == 0 || s.retention <= 0 {
		return nil
	}
	var group []uint64
	size := int64(0)
	put := func() error {
		defer func() { group, size = group[:0], 0 }()
		return s.do(s.background, "let go of messages", func(g *commitGroup) error { return g.retire(group) })
	}
	for seq := range b.released {
		bytes, err := b.retired(seq)
		if err == nil && size+bytes > pageBytes {
			err = put()
		}
		if err != nil {
			return fmt.Errorf("let go of messages: %w", err)
		}
		if bytes > 0 {
			group, size = append(group, seq), size+bytes
		}
	}
	if len(group) == 0 {
		return nil
	}
	return put()
}

// retired returns the size of a body that is to get a time, 0 if it is not: nobody
// else refers to it, or another history does, or it has one.
func (b *sweepBatch) retired(seq uint64) (size int64, err error) {
	err = b.w.s.view(func(txn *badger.Txn) error {
		body := numberKey(prefixBody, seq)
		item, err := txn.Get(body)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err != nil || item.ExpiresAt() != 0 {
			return err
		}
		left, _, err := references(txn, body, numberKey(prefixCount, seq))
		if err != nil || left.references <= b.bodies[seq] {
			return err
		}
		for _, h := range b.w.s.histories.all {
			if b.w.s.has(txn, h.incarnation, inbox.Position(seq), b.blocks) {
				return nil
			}
		}
		size = item.EstimatedSize()
		return nil
	})
	return size, err
}

// has reports whether an inbox has an entry at p in a block that is not among some.
func (s *Store) has(txn *badger.Txn, inc incarnation, p inbox.Position, but map[string]bool) (found bool) {
	it := blocksOf(txn, inc)
	defer it.Close()
	if it.Seek(blockKey(inc, p)); !it.Valid() || but[string(it.Item().Key())] {
		return false
	}
	entries := s.readEntries(it.Item())
	for e, ok := entries.next(); ok && e.position <= p; e, ok = entries.next() {
		found = e.position == p
	}
	return found
}

// retire gives bodies the time by which no inbox can have them any more. They are read
// here, for what stands there may be a mark by now.
func (g *commitGroup) retire(bodies []uint64) error {
	until := g.now.Add(g.s.retention).UnixMilli()
	for _, seq := range bodies {
		body, count := numberKey(prefixBody, seq), numberKey(prefixCount, seq)
		for _, key := range [][]byte{body, count} {
			item, err := g.txn.Get(key)
			if errors.Is(err, badger.ErrKeyNotFound) {
				continue
			}
			var value []byte
			if err == nil {
				value, err = item.ValueCopy(nil)
			}
			if err != nil {
				return err
			}
			g.putUntil(key, value, until)
		}
	}
	return nil
}

// beginCount has the committer note the bodies to which it adds references from now on.
func (b *sweepBatch) beginCount() error {
	s := b.w.s
	if len(b.bodies) == 0 || len(s.histories.all) == 0 {
		return nil
	}
	return s.do(s.background, "begin to count", func(g *commitGroup) error {
		s.recounts = map[uint64]struct{}{}
		return nil
	})
}

// recount counts those again that have got references since the sweeper began.
func (g *commitGroup) recount(b *sweepBatch, counts map[string]counter) error {
	recounts := g.s.recounts
	g.s.recounts = nil
	for seq := range recounts {
		gone, ok := b.bodies[seq]
		if !ok {
			continue
		}
		body, count := numberKey(prefixBody, seq), numberKey(prefixCount, seq)
		n, _, err := references(g.txn, body, count)
		if errors.Is(err, badger.ErrKeyNotFound) {
			continue // its time was over
		}
		if err != nil {
			return err
		}
		delete(counts, string(body))
		counts[string(count)] = counter{n.references - gone, n.expiresAt}
		if _, released := b.released[seq]; released && g.s.retention > 0 {
			if err := g.retire([]uint64{seq}); err != nil {
				return err
			}
			counts[string(count)] = counter{n.references - gone, expiresAt(g.now.Add(g.s.retention).UnixMilli())}
		}
	}
	return nil
}
