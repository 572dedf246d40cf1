package badger

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The sweeper may come to an inbox that is being opened: what its opener finds to be
// waiting is not lost, whichever of them is first.
func TestWhatWaitsIsKeptWhileSweeping(t *testing.T) {
	r := progressRecord{State: inbox.State{Sent: 9}, waiting: inbox.Spans{{After: 2, Through: 5}, {After: 6, Through: 8}}}
	for range 2000 {
		h := &handle{}
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() { <-start; h.beginAt(r, false) })
		both.Go(func() { <-start; h.waitsNoMore(2) })
		close(start)
		both.Wait()
		if got := h.waitsFor(); !reflect.DeepEqual(got, r.waiting) {
			t.Fatalf("waits: %v, want %v", got, r.waiting)
		}
		if done := h.finished(); done != 2 {
			t.Fatalf("finished up to %d, want 2", done)
		}
	}
}

// What is finished of what waits, waits no more; what is finished behind it is for the
// owner to say.
func TestWhatWaitsIsFinished(t *testing.T) {
	h := &handle{}
	if got := h.waitsNoMore(7); got != 0 {
		t.Errorf("finished up to %d in an inbox that is being opened, want 0", got)
	}
	h.beginAt(progressRecord{State: inbox.State{Sent: 9}, waiting: inbox.Spans{{After: 2, Through: 5}, {After: 6, Through: 8}}}, false)
	for _, c := range []struct {
		upTo, want inbox.Position
		rest       inbox.Spans
	}{
		{4, 4, inbox.Spans{{After: 4, Through: 5}, {After: 6, Through: 8}}},
		{6, 6, inbox.Spans{{After: 6, Through: 8}}},
		{20, 8, nil},
		{20, 0, nil},
	} {
		if got := h.waitsNoMore(c.upTo); got != c.want {
			t.Errorf("finished up to %d of %d, want %d", got, c.upTo, c.want)
		}
		if got := h.waitsFor(); len(got) != len(c.rest) || len(got) > 0 && !reflect.DeepEqual(got, c.rest) {
			t.Errorf("waits behind %d: %v, want %v", c.upTo, got, c.rest)
		}
	}
}

// reopened is an inbox that is opened again and again.
type reopened struct {
	*actor
	t *testing.T
	s *Store
}

// open opens the inbox in a mode, and calls between before what was stored of it is read.
func (o *reopened) open(m inbox.Mode, between func()) {
	o.t.Helper()
	if err := o.Close(o.t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		o.t.Fatal(err)
	}
	h, err := run(o.t.Context(), o.s, "open", func(g *commitGroup) (*handle, error) {
		return g.open("a", inbox.OpenOptions{Expiry: inbox.ExpiryNever, Mode: m, State: o.state})
	})
	if err != nil {
		o.t.Fatal(err)
	}
	between()
	if err := h.restore(); err != nil {
		o.t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Inbox, o.window = h, inbox.NewWindow(100, h.State())
}

// expect takes messages.
func (o *reopened) expect(want ...string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), Patience)
	defer cancel()
	for len(want) > 0 {
		page, err := o.Next(ctx, len(want), 1<<20)
		if err != nil {
			o.t.Fatal(err)
		}
		o.mu.Lock()
		for i, e := range page {
			if o.window.Send(e.Position, e.QoS); string(e.Envelope.Payload) != want[i] {
				o.t.Fatalf("got %q, want %q", e.Envelope.Payload, want[i])
			}
		}
		o.mu.Unlock()
		want = want[len(page):]
	}
}

// finish completes what is open, and stores that.
func (o *reopened) finish() {
	o.t.Helper()
	o.mu.Lock()
	for _, d := range slices.Clone(o.window.Open()) {
		o.window.Ack(d.PacketID)
	}
	o.mu.Unlock()
	saved := make(chan error, 1)
	o.Save(func(err error) { saved <- err })
	if err := <-saved; err != nil {
		o.t.Fatal(err)
	}
}

// What is stored while an inbox is being opened in pull mode is live. If it is the last
// that its receiver is sent when it goes back to what waited, it is finished all the same.
func TestStoredWhileOpened(t *testing.T) {
	for _, live := range []bool{false, true} {
		o := everythingOptions(t.TempDir())
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		store := func(text string) { appendAll(t, s, &inbox.Envelope{Topic: "a", QoS: 2, Payload: []byte(text)}) }
		a := reopened{enter(t, s, "a", nil, sub("a", 2)), t, s}
		store("0")
		store("1")
		a.expect("0")
		a.open(inbox.ModePull, func() { store("2") })
		if live {
			a.expect("2")
		}
		a.open(inbox.ModePush, func() {})
		a.finish()
		if a.expect("1"); !live {
			a.expect("2")
		}
		a.finish()
		page, err := s.Pull(t.Context(), "a", inbox.Query{Max: 3, MaxBytes: 1 << 20})
		if err != nil || len(page.Entries) > 0 {
			t.Errorf("unread: %v, %v, want nothing", page.Entries, err)
		}
		closeSound(t, s, o.Dir)
	}
}

// The owner may read again what is open, or what was, while the committer goes back.
func TestReadsWhileItGoesBack(t *testing.T) {
	o := everythingOptions(t.TempDir())
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	store := func() { appendAll(t, s, &inbox.Envelope{Topic: "a", QoS: 2}) }
	a := reopened{enter(t, s, "a", nil, sub("a", 2)), t, s}
	store()
	a.expect("")
	store()
	a.open(inbox.ModePull, func() {})
	store()
	a.expect("") // which is between what waits and what comes
	a.open(inbox.ModePush, func() {})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := a.Read(t.Context(), nil); err != nil { // up to where it would read
				t.Error(err)
				return
			}
		}
	}()
	a.finish()
	close(stop)
	<-stopped
	a.expect("")
	closeSound(t, s, o.Dir)
}

// A state in which the owner does not know yet that it went back says by its packet ids
// that it is that.
func TestNotNotedYet(t *testing.T) {
	for id, want := range map[uint16]inbox.Position{3: 2, 5: 9} {
		h := &handle{back: goBack{sent: 9, first: 2, lastID: 3}}
		if got := (&commitGroup{}).progressOf(h, inbox.State{Sent: 9, LastID: id}).Sent; got != want {
			t.Errorf("after packet id %d: sent up to %d, want %d", id, got, want)
		}
	}
}
