package badger

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

const (
	sweepInterval   = 2 * time.Second // how often finished entries are looked for
	releaseInterval = 2 * time.Second // how often mapped tables are taken out of memory
	sweepKeys       = 2000            // deletions handed to the committer at once
	flattenAfter    = 16 << 20        // bytes deleted since the last compaction
)

// sweeper deletes what receivers have finished, off the path of
// acknowledgements: an acknowledgement only moves the delivery state, and once
// that is durable the blocks behind it can go. A body goes with the last
// reference to it. When much was deleted and the store is idle, it lets Badger
// compact, so that the space comes back. It also takes mapped tables out of memory.
type sweeper struct {
	s    *Store
	done chan struct{}

	mu       sync.Mutex
	sessions map[incarnation]*sweep
	ended    []ended
	acked    map[incarnation]inbox.Member // inboxes in which something was acknowledged without PUBACK
	erasures []erasure                    // begun, and nobody is at them

	replaced atomic.Int64 // bytes of messages that marks have taken the place of

	next         incarnation // where looking for what the last process left goes on; the sweeper's own, as what follows
	nextAcked    incarnation // likewise for what was acknowledged without PUBACK
	resumed      bool        // that is done
	resumedAcked bool        // likewise
	rounds       int
	resumedKept  inbox.Position // what needed not be kept then
	deleted      int64          // bytes since the last compaction
	commits      int64          // of the store, when last looked at
	flushing     bool           // those before are on their way to tables, to be compacted
}

// sweep is how far one inbox has been swept.
type sweep struct {
	swept  inbox.Position   // blocks up to here are deleted, but for those with held entries
	held   []inbox.Position // entries that were open when their block was met, ascending
	state  inbox.State      // what the receiver has finished, durably
	moved  bool             // state is newer than swept
	closed bool             // the inbox is closed: forget it after the next sweep
	back   int              // how often it has gone back to what it had finished
}

func newSweeper(s *Store) *sweeper {
	return &sweeper{s: s, done: make(chan struct{}), sessions: map[incarnation]*sweep{}, acked: map[incarnation]inbox.Member{}}
}

// opened notes what was read when an inbox was opened, unless a newer owner has it by now:
// then it may be closed again, or have ended.
func (w *sweeper) opened(h *handle, swept inbox.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.isFenced() {
		return
	}
	if sw := w.sessions[h.incarnation]; sw != nil {
		sw.closed = false
		return
	}
	w.sessions[h.incarnation] = &sweep{swept: swept}
}

// wentBack notes that nothing behind a position is finished any more in an inbox,
// which has an owner. What of it is there is swept again. Runs on the committer.
func (w *sweeper) wentBack(inc incarnation, after inbox.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sw := w.sessions[inc]
	if sw == nil {
		sw = &sweep{}
		w.sessions[inc] = sw
	}
	gone := goneUpTo(sw.swept, sw.held) // what was held may be finished, and not deleted yet
	*sw = sweep{swept: min(gone, after), back: sw.back + 1}
}

// committed notes what a group made durable. Runs on the committer; never waits.
func (w *sweeper) committed(states []saved, ended []ended) {
	if len(states) == 0 && len(ended) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, st := range states {
		sw := w.sessions[st.incarnation]
		if sw == nil {
			sw = &sweep{swept: st.swept}
			w.sessions[st.incarnation] = sw
		}
		sw.state, sw.moved, sw.closed = st.state, true, st.closed
	}
	for _, e := range ended {
		delete(w.sessions, e.incarnation)
		w.ended = append(w.ended, e)
	}
}

// sweptUpTo is what the state record keeps, so that after a restart sweeping
// goes on where it was and not at the first key there ever was: before the
// first block that was left.
func (w *sweeper) sweptUpTo(inc incarnation) inbox.Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sw := w.sessions[inc]; sw != nil {
		return goneUpTo(sw.swept, sw.held)
	}
	return 0
}

// goneUpTo returns up to where everything is gone, if blocks are but for those with
// held entries.
func goneUpTo(swept inbox.Position, held []inbox.Position) inbox.Position {
	if len(held) > 0 {
		return min(swept, held[0]-1)
	}
	return swept
}

// loop is the sweeper's goroutine; it ends with the store.
func (w *sweeper) loop(every time.Duration) {
	defer close(w.done)
	if size, _ := w.s.db.Size(); size > verifyAtOpen {
		if err := verify(w.s.db); err != nil {
			w.s.fail(err)
		}
	}
	t, release := time.NewTicker(every), time.NewTicker(releaseInterval)
	defer t.Stop()
	defer release.Stop()
	for {
		select {
		case <-t.C:
			w.sweep()
			w.compactWhenIdle()
		case <-release.C:
			if err := w.s.releaseMapped(); err != nil && !errors.Is(err, inbox.ErrClosed) {
				w.s.log.Warn("mapped tables stay in memory", "error", err)
			}
		case <-w.s.closing:
			return
		}
	}
}

