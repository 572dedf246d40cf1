package badger

import (
	"context"
	"errors"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// indexer keeps the index of those inboxes that have one, off the path of a publish:
// the committer tells it now and then that there is something to do, and readers do
// not depend on whether it has been done; see lists. Nobody else writes an index.
type indexer struct {
	s    *Store
	done chan struct{}
	wake chan struct{} // holds one; a hint that there is something to do

	came arrivals // room that is used again

	mu      sync.Mutex
	work    map[incarnation]indexWork // of those that are indexed
	recent  map[incarnation]*recent   // likewise
	queue   []incarnation             // those that have something to do, each once, the first in front
	waiting map[incarnation][]chan error
	at      incarnation   // the inbox whose turn it is, if it is any's
	turn    chan struct{} // closed when that is over; nil if it is nobody's turn

	forgotten map[incarnation][]erasure // whose names are to go; see indexer.forget
}

// indexWork is what is to be done for one inbox.
type indexWork struct {
	queued bool
	index  bool           // what came in
	clean  bool           // what is gone is to go, if it is much
	swept  inbox.Position // everything up to here is gone
	remake bool           // the index is damaged
	forget bool           // names of senders; see indexer.forget
}

func (w indexWork) and(o indexWork) indexWork {
	return indexWork{
		index: w.index || o.index, clean: w.clean || o.clean, swept: max(w.swept, o.swept),
		remake: w.remake || o.remake, forget: w.forget || o.forget,
	}
}

func newIndexer(s *Store) *indexer {
	return &indexer{
		s: s, done: make(chan struct{}), wake: make(chan struct{}, 1),
		work: map[incarnation]indexWork{}, recent: map[incarnation]*recent{}, waiting: map[incarnation][]chan error{}, forgotten: map[incarnation][]erasure{},
	}
}

// add notes that an inbox has an index.
func (ix *indexer) add(inc incarnation, r *recent) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.recent[inc] = r
	if _, ok := ix.work[inc]; !ok {
		ix.work[inc] = indexWork{}
	}
}

// recentOf returns what came lately into an inbox, nil if it is not indexed.
func (ix *indexer) recentOf(inc incarnation) *recent {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.recent[inc]
}

// remove forgets an inbox that has ended.
func (ix *indexer) remove(inc incarnation) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	delete(ix.work, inc)
	delete(ix.recent, inc)
	delete(ix.forgotten, inc)
	ix.releaseLocked(inc, inbox.ErrNoSession)
}

// hint notes that there may be something to do for inboxes. Those without an index
// are passed over. It never waits.
func (ix *indexer) hint(w indexWork, all ...incarnation) {
	if len(all) == 0 {
		return
	}
	ix.mu.Lock()
	for _, inc := range all {
		ix.hintLocked(w, inc)
	}
	ix.mu.Unlock()
	ix.wakeUp()
}

func (ix *indexer) wakeUp() {
	select {
	case ix.wake <- struct{}{}:
	default:
	}
}

func (ix *indexer) hintLocked(w indexWork, inc incarnation) {
	was, ok := ix.work[inc]
	if !ok {
		return
	}
	if !was.queued {
		ix.queue = append(ix.queue, inc)
	}
	w = w.and(was)
	w.queued = true
	ix.work[inc] = w
}

// await returns when an inbox has been indexed up to what it had when it was called,
// or why it has not: ErrNoSession if it is not indexed, or has ended. Other inboxes have
// their turn meanwhile.
func (ix *indexer) await(ctx context.Context, inc incarnation) error {
	indexed := make(chan error, 1)
	ix.mu.Lock()
	_, ok := ix.work[inc]
	if ok {
		ix.waiting[inc] = append(ix.waiting[inc], indexed)
		ix.hintLocked(indexWork{index: true}, inc) // who is taken out of those that wait has had it done
	}
	ix.mu.Unlock()
	if !ok {
		return inbox.ErrNoSession
	}
	ix.wakeUp()
	select {
	case err := <-indexed:
		return err
	case <-ix.s.closing:
		return inbox.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitTurn returns when nothing of an inbox is being indexed that was read before it was
// called. It asks for nothing.
func (ix *indexer) awaitTurn(ctx context.Context, inc incarnation) error {
	ix.mu.Lock()
	at, turn := ix.at, ix.turn
	ix.mu.Unlock()
	if turn == nil || at != inc {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ix.s.closing:
		return inbox.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// releaseLocked tells those who wait for an inbox.
func (ix *indexer) releaseLocked(inc incarnation, err error) {
	for _, indexed := range ix.waiting[inc] {
		indexed <- err
	}
	delete(ix.waiting, inc)
}

// loop is the indexer's goroutine; it ends with the store.
func (ix *indexer) loop() {
	defer close(ix.done)
	for {
		select {
		case <-ix.wake:
		case <-ix.s.closing:
			return
		}
		for t, ok := ix.take(); ok; t, ok = ix.take() {
			ix.serve(t)
		}
	}
}

// indexTurn is what is to be done for one inbox, or a part of it.
type indexTurn struct {
	incarnation incarnation
	work        indexWork
	waiting     []chan error // those who wait for it
}

// take returns what is to be done next, if anything is and the store is open: then its
// turn begins, which ends with finish.
func (ix *indexer) take() (t indexTurn, ok bool) {
	select {
	case <-ix.s.closing:
		return t, false
	default:
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if len(ix.queue) == 0 {
		ix.queue = nil
		return t, false
	}
	inc := ix.queue[0]
	ix.queue = ix.queue[1:]
	ix.at, ix.turn = inc, make(chan struct{})
	t = indexTurn{incarnation: inc, waiting: ix.waiting[inc]}
	delete(ix.waiting, inc)
	if was, indexed := ix.work[inc]; indexed {
		t.work = indexWork{}.and(was)
		ix.work[inc] = indexWork{}
	}
	return t, true
}

// serve does what is to be done for one inbox, or a part of it: then the rest comes
// behind what there is to do for others.
func (ix *indexer) serve(t indexTurn) {
	rest, err := ix.run(t.incarnation, t.work)
	if err != nil && !errors.Is(err, inbox.ErrClosed) && !errors.Is(err, context.Canceled) {
		ix.s.log.Error("inbox is not indexed until the next try", "session", uint64(t.incarnation), "error", err)
	}
	ix.finish(t, rest, err)
}

// finish ends a turn, and tells those who wait if nothing is left, or it went wrong.
func (ix *indexer) finish(t indexTurn, rest indexWork, err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	close(ix.turn)
	ix.turn = nil
	if _, indexed := ix.work[t.incarnation]; !indexed && err == nil {
		err = inbox.ErrNoSession // it has ended meanwhile: nobody has another turn
	}
	if err == nil && rest != (indexWork{}) {
		ix.waiting[t.incarnation] = append(t.waiting, ix.waiting[t.incarnation]...)
		ix.hintLocked(rest, t.incarnation)
		return
	}
	for _, indexed := range t.waiting {
		indexed <- err
	}
}
