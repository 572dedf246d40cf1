package badger

import (
	"context"
	"sync"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// operation is one request to the committer: a message to append, or, for
// everything rarer, a function to apply.
type operation struct {
	envelope *inbox.Envelope
	record   *[]byte // the envelope's stored form; goes back to the pool after the commit
	stored   func(inbox.Receipt, error)
	from     *handle // of a QoS 2 message: the publisher's inbox, which records
	packetID uint16  // this id; nil for other messages

	apply   func(*commitGroup)
	applied func(error) // after the commit; may be nil
}

// Bounds of what waits for the committer.
const (
	queueLimit = 4096     // operations
	queueBytes = 16 << 20 // encoded messages; as much again is their payloads
)

// lazyDelay is how long a lazy save may wait for a group to ride on.
const lazyDelay = 100 * time.Millisecond

// queue holds what waits for the committer: operations in order, bounded; and
// the inboxes with a lazy save, each at most once. Taking swaps the whole slice,
// so a group costs one lock and not one a message.
type queue struct {
	mu     sync.Mutex
	ops    []operation
	bytes  int // of the messages in ops
	lazy   []*handle
	due    time.Time     // when the lazy saves must be written; zero if there are none
	room   chan struct{} // closed when operations were taken, while someone waits for room
	closed bool

	wake chan struct{} // holds one; a hint that there is something to take
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// put appends op, waiting for room while the queue is full. Runs on any
// goroutine but the committer's.
func (q *queue) put(ctx context.Context, op operation) error {
	q.mu.Lock()
	for (len(q.ops) >= queueLimit || q.bytes >= queueBytes) && !q.closed {
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
		q.mu.Lock()
	}
	ok := q.appendLocked(op)
	q.mu.Unlock()
	if !ok {
		return inbox.ErrClosed
	}
	return nil
}

// force appends op whether or not there is room, and reports whether the queue
// is open. It is for operations without a message whose number is bounded by
// something else: refusals, and what a connection does once, or once for each
// message that it was sent.
func (q *queue) force(op operation) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.appendLocked(op)
}

func (q *queue) appendLocked(op operation) bool {
	if q.closed {
		return false
	}
	q.ops = append(q.ops, op)
	q.bytes += op.size()
	if len(q.ops) == 1 {
		q.hint()
	}
	return true
}

// size is what the operation's message takes.
func (op *operation) size() int {
	if op.record == nil {
		return 0
	}
	return len(*op.record)
}

// putLazy notes that h has a state to save. It never waits.
func (q *queue) putLazy(h *handle) {
	q.mu.Lock()
	first := len(q.lazy) == 0
	q.lazy = append(q.lazy, h)
	if first {
		q.due = time.Now().Add(lazyDelay)
	}
	q.mu.Unlock()
	if first {
		q.hint()
	}
}

func (q *queue) hint() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for operations, for lazy saves that are due, or until the given
// time if it is not zero, and returns what there is; the caller's emptied slices
// are used for what comes next. Lazy saves ride on a group that is made anyway
// once half their time is over. It reports false when the queue is closed and
// empty. Runs on the committer.
func (q *queue) take(ops []operation, lazy []*handle, until time.Time) ([]operation, []*handle, bool) {
	for {
		q.mu.Lock()
		now := time.Now()
		lazyDue := !q.due.IsZero() && (q.closed || now.After(q.due) ||
			len(q.ops) > 0 && now.After(q.due.Add(-lazyDelay/2)))
		timeOver := !until.IsZero() && !q.closed && !now.Before(until)
		if len(q.ops) > 0 || lazyDue || timeOver {
			ops, q.ops = q.ops, ops[:0]
			q.bytes = 0
			lazy = lazy[:0]
			if lazyDue {
				lazy, q.lazy = q.lazy, lazy
				q.due = time.Time{}
			}
			if q.room != nil {
				close(q.room)
				q.room = nil
			}
			q.mu.Unlock()
			return ops, lazy, true
		}
		if q.closed {
			q.mu.Unlock()
			return nil, nil, false
		}
		due := q.due
		if due.IsZero() || !until.IsZero() && until.Before(due) {
			due = until
		}
		q.mu.Unlock()
		q.wait(due)
	}
}

// wait returns at the next hint, or when something is due.
func (q *queue) wait(due time.Time) {
	if due.IsZero() {
		<-q.wake
		return
	}
	t := time.NewTimer(time.Until(due))
	defer t.Stop()
	select {
	case <-q.wake:
	case <-t.C:
	}
}

// close refuses what comes later; what is queued will still be taken.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
	q.mu.Unlock()
	q.hint()
}