// sweep goes once over everything that has moved. What fails for one session is
// reported and does not hold up the others.
func (w *sweeper) sweep() {
	b := newSweepBatch(w)
	w.deleted += w.replaced.Swap(0)
	if ended := w.takeEnded(); len(ended) > 0 {
		if err := w.purgeAll(b, ended); err != nil {
			w.report(0, err)
			w.committed(nil, ended) // again next time; what is gone is passed over
		}
	}
	kept := w.s.keptBehind() // now: whoever goes back later goes no further
	if err := w.resume(kept); err != nil {
		w.report(0, err)
	}
	w.settleAcked()
	moved := w.takeMoved()
	for inc, sw := range moved {
		if err := w.advance(b, inc, sw, kept); err != nil {
			w.report(inc, err)
			w.again(inc)
		}
	}
	if err := b.flush(); err != nil {
		w.report(0, err)
		for inc := range moved {
			w.again(inc)
		}
	}
	if err := w.sweepStreams(b); err != nil {
		w.report(0, err)
	}
	if err := w.sweepHistories(b); err != nil {
		w.report(0, err)
	}
	w.completeErasures()
}

func (w *sweeper) report(inc incarnation, err error) {
	if !errors.Is(err, inbox.ErrClosed) && !errors.Is(err, context.Canceled) {
		w.s.log.Error("finished messages stay on disk until the next try", "session", uint64(inc), "error", err)
	}
}

// again has an inbox swept once more.
func (w *sweeper) again(inc incarnation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sw := w.sessions[inc]; sw != nil {
		sw.moved = true
	}
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

// resumeEvery is after how many rounds all inboxes are looked at again, if what is
// finished is kept for a time.
const resumeEvery = 30

// resumeAtOnce bounds how many sessions one round looks at for what the last
// process left.
const resumeAtOnce = 10_000

// resume has those inboxes swept that the last process ended before it swept, for
// nothing says after a start that they have moved. It looks at the sessions that
// have blocks, some in each round, until it has seen them all. Cost: about 6 µs
// for each, in the background, once; again and again if what is finished is kept for
// a time, which is over without a word too.
func (w *sweeper) resume(kept inbox.Position) error {
	if w.rounds++; w.resumed && w.rounds%resumeEvery == 0 && kept > w.resumedKept {
		w.resumed, w.next = false, 0
	}
	if w.resumed {
		return nil
	}
	if w.next == 0 {
		w.resumedKept = kept
	}
	return w.s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte{prefixBlock}})
		defer it.Close()
		for range resumeAtOnce {
			if it.Seek(blockKey(w.next, 0)); !it.Valid() {
				w.resumed = true
				return nil
			}
			key := it.Item().Key()
			inc, first := keyIncarnationOf(key), inbox.Position(keyNumber(key))
			w.next = inc + 1
			r, err := readProgress(txn, inc)
			if err != nil {
				w.report(inc, err)
			} else if st := r.sweepable(); first <= min(st.Sent, kept) {
				w.left(inc, r.swept, st)
			}
		}
		return nil
	})
}

// left notes an inbox that may have something finished since before the start. One that
// went back may have done so since its state was read, and has another stored before
// anything of it is finished.
func (w *sweeper) left(inc incarnation, swept inbox.Position, state inbox.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sw := w.sessions[inc]
	if sw == nil {
		sw = &sweep{swept: swept, closed: true}
		w.sessions[inc] = sw
	}
	if sw.state.Sent == 0 && sw.back == 0 { // nothing later is known
		sw.state = state
	}
	sw.moved = true
}

// advance deletes the finished blocks of one inbox, but for what is kept, behind a
// position.
func (w *sweeper) advance(b *sweepBatch, inc incarnation, sw sweep, kept inbox.Position) error {
	open := make([]inbox.Position, len(sw.state.Open))
	for i, d := range sw.state.Open {
		open[i] = d.Position
	}
	var still []inbox.Position
	for _, p := range sw.held { // blocks that were left because of entries that may be finished now
		if _, isOpen := slices.BinarySearch(open, p); isOpen {
			still = append(still, p)
		} else if err := b.finished(inc, p-1, sw.swept, 1, open, nil); err != nil {
			return err
		}
	}
	swept, held := sw.swept, still
	err := b.finished(inc, sw.swept, min(sw.state.Sent, kept), 0, open, func(last inbox.Position, kept []inbox.Position) {
		swept = last
		held = append(held, kept...)
	})
	if err != nil {
		return err
	}
	b.progress = append(b.progress, progress{inc, swept, held, sw.back})
	return nil
}

// progress is how far an inbox is swept once the batch is durable.
type progress struct {
	incarnation incarnation
	swept       inbox.Position
	held        []inbox.Position
	back        int // of the sweep that it is of
}

// record notes the progress of what was flushed.
func (w *sweeper) record(done []progress) {
	for _, p := range done {
		w.s.indexer.hint(indexWork{clean: true, swept: goneUpTo(p.swept, p.held)}, p.incarnation)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range done {
		sw := w.sessions[p.incarnation]
		if sw == nil || sw.back != p.back {
			continue // ended meanwhile, or went back
		}
		sw.swept, sw.held = p.swept, p.held
		if sw.closed && !sw.moved {
			delete(w.sessions, p.incarnation)
		}
	}
}
