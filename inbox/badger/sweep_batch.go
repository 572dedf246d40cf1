package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// sweepBatch collects deletions and hands them to the committer.
type sweepBatch struct {
	w      *sweeper
	keys   [][]byte
	blocks map[string]bool   // those among keys: one may be met again for another of its entries
	bodies map[uint64]uint64 // references that go, by body

	history  bool                // what is being added are blocks of a history
	released map[uint64]struct{} // those among bodies that a history lets go of

	progress []progress
}

func newSweepBatch(w *sweeper) *sweepBatch {
	return &sweepBatch{w: w, blocks: map[string]bool{}, bodies: map[uint64]uint64{}, released: map[uint64]struct{}{}}
}

// finished deletes the blocks of inc whose last position is after one and up to
// another (at most limit, if not 0), except those with an open entry. seen is
// told of each block and which of its entries are open.
func (b *sweepBatch) finished(inc incarnation, after, upTo inbox.Position, limit int, open []inbox.Position, seen func(inbox.Position, []inbox.Position)) error {
	for more := true; more; {
		var err error
		if after, more, err = b.some(inc, after, upTo, limit, open, seen); err != nil {
			return fmt.Errorf("look for finished blocks: %w", err)
		}
		if more {
			err = b.flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// some does what finished does until the batch is full.
func (b *sweepBatch) some(inc incarnation, after, upTo inbox.Position, limit int, open []inbox.Position, seen func(inbox.Position, []inbox.Position)) (last inbox.Position, more bool, err error) {
	last = after
	err = b.w.s.view(func(txn *badger.Txn) error {
		it := blocksOf(txn, inc)
		defer it.Close()
		n := 0
		for it.Seek(blockKey(inc, after+1)); it.Valid(); it.Next() {
			item := it.Item()
			end := inbox.Position(keyNumber(item.Key()))
			if end > upTo || limit > 0 && n == limit {
				return nil
			}
			if len(b.keys)+len(b.bodies) >= sweepKeys {
				more = true
				return nil
			}
			n++
			kept := b.block(txn, item, open)
			last = end
			if seen != nil {
				seen(end, kept)
			}
		}
		return nil
	})
	return last, more, err
}

// all deletes every key with a prefix that refers to nothing.
func (b *sweepBatch) all(prefix []byte) error {
	for more := true; more; {
		more = false
		err := b.w.s.view(func(txn *badger.Txn) error {
			it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
			defer it.Close()
			for it.Rewind(); it.Valid() && !more; it.Next() {
				b.keys = append(b.keys, it.Item().KeyCopy(nil))
				more = len(b.keys) >= sweepKeys
			}
			return nil
		})
		if err == nil && more {
			err = b.flush()
		}
		if err != nil {
			return fmt.Errorf("look for the rest of an ended session: %w", err)
		}
	}
	return nil
}

// block deletes one block unless some of its entries are open, which it returns.
func (b *sweepBatch) block(txn *badger.Txn, item *badger.Item, open []inbox.Position) (kept []inbox.Position) {
	if b.blocks[string(item.Key())] {
		return nil
	}
	if len(open) > 0 || item.UserMeta()&metaReferences != 0 {
		var references []uint64
		entries := b.w.s.readEntries(item)
		for e, ok := entries.next(); ok; e, ok = entries.next() {
			if _, isOpen := slices.BinarySearch(open, e.position); isOpen {
				kept = append(kept, e.position)
			}
			if e.reference {
				references = append(references, uint64(e.id))
			}
		}
		if len(kept) > 0 {
			return kept
		}
		for _, r := range references {
			b.bodies[r]++
			if b.history {
				b.released[r] = struct{}{}
			}
		}
	}
	b.keys = append(b.keys, item.KeyCopy(nil))
	if item.UserMeta()&metaBehind != 0 {
		b.keys = append(b.keys, behindKey(keyIncarnationOf(item.Key()), inbox.Position(keyNumber(item.Key()))))
	}
	b.blocks[string(item.Key())] = true
	b.w.deleted += item.EstimatedSize()
	return nil
}

// flush has the committer write the deletions, and waits until they are
// durable. Blocks and the counts of what they refer to change in one
// transaction: a body whose count fell twice for one block would go too early.
func (b *sweepBatch) flush() error {
	defer b.clear()
	if len(b.keys) == 0 {
		b.w.record(b.progress)
		return nil
	}
	counts, err := b.prepare()
	if err == nil {
		err = b.write(counts)
	}
	if err != nil {
		return fmt.Errorf("delete finished messages: %w", err)
	}
	b.w.record(b.progress)
	return nil
}

// prepare returns what the counters become.
func (b *sweepBatch) prepare() (map[string]counter, error) {
	if err := b.beginCount(); err != nil {
		return nil, err
	}
	if err := b.retire(); err != nil {
		return nil, err
	}
	return b.count()
}

// write has the committer delete, and change the counters.
func (b *sweepBatch) write(counts map[string]counter) error {
	return b.w.s.do(b.w.s.background, "delete", func(g *commitGroup) error {
		if err := g.separate(); err != nil {
			return err
		}
		if err := g.recount(b, counts); err != nil {
			return err
		}
		for _, k := range b.keys {
			g.delete(k)
		}
		for k, v := range counts {
			if v.references == 0 {
				g.delete([]byte(k))
			} else {
				g.write(&badger.Entry{Key: []byte(k), Value: binary.AppendUvarint(nil, v.references), ExpiresAt: v.expiresAt})
			}
		}
		return nil
	})
}

func (b *sweepBatch) clear() {
	b.keys, b.progress = nil, nil
	clear(b.blocks)
	clear(b.bodies)
	clear(b.released)
}

// counter is what a counter becomes; without references, its key is deleted.
type counter struct{ references, expiresAt uint64 }

// count returns what the counters of the bodies become, and the bodies that go.
// The sweeper alone counts down, and waits for each change to be durable.
func (b *sweepBatch) count() (map[string]counter, error) {
	counts := map[string]counter{}
	err := b.w.s.view(func(txn *badger.Txn) error {
		for seq, gone := range b.bodies {
			body, count := numberKey(prefixBody, seq), numberKey(prefixCount, seq)
			left, counted, err := references(txn, body, count)
			if errors.Is(err, badger.ErrKeyNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if left.references > gone {
				counts[string(count)] = counter{left.references - gone, left.expiresAt}
				continue
			}
			counts[string(body)] = counter{}
			if counted {
				counts[string(count)] = counter{}
			}
			if item, err := txn.Get(body); err == nil {
				b.w.deleted += item.EstimatedSize()
			}
		}
		return nil
	})
	return counts, err
}

// references returns how many inboxes refer to a body, and whether that was
// counted down before.
func references(txn *badger.Txn, body, count []byte) (n counter, counted bool, err error) {
	item, err := txn.Get(count)
	counted = err == nil
	if errors.Is(err, badger.ErrKeyNotFound) {
		item, err = txn.Get(body)
	}
	if err != nil {
		return counter{}, false, err
	}
	n.expiresAt = item.ExpiresAt()
	err = item.Value(func(v []byte) (err error) { n.references, _, err = parseBody(v); return err })
	return n, counted, err
}
