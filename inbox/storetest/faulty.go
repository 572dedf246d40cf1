package storetest

import (
	"context"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Point is a call of a store that can be made to fail.
type Point string

// The points at which [Faulty] fails.
const (
	AtAppend    Point = "append"    // Append or Publish stores nothing, and done gets the error
	AtDone      Point = "done"      // Append or Publish stores the message, and done gets the error all the same
	AtOpen      Point = "open"      // Open changes nothing
	AtSubscribe Point = "subscribe" // Subscribe changes nothing
	AtNext      Point = "next"      // Next returns the error and does not move
	AtSave      Point = "save"      // Save with done stores nothing, and done gets the error
	AtComplete  Point = "complete"  // Complete changes nothing, and done gets the error
	AtGive      Point = "give"      // Give moves nothing, and done gets the error

	AtPull        Point = "pull"        // Pull answers with the error
	AtSummarize   Point = "summarize"   // Summarize answers with the error
	AtHistory     Point = "history"     // History answers with the error
	AtAcknowledge Point = "acknowledge" // Acknowledge changes nothing
	AtSetMode     Point = "set mode"    // SetMode changes nothing
	AtDelete      Point = "delete"      // Delete and Erase change nothing
)

// Faulty is a store that fails where it is told to, and is otherwise the store
// within. It may be used concurrently.
//
// The done of Append, Publish, Save, Complete and Give keep their order and their
// goroutine: where the wrapper stores nothing, it appends a message for nobody in
// its place.
type Faulty struct {
	inbox.Store

	mu     sync.Mutex
	calls  map[Point]int
	faults map[Point]map[int]error // by the number of the call
}

// NewFaulty returns a store that does not fail yet.
func NewFaulty(store inbox.Store) *Faulty {
	return &Faulty{Store: store, calls: map[Point]int{}, faults: map[Point]map[int]error{}}
}

// Fail makes the n-th call from now fail; 1 is the next. Each call fails at
// most once.
func (f *Faulty) Fail(at Point, n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults[at] == nil {
		f.faults[at] = map[int]error{}
	}
	f.faults[at][f.calls[at]+n] = err
}

// Calls returns how many calls a point has seen.
func (f *Faulty) Calls(at Point) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[at]
}

// call counts a call and returns the error that it is to have.
func (f *Faulty) call(at Point) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[at]++
	err := f.faults[at][f.calls[at]]
	delete(f.faults[at], f.calls[at])
	return err
}

// instead appends a message for nobody, so that done has its turn.
func (f *Faulty) instead(done func()) {
	nobody := &inbox.Envelope{Topic: "$storetest/faulty"}
	f.Store.Append(context.Background(), nobody, func(inbox.Receipt, error) { done() })
}

// Append implements [inbox.Store].
func (f *Faulty) Append(ctx context.Context, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	f.append(done, func(done func(inbox.Receipt, error)) { f.Store.Append(ctx, e, done) })
}

// append stores a message, unless one of its points fails.
func (f *Faulty) append(done func(inbox.Receipt, error), store func(done func(inbox.Receipt, error))) {
	failed, uncertain := f.call(AtAppend), f.call(AtDone)
	switch {
	case failed != nil:
		f.instead(func() { done(inbox.Receipt{}, failed) })
	case uncertain != nil:
		store(func(inbox.Receipt, error) { done(inbox.Receipt{}, uncertain) })
	default:
		store(done)
	}
}

// Open implements [inbox.Store].
func (f *Faulty) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	if err := f.call(AtOpen); err != nil {
		return nil, false, err
	}
	in, resumed, err := f.Store.Open(ctx, r, o)
	if err != nil {
		return nil, false, err
	}
	return &faultyInbox{Inbox: in, faulty: f}, resumed, nil
}

// Pull implements [inbox.Puller].
func (f *Faulty) Pull(ctx context.Context, r inbox.Receiver, q inbox.Query) (inbox.Page, error) {
	if err := f.call(AtPull); err != nil {
		return inbox.Page{}, err
	}
	return f.Store.Pull(ctx, r, q)
}

// Summarize implements [inbox.Puller].
func (f *Faulty) Summarize(ctx context.Context, r inbox.Receiver, q inbox.SummaryQuery) (inbox.Summary, error) {
	if err := f.call(AtSummarize); err != nil {
		return inbox.Summary{}, err
	}
	return f.Store.Summarize(ctx, r, q)
}

// Acknowledge implements [inbox.Puller].
func (f *Faulty) Acknowledge(ctx context.Context, r inbox.Receiver, a inbox.Acknowledgement) (int, error) {
	if err := f.call(AtAcknowledge); err != nil {
		return 0, err
	}
	return f.Store.Acknowledge(ctx, r, a)
}

// SetMode implements [inbox.Puller].
func (f *Faulty) SetMode(ctx context.Context, r inbox.Receiver, m inbox.Mode) (inbox.Mode, error) {
	if err := f.call(AtSetMode); err != nil {
		return inbox.ModeKept, err
	}
	return f.Store.SetMode(ctx, r, m)
}

// History implements [inbox.Archive].
func (f *Faulty) History(ctx context.Context, q inbox.Query) (inbox.Page, error) {
	if err := f.call(AtHistory); err != nil {
		return inbox.Page{}, err
	}
	return f.Store.History(ctx, q)
}

// Delete implements [inbox.Archive].
func (f *Faulty) Delete(ctx context.Context, id inbox.MessageID, by string) error {
	if err := f.call(AtDelete); err != nil {
		return err
	}
	return f.Store.Delete(ctx, id, by)
}

// Erase implements [inbox.Archive].
func (f *Faulty) Erase(ctx context.Context, sender string) (int, error) {
	if err := f.call(AtDelete); err != nil {
		return 0, err
	}
	return f.Store.Erase(ctx, sender)
}

type faultyInbox struct {
	inbox.Inbox
	faulty *Faulty
}

func (in *faultyInbox) Subscribe(ctx context.Context, subs ...inbox.Subscription) ([]bool, error) {
	if err := in.faulty.call(AtSubscribe); err != nil {
		return nil, err
	}
	return in.Inbox.Subscribe(ctx, subs...)
}

func (in *faultyInbox) Next(ctx context.Context, max, maxBytes int) ([]inbox.Entry, error) {
	if err := in.faulty.call(AtNext); err != nil {
		return nil, err
	}
	return in.Inbox.Next(ctx, max, maxBytes)
}

func (in *faultyInbox) Save(done func(error)) {
	if done == nil {
		in.Inbox.Save(nil)
		return
	}
	if err := in.faulty.call(AtSave); err != nil {
		in.faulty.instead(func() { done(err) })
		return
	}
	in.Inbox.Save(done)
}

func (in *faultyInbox) Publish(ctx context.Context, id uint16, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	in.faulty.append(done, func(done func(inbox.Receipt, error)) { in.Inbox.Publish(ctx, id, e, done) })
}

func (in *faultyInbox) Complete(id uint16, done func(known bool, err error)) {
	if err := in.faulty.call(AtComplete); err != nil {
		in.faulty.instead(func() { done(false, err) })
		return
	}
	in.Inbox.Complete(id, done)
}

func (in *faultyInbox) Give(to inbox.Inbox, entries []inbox.Entry, done func(error)) {
	if err := in.faulty.call(AtGive); err != nil {
		in.faulty.instead(func() { done(err) })
		return
	}
	if wrapped, ok := to.(*faultyInbox); ok {
		to = wrapped.Inbox
	}
	in.Inbox.Give(to, entries, done)
}
