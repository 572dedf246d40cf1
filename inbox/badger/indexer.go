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
	queue   []incarnation             // those that have something to do, each once, the first in front
	waiting map[incarnation][]chan error

	forgotten map[incarnation][]forgotten
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
		work: map[incarnation]indexWork{}, waiting: map[incarnation][]chan error{}, forgotten: map[incarnation][]forgotten{},
	}
}

// add notes that an inbox has an index.
func (ix *indexer) add(inc incarnation) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if _, ok := ix.work[inc]; !ok {
		ix.work[inc] = indexWork{}
	}
}

// remove forgets an inbox that has ended.
func (ix *indexer) remove(inc incarnation) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	delete(ix.work, inc)
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
// or why it has not. Other inboxes have their turn meanwhile.
func (ix *indexer) await(ctx context.Context, inc incarnation) error {
	indexed := make(chan error, 1)
	ix.mu.Lock()
	_, ok := ix.work[inc]
	if ok {
		ix.waiting[inc] = append(ix.waiting[inc], indexed)
	}
	ix.mu.Unlock()
	if !ok {
		return inbox.ErrNoSession
	}
	ix.hint(indexWork{index: true}, inc)
	select {
	case err := <-indexed:
		return err
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
		for inc, w, ok := ix.take(); ok; inc, w, ok = ix.take() {
			ix.serve(inc, w)
		}
	}
}

// take returns what is to be done next, if anything is and the store is open.
func (ix *indexer) take() (inc incarnation, w indexWork, ok bool) {
	select {
	case <-ix.s.closing:
		return 0, w, false
	default:
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if len(ix.queue) == 0 {
		ix.queue = nil
		return 0, w, false
	}
	inc, ix.queue = ix.queue[0], ix.queue[1:]
	if was, indexed := ix.work[inc]; indexed {
		w = indexWork{}.and(was)
		ix.work[inc] = indexWork{}
	}
	return inc, w, true
}

// serve does what is to be done for one inbox, or a part of it: then the rest comes
// behind what there is to do for others.
func (ix *indexer) serve(inc incarnation, w indexWork) {
	ix.mu.Lock()
	waiting := ix.waiting[inc]
	delete(ix.waiting, inc)
	ix.mu.Unlock()

	rest, err := ix.run(inc, w)
	if err != nil && !errors.Is(err, inbox.ErrClosed) && !errors.Is(err, context.Canceled) {
		ix.s.log.Error("inbox is not indexed until the next try", "session", uint64(inc), "error", err)
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err == nil && rest != (indexWork{}) {
		ix.waiting[inc] = append(waiting, ix.waiting[inc]...)
		ix.hintLocked(rest, inc)
		return
	}
	for _, indexed := range waiting {
		indexed <- err
	}
}
