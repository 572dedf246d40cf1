package memory

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// maxWaiting is how many appended messages may wait for their done before
// Append blocks.
const maxWaiting = 4096

// Store keeps everything in maps and slices under one mutex.
type Store struct {
	id      uint32
	waiting chan struct{} // one token for each appended message whose done has not returned

	mu       sync.Mutex // guards everything below, and what session and owner say it guards
	last     inbox.Position
	sessions map[inbox.Receiver]*session
	closed   bool
	calls    []func() // callbacks that are due, in order
	calling  bool     // the goroutine of callbacks runs
	idle     sync.Cond
}

var _ inbox.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return newStore(rand.Uint32(), 0, map[inbox.Receiver]*session{})
}

func newStore(id uint32, last inbox.Position, sessions map[inbox.Receiver]*session) *Store {
	s := &Store{id: id, last: last, sessions: sessions, waiting: make(chan struct{}, maxWaiting)}
	s.idle.L = &s.mu
	return s
}

// Append implements [inbox.Store]. It costs one comparison for each
// subscription in the store.
func (s *Store) Append(ctx context.Context, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	if err := s.admit(ctx); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.callLocked(func() { done(inbox.Receipt{}, err) })
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.callLocked(func() {
			done(inbox.Receipt{}, inbox.ErrClosed)
			<-s.waiting
		})
		return
	}

	s.last = next(s.last)
	e.ID = inbox.MessageID{Sequence: s.last, Store: s.id}
	receipt := inbox.Receipt{ID: e.ID}
	for r, held := range s.sessions {
		grant, ok := held.grantLocked(r, e)
		if !ok {
			continue
		}
		if held.takeLocked(inbox.Entry{Position: s.last, Envelope: e, Grant: grant}, s) {
			receipt.Matched++
		}
	}
	s.callLocked(func() {
		done(receipt, nil)
		<-s.waiting
	})
}

// admit waits for room among the messages whose done is still due.
func (s *Store) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.waiting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next returns the position after p: one or two further, in turn.
func next(p inbox.Position) inbox.Position { return p + 1 + p%3 }

// Open implements [inbox.Store].
func (s *Store) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, inbox.ErrClosed
	}

	held, resumed := s.sessions[r]
	if resumed {
		held.fenceLocked()
	}
	if !resumed || o.Fresh || held.expiry == inbox.ExpiryAtOnce { // a new link is the end of the old one
		held, resumed = newSession(), false
		s.sessions[r] = held
	}
	held.expiry = o.Expiry
	held.ended = 0
	held.owner = &owner{
		store:    s,
		receiver: r,
		session:  held,
		options:  o,
		opened:   clone(held.state),
		read:     held.state.Sent,
		wake:     make(chan struct{}, 1),
	}
	return held.owner, resumed, nil
}

// Sessions implements [inbox.Store]. It yields the sessions of one moment.
func (s *Store) Sessions(ctx context.Context) iter.Seq2[inbox.Session, error] {
	return func(yield func(inbox.Session, error) bool) {
		all, err := s.snapshot(ctx)
		if err != nil {
			yield(inbox.Session{}, err)
			return
		}
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
	}
}

func (s *Store) snapshot(ctx context.Context) ([]inbox.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, inbox.ErrClosed
	}
	all := make([]inbox.Session, 0, len(s.sessions))
	for r, held := range s.sessions {
		all = append(all, inbox.Session{
			Receiver:  r,
			Expiry:    held.expiry,
			Connected: held.owner != nil,
			Ended:     held.ended,
		})
	}
	return all, nil
}

// Close implements [inbox.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, held := range s.sessions {
		held.wakeLocked()
	}
	for s.calling {
		s.idle.Wait()
	}
	return nil
}

// Reopen closes the store and returns what a restart would find: the sessions
// that outlive their link, without owners. The closed store is not to be used
// any more.
func (s *Store) Reopen() *Store {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := map[inbox.Receiver]*session{}
	for r, held := range s.sessions {
		if held.expiry == inbox.ExpiryAtOnce {
			continue
		}
		again := &session{
			expiry:  held.expiry,
			ended:   held.ended,
			state:   clone(held.state),
			entries: slices.Clone(held.entries),
			filters: slices.Clone(held.filters),
		}
		if held.owner != nil {
			again.ended = time.Now().UnixMilli()
		}
		kept[r] = again
	}
	return newStore(s.id, s.last, kept)
}

// callLocked has call called after all that were given before it.
func (s *Store) callLocked(call func()) {
	s.calls = append(s.calls, call)
	if !s.calling {
		s.calling = true
		go s.callAll()
	}
}

// callAll is the goroutine of callbacks. It ends when none is due.
func (s *Store) callAll() {
	for {
		s.mu.Lock()
		due := s.calls
		s.calls = nil
		if len(due) == 0 {
			s.calling = false
			s.idle.Broadcast()
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()

		for _, call := range due {
			call()
		}
	}
}
