package hooks_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// faulty is a store in which a test can hold up or fail what it wants. A
// function that is set is called first, and its error is the call's.
type faulty struct {
	inbox.Store

	mu        sync.Mutex // guards what follows
	append    func() error
	open      func(inbox.Receiver) error
	subscribe func() error
	retained  func() error // when the subscription is stored
	save      func() error // with done only
	complete  func() error
	next      func() error
	close     func() error
	give      func() error
	saved     inbox.State // what the last lazy save saw
}

func (f *faulty) wrap(s inbox.Store) inbox.Store {
	f.Store = s
	return f
}

// set changes the functions.
func (f *faulty) set(change func(*faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// ask calls one of the functions, with no lock held.
func (f *faulty) ask(which func(*faulty) func() error) error {
	f.mu.Lock()
	act := which(f)
	f.mu.Unlock()
	if act == nil {
		return nil
	}
	return act()
}

func (f *faulty) Append(ctx context.Context, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	if err := f.ask(func(f *faulty) func() error { return f.append }); err != nil {
		done(inbox.Receipt{}, fmt.Errorf("append: %w", err))
		return
	}
	f.Store.Append(ctx, e, done)
}

func (f *faulty) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	err := f.ask(func(f *faulty) func() error {
		if f.open == nil {
			return nil
		}
		return func() error { return f.open(r) }
	})
	if err != nil {
		return nil, false, fmt.Errorf("open: %w", err)
	}
	in, resumed, err := f.Store.Open(ctx, r, o)
	return &faultyInbox{Inbox: in, store: f, state: o.State}, resumed, err
}

type faultyInbox struct {
	inbox.Inbox
	store *faulty
	state func() inbox.State
}

func (in *faultyInbox) Subscribe(ctx context.Context, subs ...inbox.Subscription) ([]bool, error) {
	if err := in.store.ask(func(f *faulty) func() error { return f.subscribe }); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	existed, err := in.Inbox.Subscribe(ctx, subs...)
	if err == nil {
		err = in.store.ask(func(f *faulty) func() error { return f.retained })
	}
	return existed, err
}

func (in *faultyInbox) Unsubscribe(ctx context.Context, filters ...string) ([]bool, error) {
	if err := in.store.ask(func(f *faulty) func() error { return f.subscribe }); err != nil {
		return nil, fmt.Errorf("unsubscribe: %w", err)
	}
	return in.Inbox.Unsubscribe(ctx, filters...)
}

func (in *faultyInbox) Save(done func(error)) {
	if done == nil {
		state := in.state()
		in.store.set(func(f *faulty) { f.saved = state })
	} else if err := in.store.ask(func(f *faulty) func() error { return f.save }); err != nil {
		done(fmt.Errorf("save: %w", err))
		return
	}
	in.Inbox.Save(done)
}

func (in *faultyInbox) Publish(ctx context.Context, id uint16, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	if err := in.store.ask(func(f *faulty) func() error { return f.append }); err != nil {
		done(inbox.Receipt{}, fmt.Errorf("publish: %w", err))
		return
	}
	in.Inbox.Publish(ctx, id, e, done)
}

func (in *faultyInbox) Next(ctx context.Context, max, maxBytes int) ([]inbox.Entry, error) {
	if err := in.store.ask(func(f *faulty) func() error { return f.next }); err != nil {
		return nil, fmt.Errorf("next: %w", err)
	}
	return in.Inbox.Next(ctx, max, maxBytes)
}

func (in *faultyInbox) Complete(id uint16, done func(bool, error)) {
	if err := in.store.ask(func(f *faulty) func() error { return f.complete }); err != nil {
		done(false, fmt.Errorf("complete: %w", err))
		return
	}
	in.Inbox.Complete(id, done)
}

func (in *faultyInbox) Give(to inbox.Inbox, entries []inbox.Entry, done func(error)) {
	if err := in.store.ask(func(f *faulty) func() error { return f.give }); err != nil {
		done(fmt.Errorf("give: %w", err))
		return
	}
	if wrapped, ok := to.(*faultyInbox); ok {
		to = wrapped.Inbox
	}
	in.Inbox.Give(to, entries, done)
}

func (in *faultyInbox) Close(ctx context.Context, end inbox.Ending) error {
	if err := in.store.ask(func(f *faulty) func() error { return f.close }); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return in.Inbox.Close(ctx, end)
}

// delaying is a store that keeps its done callbacks back until it is released.
type delaying struct {
	inbox.Store

	mu       sync.Mutex // guards what follows
	released bool
	kept     []func()
}

func (d *delaying) wrap(s inbox.Store) inbox.Store {
	d.Store = s
	return d
}

func (d *delaying) Append(ctx context.Context, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	d.Store.Append(ctx, e, d.delay(done))
}

func (d *delaying) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	in, resumed, err := d.Store.Open(ctx, r, o)
	return &delayingInbox{in, d}, resumed, err
}

type delayingInbox struct {
	inbox.Inbox
	store *delaying
}

func (in *delayingInbox) Publish(ctx context.Context, id uint16, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	in.Inbox.Publish(ctx, id, e, in.store.delay(done))
}

func (d *delaying) delay(done func(inbox.Receipt, error)) func(inbox.Receipt, error) {
	return func(r inbox.Receipt, err error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.released {
			done(r, err)
			return
		}
		d.kept = append(d.kept, func() { done(r, err) })
	}
}

func (d *delaying) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = true
	for _, done := range d.kept {
		done()
	}
	d.kept = nil
}
