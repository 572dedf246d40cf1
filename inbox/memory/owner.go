package memory

import (
	"context"
	"maps"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// owner is an opened inbox: [inbox.Inbox] for whoever opened it last.
type owner struct {
	store    *Store
	receiver inbox.Receiver
	session  *session
	options  inbox.OpenOptions
	opened   inbox.State
	mode     inbox.Mode
	received []uint16      // as it was opened
	wake     chan struct{} // a hint for Next; holds one

	read   inbox.Position // the last that Next returned; guarded by store.mu
	saving bool           // a lazy save is due; guarded by store.mu

	withdrawn atomic.Uint64 // how often entries were taken away by another way

	returning bool         // what waits to be pulled is due, once nothing is open; guarded by store.mu
	before    *inbox.State // the owner's when it was given what had waited, until it has another; guarded by store.mu

	given map[inbox.Position]struct{} // moved to others, and open in the owner's last state all the same; guarded by store.mu
}

var _ inbox.Inbox = (*owner)(nil)

// State implements [inbox.Inbox].
func (o *owner) State() inbox.State { return o.opened.Clone() }

// Subscriptions implements [inbox.Inbox].
func (o *owner) Subscriptions(ctx context.Context) (subs []inbox.Subscription, err error) {
	err = o.do(ctx, func() { subs = slices.Clone(o.session.filters) })
	return subs, err
}

// Subscribe implements [inbox.Inbox].
func (o *owner) Subscribe(ctx context.Context, subs ...inbox.Subscription) (existed []bool, err error) {
	err = o.do(ctx, func() {
		for _, sub := range subs {
			last := sub
			last.Last = 0 // it is not kept
			existed = append(existed, o.session.subscribeLocked(last))
			o.store.joinLocked(sub.Filter)
		}
		for i, sub := range subs {
			o.store.sendRetainedLocked(o.session, sub, existed[i])
			o.store.sendLastLocked(o.session, sub)
		}
	})
	return existed, err
}

// Unsubscribe implements [inbox.Inbox].
func (o *owner) Unsubscribe(ctx context.Context, filters ...string) (existed []bool, err error) {
	err = o.do(ctx, func() {
		for _, filter := range filters {
			existed = append(existed, o.session.unsubscribeLocked(filter, o.read))
			o.store.leaveLocked(filter)
		}
	})
	return existed, err
}

// Next implements [inbox.Inbox].
func (o *owner) Next(ctx context.Context, max, maxBytes int) (page []inbox.Entry, err error) {
	for {
		err := o.do(context.WithoutCancel(ctx), func() { page = o.pageLocked(max, maxBytes) })
		if err != nil || len(page) > 0 {
			return page, err
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (o *owner) pageLocked(max, maxBytes int) (page []inbox.Entry) {
	if !o.returnLocked() {
		return nil
	}
	bytes := 0
	for _, entry := range o.session.entries[o.session.afterLocked(o.read):] {
		bytes += len(entry.Envelope.Payload)
		if len(page) == max || len(page) > 0 && bytes > maxBytes {
			break
		}
		page = append(page, entry)
		o.read = entry.Position
	}
	return page
}

// Read implements [inbox.Inbox].
func (o *owner) Read(ctx context.Context, at []inbox.Position) (found []inbox.Entry, err error) {
	err = o.do(ctx, func() {
		entries := o.session.entries
		for _, p := range at {
			i := sort.Search(len(entries), func(i int) bool { return entries[i].Position >= p })
			if i < len(entries) && entries[i].Position == p {
				found = append(found, entries[i])
			}
		}
	})
	return found, err
}

// Withdrawn implements [inbox.Inbox].
func (o *owner) Withdrawn() uint64 { return o.withdrawn.Load() }

// Publish implements [inbox.Inbox].
func (o *owner) Publish(ctx context.Context, id uint16, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	o.store.take(ctx, func() (inbox.Receipt, error) {
		if err := o.usableLocked(); err != nil {
			return inbox.Receipt{}, err
		}
		if o.session.received[id] {
			return inbox.Receipt{Duplicate: true}, nil
		}
		o.session.received[id] = true
		return o.store.appendOnceLocked(e), nil
	}, done)
}

// Received implements [inbox.Inbox].
func (o *owner) Received() []uint16 { return slices.Clone(o.received) }

// Complete implements [inbox.Inbox].
func (o *owner) Complete(id uint16, done func(known bool, err error)) {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	err := o.usableLocked()
	known := err == nil && o.session.received[id]
	if known {
		delete(o.session.received, id)
	}
	o.store.callLocked(func() { done(known, err) })
}

// Save implements [inbox.Inbox].
func (o *owner) Save(done func(error)) {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	err := o.usableLocked()
	switch {
	case done == nil && (err != nil || o.saving):
		// Nothing to tell, or a save that is due will take the newest state.
	case done == nil:
		o.saving = true
		o.store.callLocked(func() { _ = o.save(func() {}) }) // the fenced owner's lazy save is void
	case err != nil:
		o.store.callLocked(func() { done(err) })
	default:
		o.store.callLocked(func() { done(o.save(func() {})) })
	}
}

// Close implements [inbox.Inbox].
func (o *owner) Close(ctx context.Context, end inbox.Ending) error {
	closed := make(chan error, 1)
	err := o.do(ctx, func() {
		o.store.callLocked(func() { closed <- o.save(func() { o.leaveLocked(end) }) })
	})
	if err != nil {
		return err
	}
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// save asks the owner for its state, stores it, and takes one more step with
// the lock held. Runs on the goroutine of callbacks, no lock held. A store that
// is closing still saves what was handed over before.
func (o *owner) save(thenLocked func()) error {
	o.store.mu.Lock()
	o.saving = false
	fenced := o.session.owner != o
	o.store.mu.Unlock()
	if fenced {
		return inbox.ErrFenced
	}

	var state inbox.State
	if o.options.State != nil {
		state = o.options.State()
	}

	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	if o.session.owner != o {
		return inbox.ErrFenced
	}
	if o.options.State != nil {
		if o.staleLocked(state) {
			state.Sent = o.session.state.Sent
		}
		o.session.saveLocked(o.withoutGivenLocked(state), o.store.rewind)
		if o.returning {
			o.session.wakeLocked()
		}
		maps.DeleteFunc(o.given, func(p inbox.Position, _ struct{}) bool { return !isOpen(state, p) })
	}
	thenLocked()
	return nil
}

// leaveLocked gives the session back, which may be its end.
func (o *owner) leaveLocked(end inbox.Ending) {
	s := o.session
	s.fenceLocked()
	s.ended = time.Now().UnixMilli()
	if s.expiry != inbox.ExpiryAtOnce && !isGroup(s.receiver) {
		s.expiry = end.Expiry
	}
	if end.Goodbye {
		s.will = nil
	}
	o.store.passLocked()
}

// do takes one step with the lock held, if the inbox is still the caller's.
func (o *owner) do(ctx context.Context, stepLocked func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	if err := o.usableLocked(); err != nil {
		return err
	}
	stepLocked()
	return nil
}

func (o *owner) usableLocked() error {
	if o.store.closed {
		return inbox.ErrClosed
	}
	if o.session.owner != o {
		return inbox.ErrFenced
	}
	return nil
}
