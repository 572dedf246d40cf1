package badger

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

const (
	sweepInterval = 2 * time.Second // how often finished entries are looked for
	sweepKeys     = 2000            // deletions handed to the committer at once
	flattenAfter  = 16 << 20        // bytes deleted since the last compaction
)

// sweeper deletes what receivers have finished, off the path of
// acknowledgements: an acknowledgement only moves the delivery state, and once
// that is durable the blocks behind it can go. A body goes with the last
// reference to it. When much was deleted and the store is idle, it lets Badger compact,
// so that the space comes back.
type sweeper struct {
	s    *Store
	done chan struct{}

	mu       sync.Mutex
	sessions map[incarnation]*sweep
	ended    []incarnation

	deleted int64 // bytes since the last compaction; the sweeper's own
	commits int64 // of the store, when last looked at
	flushed bool  // the deletions are in tables: they can be compacted
}

// sweep is how far one inbox has been swept.
type sweep struct {
	swept  inbox.Position   // blocks up to here are deleted, but for those with held entries
	held   []inbox.Position // entries that were open when their block was met, ascending
	state  inbox.State      // what the receiver has finished, durably
	moved  bool             // state is newer than swept
	closed bool             // the inbox is closed: forget it after the next sweep
}

func newSweeper(s *Store) *sweeper {
	return &sweeper{s: s, done: make(chan struct{}), sessions: map[incarnation]*sweep{}}
}

// opened notes what was read when an inbox was opened.
func (w *sweeper) opened(inc incarnation, swept inbox.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sw := w.sessions[inc]; sw != nil {
		sw.closed = false
		return
	}
	w.sessions[inc] = &sweep{swept: swept}
}

// committed notes what a group made durable. Runs on the committer; never waits.
func (w *sweeper) committed(states []saved, ended []incarnation) {
	if len(states) == 0 && len(ended) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, st := range states {
		sw := w.sessions[st.incarnation]
		if sw == nil {
			sw = &sweep{}
			w.sessions[st.incarnation] = sw
		}
		sw.state, sw.moved, sw.closed = st.state, true, st.closed
	}
	for _, inc := range ended {
		delete(w.sessions, inc)
		w.ended = append(w.ended, inc)
	}
}

// sweptUpTo is what the state record keeps, so that after a restart sweeping
// goes on where it was and not at the first key there ever was: before the
// first block that was left.
func (w *sweeper) sweptUpTo(inc incarnation) inbox.Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	sw := w.sessions[inc]
	switch {
	case sw == nil:
		return 0
	case len(sw.held) > 0:
		return min(sw.swept, sw.held[0]-1)
	default:
		return sw.swept
	}
}

// loop is the sweeper's goroutine; it ends with the store.
func (w *sweeper) loop(every time.Duration) {
	defer close(w.done)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.sweep()
			w.compactWhenIdle()
			if err := w.s.releaseMapped(); err != nil && !errors.Is(err, inbox.ErrClosed) {
				w.s.log.Warn("mapped tables stay in memory", "error", err)
			}
		case <-w.s.closing:
			return
		}
	}
}

// sweep goes once over everything that has moved.
func (w *sweeper) sweep() {
	b := newSweepBatch(w)
	for _, inc := range w.takeEnded() {
		if !w.purge(b, inc) {
			return
		}
	}
	for inc, sw := range w.takeMoved() {
		if !w.advance(b, inc, sw) {
			return
		}
	}
	b.flush()
}

func (w *sweeper) takeEnded() []incarnation {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.ended
	w.ended = nil
	return ended
}

// takeMoved returns copies of the sweeps that have work.
func (w *sweeper) takeMoved() map[incarnation]sweep {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := map[incarnation]sweep{}
	for inc, sw := range w.sessions {
		if sw.moved {
			moved[inc] = *sw
			sw.moved = false
		}
	}
	return moved
}

// advance deletes the finished blocks of one inbox. It reports false when the
// store is closing or has failed.
func (w *sweeper) advance(b *sweepBatch, inc incarnation, sw sweep) bool {
	open := make([]inbox.Position, len(sw.state.Open))
	for i, d := range sw.state.Open {
		open[i] = d.Position
	}
	var still []inbox.Position
	for _, p := range sw.held { // blocks that were left because of entries that may be finished now
		if _, isOpen := slices.BinarySearch(open, p); isOpen {
			still = append(still, p)
		} else if !b.finished(inc, p-1, sw.swept, 1, open, nil) {
			return false
		}
	}
	swept, held := sw.swept, still
	ok := b.finished(inc, sw.swept, sw.state.Sent, 0, open, func(last inbox.Position, kept []inbox.Position) {
		swept = last
		held = append(held, kept...)
	})
	b.progress = append(b.progress, progress{inc, swept, held})
	return ok
}

// progress is how far an inbox is swept once the batch is durable.
type progress struct {
	incarnation incarnation
	swept       inbox.Position
	held        []inbox.Position
}

// record notes the progress of what was flushed.
func (w *sweeper) record(done []progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range done {
		sw := w.sessions[p.incarnation]
		if sw == nil {
			continue // ended meanwhile
		}
		sw.swept, sw.held = p.swept, p.held
		if sw.closed && !sw.moved {
			delete(w.sessions, p.incarnation)
		}
	}
}

