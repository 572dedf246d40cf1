package memory

import (
	"context"
	"iter"
	"maps"
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
	retained map[string]*inbox.Envelope // by topic
	names    map[name]named             // of messages that have one
	rewind   time.Duration              // see Options
	archives []*archive                 // one for each filter whose messages are kept
	timer    *time.Timer                // for the next will or session; nil before the first
	closed   bool
	calls    []func() // callbacks that are due, in order
	calling  bool     // the goroutine of callbacks runs
	idle     sync.Cond
}

var _ inbox.Store = (*Store)(nil)

// Options say what a store keeps beside what is unread. The zero value is nothing.
type Options struct {
	History []inbox.Kept // filters whose messages are kept

	// Rewind is how long after it was stored a message can be had again by a
	// receiver that starts again, though it was acknowledged. 0 for not at all.
	Rewind time.Duration
}

// New returns an empty store.
func New(o Options) *Store {
	s := newStore(rand.Uint32())
	s.rewind = o.Rewind
	for _, kept := range o.History {
		s.archives = append(s.archives, &archive{Kept: kept})
	}
	return s
}

func newStore(id uint32) *Store {
	s := &Store{
		id:       id,
		waiting:  make(chan struct{}, maxWaiting),
		sessions: map[inbox.Receiver]*session{},
		retained: map[string]*inbox.Envelope{},
		names:    map[name]named{},
	}
	s.idle.L = &s.mu
	return s
}

// Append implements [inbox.Store]. It costs one comparison for each
// subscription in the store.
func (s *Store) Append(ctx context.Context, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	s.take(ctx, func() (inbox.Receipt, error) { return s.appendOnceLocked(e), nil }, done)
}

// take stores one message with the lock held, and has done called in its turn.
func (s *Store) take(ctx context.Context, storeLocked func() (inbox.Receipt, error), done func(inbox.Receipt, error)) {
	if err := s.admit(ctx); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.callLocked(func() { done(inbox.Receipt{}, err) })
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	receipt, err := inbox.Receipt{}, inbox.ErrClosed
	if !s.closed {
		receipt, err = storeLocked()
	}
	s.callLocked(func() {
		done(receipt, err)
		<-s.waiting
	})
}

// name is what a client has named a message.
type name struct{ client, id string }

// named is the message of a name.
type named struct {
	id     inbox.MessageID
	expiry int64
}

// appendOnceLocked is appendLocked for a message that may repeat an earlier one.
func (s *Store) appendOnceLocked(e *inbox.Envelope) inbox.Receipt {
	n := name{e.Client, e.MessageID()}
	if n.id == "" || e.QoS == 0 {
		return s.appendLocked(e)
	}
	if earlier, ok := s.names[n]; ok && (earlier.expiry == 0 || earlier.expiry > time.Now().UnixMilli()) {
		return inbox.Receipt{ID: earlier.id, Duplicate: true, Matched: -1}
	}
	receipt := s.appendLocked(e)
	s.names[n] = named{e.ID, e.Expiry}
	return receipt
}

// appendLocked gives a message to its receivers, and retains it if it asks for
// that.
func (s *Store) appendLocked(e *inbox.Envelope) inbox.Receipt {
	e.ID = inbox.MessageID{Sequence: s.nextLocked(), Store: s.id}
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
	if e.Retain {
		s.retainLocked(e)
	}
	s.keepLocked(e)
	return receipt
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

// nextLocked gives out the next position: one to three after the last.
func (s *Store) nextLocked() inbox.Position {
	s.last += 1 + s.last%3
	return s.last
}

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

	if isGroup(r) { // it lives and ends with its members
		o.Resume, o.Fresh, o.Expiry, o.Will = true, false, inbox.ExpiryNever, nil
		o.Mode, o.From = inbox.ModeKept, nil
	}
	if o.From != nil && o.From.ID != (inbox.MessageID{}) && !s.knowsLocked(o.From.ID) {
		return nil, false, inbox.ErrUnknownID
	}
	s.passLocked() // what is due comes before what the new link changes
	held, resumed := s.sessions[r]
	if resumed {
		held.fenceLocked()
	}
	if resumed && (o.Fresh || held.expiry == inbox.ExpiryAtOnce) { // a new link is the end of the old one
		s.endLocked(held)
		resumed = false
	}
	if o.Resume && !resumed {
		return nil, false, inbox.ErrNoSession
	}
	if !resumed {
		held = newSession(r)
		s.sessions[r] = held
	}
	held.setModeLocked(o.Mode)
	if o.From != nil {
		if err := s.rewindLocked(held, *o.From); err != nil {
			return nil, false, err
		}
	}
	returning := false
	switch {
	case held.mode == inbox.ModePull:
		held.waitLocked(s.last)
	case len(held.state.Open) == 0:
		held.returnLocked()
	default:
		returning = len(held.waits) > 0
	}
	held.expiry = o.Expiry
	held.ended = 0
	held.will = o.Will // the one there was is not published any more [MQTT-3.1.3-9]
	held.owner = &owner{
		store:    s,
		receiver: r,
		session:  held,
		options:  o,
		opened:   held.state.Clone(),
		mode:     held.mode,
		received: slices.Collect(maps.Keys(held.received)),
		read:     held.state.Sent,
		wake:     make(chan struct{}, 1),
		given:    map[inbox.Position]struct{}{},

		returning: returning,
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
		if isGroup(r) {
			continue
		}
		all = append(all, inbox.Session{
			Receiver:  r,
			Expiry:    held.expiry,
			Connected: held.owner != nil,
			Mode:      held.mode,
			Ended:     held.ended,
		})
	}
	return all, nil
}

// ID implements [inbox.Store].
func (s *Store) ID() uint32 { return s.id }

// Close implements [inbox.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, held := range s.sessions {
		held.wakeLocked()
	}
	for s.calling {
		s.idle.Wait()
	}
	return nil
}

// Reopen closes the store and returns what a restart would find: what was
// retained, history, and the sessions that outlive their link, without owners. Those that
// were connected have left without a goodbye. The closed store is not to be used
// any more.
func (s *Store) Reopen() *Store {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	again := newStore(s.id)
	again.mu.Lock()
	defer again.mu.Unlock()
	again.last = s.last
	again.retained = maps.Clone(s.retained)
	again.names = maps.Clone(s.names)
	again.rewind = s.rewind
	for _, a := range s.archives {
		again.archives = append(again.archives, &archive{Kept: a.Kept, messages: slices.Clone(a.messages)})
	}
	for r, held := range s.sessions {
		kept := *held
		kept.state = held.state.Clone()
		kept.entries = slices.Clone(held.entries)
		kept.waits = maps.Clone(held.waits)
		kept.read = slices.Clone(held.read)
		kept.given = maps.Clone(held.given)
		kept.filters = slices.Clone(held.filters)
		kept.received = maps.Clone(held.received)
		if kept.owner != nil {
			kept.owner = nil
			kept.ended = time.Now().UnixMilli()
		}
		again.sessions[r] = &kept
	}
	again.passLocked() // ends those that were to end with their link
	return again
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