// purge deletes everything of an ended session, and at last the note that it
// is to be deleted.
func (w *sweeper) purge(b *sweepBatch, inc incarnation) bool {
	if !b.finished(inc, 0, ^inbox.Position(0), 0, nil, nil) || !b.flush() {
		return false
	}
	err := w.s.view(func(txn *badger.Txn) error {
		for _, prefix := range []byte{prefixSubscription, prefixReceived} {
			it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefix, uint64(inc))})
			for it.Rewind(); it.Valid(); it.Next() {
				b.keys = append(b.keys, it.Item().KeyCopy(nil))
			}
			it.Close()
		}
		return nil
	})
	if err != nil {
		w.s.log.Error("cannot look for the rest of an ended session", "error", err)
		return true
	}
	b.keys = append(b.keys, numberKey(prefixState, uint64(inc)), numberKey(prefixPurge, uint64(inc)))
	return b.flush()
}

// compactWhenIdle lets Badger drop what was deleted: it does so by itself only
// while more is written. It takes two idle rounds, since the deletions have to
// be in tables first, and Badger writes a memtable out only when it is full.
func (w *sweeper) compactWhenIdle() {
	commits := w.s.stats.commits.Load()
	idle := commits == w.commits
	w.commits = commits
	switch {
	case !idle:
		w.flushed = false
	case w.flushed:
		w.flushed = false
		w.deleted = 0
		if err := w.s.db.Flatten(2); err != nil {
			w.s.log.Warn("compaction failed; disk space comes back later", "error", err)
		}
	case w.deleted >= flattenAfter:
		w.flushed = w.fillMemtable()
		w.commits = w.s.stats.commits.Load()
	}
}

// fillMemtable writes as much as a memtable takes under one key, so that Badger
// writes it out. It reports whether it did.
func (w *sweeper) fillMemtable() bool {
	padding := make([]byte, 1<<20-1)
	for range memTable>>20 + 1 {
		err := w.s.do(w.s.background, "write out deletions", func(g *group) error {
			g.put(keyPadding, padding)
			return nil
		})
		if err != nil {
			return false
		}
	}
	return w.s.do(w.s.background, "write out deletions", func(g *group) error {
		g.delete(keyPadding)
		return nil
	}) == nil
}

// sweepBatch collects deletions and hands them to the committer.
type sweepBatch struct {
	w      *sweeper
	keys   [][]byte
	blocks map[string]bool   // those among keys: one may be met again for another of its entries
	bodies map[uint64]uint64 // references that go, by body

	progress []progress
}

func newSweepBatch(w *sweeper) *sweepBatch {
	return &sweepBatch{w: w, blocks: map[string]bool{}, bodies: map[uint64]uint64{}}
}

// finished deletes the blocks of inc whose last position is after one and up to
// another (at most limit, if not 0), except those with an open entry. seen is
// told of each block and which of its entries are open. It reports false when
// the store is closing.
func (b *sweepBatch) finished(inc incarnation, after, upTo inbox.Position, limit int, open []inbox.Position, seen func(inbox.Position, []inbox.Position)) bool {
	for more := true; more; {
		var err error
		if after, more, err = b.some(inc, after, upTo, limit, open, seen); err != nil {
			b.w.s.log.Error("cannot look for finished blocks", "error", err)
			return true
		}
		if more && !b.flush() {
			return false
		}
	}
	return true
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

// block deletes one block unless some of its entries are open, which it returns.
func (b *sweepBatch) block(txn *badger.Txn, item *badger.Item, open []inbox.Position) (kept []inbox.Position) {
	if b.blocks[string(item.Key())] {
		return nil
	}
	if len(open) > 0 || item.UserMeta()&metaReferences != 0 {
		var references []uint64
		entries := b.w.s.readEntries(txn, item)
		for e, ok := entries.next(); ok; e, ok = entries.next() {
			if _, isOpen := slices.BinarySearch(open, e.position); isOpen {
				kept = append(kept, e.position)
			}
			if e.reference {
				references = append(references, uint64(e.position))
			}
		}
		if len(kept) > 0 {
			return kept
		}
		for _, r := range references {
			b.bodies[r]++
		}
	}
	b.keys = append(b.keys, item.KeyCopy(nil))
	b.blocks[string(item.Key())] = true
	b.w.deleted += item.EstimatedSize()
	return nil
}

// flush has the committer write the deletions, and waits until they are
// durable. It reports false when the store is closing or has failed.
func (b *sweepBatch) flush() bool {
	defer func() { b.keys, b.progress = nil, nil }()
	if len(b.keys) == 0 {
		b.w.record(b.progress)
		return true
	}
	counts, err := b.count()
	if err == nil {
		err = b.w.s.do(b.w.s.background, "sweep", func(g *group) error {
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
	clear(b.blocks)
	clear(b.bodies)
	if err == nil {
		b.w.record(b.progress)
	}
	if err != nil && !errors.Is(err, inbox.ErrClosed) {
		b.w.s.log.Error("cannot delete finished messages", "error", err)
	}
	return err == nil
}

// counter is what a counter becomes; without references, its key is deleted.
type counter struct{ references, expiresAt uint64 }

// count returns what the counters of the bodies become, and the bodies that go.
// Only the sweeper changes counters, and it waits for each change to be durable.
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
