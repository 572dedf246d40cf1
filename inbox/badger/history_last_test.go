package badger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// openArchive opens a store with a history of everything, which sweeps when it is told to.
func openArchive(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Options{
		Dir: dir, Reserve: -1, Retention: -1, Log: slog.New(slog.DiscardHandler), sweepEvery: time.Hour,
		History: []inbox.Kept{{Filter: "#"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeArchive(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Verify(t.Context(), Options{Dir: s.dir, Retention: -1, Log: slog.New(slog.DiscardHandler)}, func(f Fault) { t.Error(f) })
	if err != nil {
		t.Fatal(err)
	}
}

func tell(t *testing.T, s *Store, topic string, retain bool, texts ...string) {
	t.Helper()
	for _, text := range texts {
		done := make(chan error, 1)
		e := &inbox.Envelope{Topic: topic, QoS: 1, Payload: []byte(text), Retain: retain}
		s.Append(t.Context(), e, func(_ inbox.Receipt, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// next returns what comes next, as texts.
func (a *actor) next(t *testing.T, n int) (got []string) {
	t.Helper()
	for len(got) < n {
		page, err := a.Next(t.Context(), n-len(got), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		for _, e := range page {
			a.window.Send(e.Position, e.QoS)
			got = append(got, string(e.Envelope.Payload))
		}
		a.mu.Unlock()
	}
	return got
}

// What is stored while a SUBSCRIBE looks back, up to the very group in which it subscribes,
// is among the last, unless it came into the inbox by another subscription.
func TestLastWithWhatIsStoredMeanwhile(t *testing.T) {
	for _, expiry := range []inbox.Expiry{inbox.ExpiryNever, inbox.ExpiryAtOnce} {
		s := openArchive(t, t.TempDir())
		tell(t, s, "a/0", false, "0", "1", "2")
		a := &actor{window: inbox.NewWindow(100, inbox.State{})}
		in, _, err := s.Open(t.Context(), "c", inbox.OpenOptions{Expiry: expiry, State: a.state})
		if err != nil {
			t.Fatal(err)
		}
		a.Inbox = in
		if _, err := in.Subscribe(t.Context(), inbox.Subscription{Filter: "a/had", QoS: 1}); err != nil {
			t.Fatal(err)
		}
		h := in.(*handle)
		subs := []inbox.Subscription{{Filter: "a/#", QoS: 1, Last: 4}}
		l := h.wantsLast(subs)
		if err := l.prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		tell(t, s, "a/1", false, "3")
		tell(t, s, "a/had", false, "4 had")
		err = s.do(t.Context(), "subscribe", func(g *commitGroup) error {
			for _, e := range []*inbox.Envelope{{Topic: "a/2", Payload: []byte("5")}, {Topic: "a/had", Payload: []byte("6 had")}, {Topic: "other", Payload: []byte("x")}} {
				e.QoS = 1
				if _, err := g.append(e, inbox.AppendEnvelope(nil, e)); err != nil {
					return err
				}
			}
			g.subscribe(h, subs[0])
			if _, err := g.bringLast(l, 0, true); err != nil {
				return err
			}
			g.takeIn(l)
			e := &inbox.Envelope{Topic: "a/3", Payload: []byte("7 live"), QoS: 1}
			_, err := g.append(e, inbox.AppendEnvelope(nil, e))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(s.lookouts.free) != 1 || s.lookouts.index.Len() != 0 {
			t.Error("the lookout stays")
		}
		// The last four are 3, 4, 5 and 6, of which it had two.
		if got, want := a.next(t, 5), []string{"4 had", "6 had", "3", "5", "7 live"}; !slices.Equal(got, want) {
			t.Errorf("expiry %d: got %q, want %q", expiry, got, want)
		}
		closeArchive(t, s)
	}
}

// What a session in memory has in its hands is nowhere else, and is not brought again.
func TestLastWhileInHand(t *testing.T) {
	s := openArchive(t, t.TempDir())
	a := &actor{window: inbox.NewWindow(100, inbox.State{})}
	in, _, err := s.Open(t.Context(), "c", inbox.OpenOptions{State: a.state})
	if err != nil {
		t.Fatal(err)
	}
	a.Inbox = in
	if _, err := in.Subscribe(t.Context(), inbox.Subscription{Filter: "t", QoS: 1}); err != nil {
		t.Fatal(err)
	}
	tell(t, s, "t", false, "sent")
	a.next(t, 1)
	tell(t, s, "t", false, "in hand")
	if page, err := in.Next(t.Context(), 1, 1<<20); err != nil || len(page) != 1 {
		t.Fatal(page, err)
	}
	tell(t, s, "t", false, "ready")
	tell(t, s, "u", false, "other")
	if _, err := in.Subscribe(t.Context(), inbox.Subscription{Filter: "#", QoS: 1, Last: 10}); err != nil {
		t.Fatal(err)
	}
	tell(t, s, "u", false, "end")
	if got, want := a.next(t, 3), []string{"ready", "other", "end"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Nor what a subscription has brought, and is on its way; what is finished is.
	tell(t, s, "v", false, "first", "second")
	if _, err := in.Subscribe(t.Context(), inbox.Subscription{Filter: "v/#", QoS: 1, Last: 2}); err != nil {
		t.Fatal(err)
	}
	tell(t, s, "w", false, "end")
	if got, want := a.next(t, 3), []string{"first", "second", "end"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	closeArchive(t, s)

	s = openArchive(t, t.TempDir())
	tell(t, s, "t", false, "1", "2")
	a = &actor{window: inbox.NewWindow(100, inbox.State{})}
	if in, _, err = s.Open(t.Context(), "c", inbox.OpenOptions{State: a.state}); err != nil {
		t.Fatal(err)
	}
	a.Inbox = in
	sub := inbox.Subscription{Filter: "#", QoS: 1, Last: 10}
	for range 2 {
		if _, err := in.Subscribe(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
	}
	a.finish(t, 1)
	a.next(t, 1)
	if _, err := in.Subscribe(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	tell(t, s, "w", false, "end")
	if got, want := a.next(t, 2), []string{"1", "end"}; !slices.Equal(got, want) {
		t.Errorf("when one is finished, got %q, want %q", got, want)
	}
	closeArchive(t, s)
}

// A body that the sweeper is about to delete stays, if somebody is brought the message
// meanwhile; and it goes with the last.
func TestLastWhileTheSweeperCounts(t *testing.T) {
	s := openArchive(t, t.TempDir())
	a := enter(t, s, "a", nil, inbox.Subscription{Filter: "#", QoS: 1})
	tell(t, s, "t", false, "1", "2")
	a.finish(t, 2)
	saved := make(chan error, 1)
	a.Save(func(err error) { saved <- err })
	if err := <-saved; err != nil {
		t.Fatal(err)
	}
	var b *sweepBatch
	delete := func(between func()) {
		t.Helper()
		counts, err := b.prepare()
		if err != nil {
			t.Fatal(err)
		}
		between()
		if err := b.write(counts); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, bodies, counters int) {
		t.Helper()
		if keys := s.Keys(); keys["m"] != bodies || keys["c"] != counters {
			t.Errorf("%s: %d bodies and %d counters, want %d and %d", what, keys["m"], keys["c"], bodies, counters)
		}
	}
	inHistory, inA := s.histories.all[0].incarnation, a.Inbox.(*handle).incarnation

	// The history lets go of the first, and c is brought both.
	var c *actor
	b = newSweepBatch(s.sweeper)
	b.history = true
	if err := b.finished(inHistory, 0, s.sequence-1, 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.finished(inA, 0, endless, 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	delete(func() { c = enter(t, s, "c", nil, inbox.Subscription{Filter: "t", QoS: 1, Last: 10}) })
	want("after the others", 2, 2)
	if got := c.next(t, 2); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("c is brought %q", got)
	}
	b = newSweepBatch(s.sweeper)
	if err := b.finished(c.Inbox.(*handle).incarnation, 0, endless, 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	delete(func() {})
	want("after c", 1, 1) // what history still has
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A message that is retained as well comes once, and as the retained one.
func TestLastAndRetained(t *testing.T) {
	s := openArchive(t, t.TempDir())
	tell(t, s, "t", true, "old")
	tell(t, s, "t", true, "retained")
	tell(t, s, "t", false, "plain")
	tell(t, s, "u", true, "of another topic")
	c := enter(t, s, "c", nil, inbox.Subscription{Filter: "#", QoS: 1, Last: 3})
	page, err := c.Next(t.Context(), 10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range page {
		got = append(got, fmt.Sprint(string(e.Envelope.Payload), " ", e.Retain))
	}
	if want := []string{"retained true", "plain false", "of another topic true"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := c.Subscribe(t.Context(), inbox.Subscription{Filter: "t", QoS: 1, Last: 10, RetainHandling: 2}); err != nil {
		t.Fatal(err)
	}
	page, err = c.Next(t.Context(), 10, 1<<20)
	if err != nil || len(page) != 1 || string(page[0].Envelope.Payload) != "old" || page[0].Retain {
		t.Errorf("then %v, %v", page, err)
	}
	closeArchive(t, s)
}

// A subscriber that gives up leaves no lookout behind, wherever it was.
func TestLastGivenUp(t *testing.T) {
	s := openArchive(t, t.TempDir())
	c := enter(t, s, "c", nil)
	sub := inbox.Subscription{Filter: "t", QoS: 1, Last: 5}
	for n := range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		_, err := c.Subscribe(ctx, sub)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if err := c.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe(t.Context(), sub); !errors.Is(err, inbox.ErrFenced) {
		t.Errorf("when it is closed: %v", err)
	}
	err := s.do(t.Context(), "look", func(*commitGroup) error {
		if n := len(s.lookouts.posted) - 1; len(s.lookouts.free) != n || n > 0 && s.lookouts.index.Len() != 0 {
			t.Errorf("%d lookouts, %d free", n, len(s.lookouts.free))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	closeArchive(t, s)
}

// There is a bound to how many are brought, and, where they come from memory, to their
// size.
func TestLastIsBounded(t *testing.T) {
	s := openArchive(t, t.TempDir())
	const n = mostLast + 50
	done := make(chan error, n)
	for i := range n {
		e := &inbox.Envelope{Topic: "t", QoS: 1, Payload: make([]byte, 10<<10), ContentType: fmt.Sprint(i)}
		s.Append(t.Context(), e, func(_ inbox.Receipt, err error) { done <- err })
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	sub := inbox.Subscription{Filter: "t", QoS: 1, Last: 10 * mostLast}
	c := enter(t, s, "c", nil, sub)
	if got := c.next(t, mostLast); len(got) != mostLast {
		t.Errorf("%d messages", len(got))
	}
	tell(t, s, "t", false, "the next")
	if got := c.next(t, 1); got[0] != "the next" {
		t.Errorf("%d bytes more", len(got[0]))
	}
	many := enter(t, s, "many", nil)
	var subs []inbox.Subscription
	for _, filter := range []string{"t", "+", "#", "t/#", "+/#", "a", "b"} {
		subs = append(subs, inbox.Subscription{Filter: filter, QoS: 1, Last: 1000})
	}
	if l := many.Inbox.(*handle).wantsLast(subs); l.all[4] == nil || l.all[5] != nil || l.all[4].most != mostLast {
		t.Error("the filters of one SUBSCRIBE have no bound in all")
	}
	if _, err := many.Subscribe(t.Context(), subs...); err != nil {
		t.Fatal(err)
	}
	tell(t, s, "t", false, "the next")
	if got := many.next(t, mostLast+1); got[mostLast] != "the next" { // what one has brought another does not
		t.Errorf("%d bytes more", len(got[mostLast]))
	}
	var live []string
	in, _, err := s.Open(t.Context(), "live", inbox.OpenOptions{Expiry: inbox.ExpiryNever, Live: func(e inbox.Entry) { live = append(live, e.Envelope.ContentType) }})
	if err != nil {
		t.Fatal(err)
	}
	sub.QoS = 0
	if _, err := in.Subscribe(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	if len(live) < 90 || len(live) > 102 || live[len(live)-1] != "" || live[len(live)-3] != fmt.Sprint(n-1) {
		t.Errorf("%d messages come at QoS 0, the last three %q", len(live), live[len(live)-3:])
	}
	closeArchive(t, s)
}

// What was brought is there after a restart, and the rest of what there is agrees with it.
func TestLastAfterARestart(t *testing.T) {
	dir := t.TempDir()
	s := openArchive(t, dir)
	tell(t, s, "t", false, "1", "2", "3")
	c := enter(t, s, "c", nil, inbox.Subscription{Filter: "t", QoS: 1, Last: 2})
	if err := c.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Fatal(err)
	}
	closeArchive(t, s)
	s = openArchive(t, dir)
	c = enter(t, s, "c", nil, inbox.Subscription{Filter: "t", QoS: 1, Last: 3})
	if got := c.next(t, 3); !slices.Equal(got, []string{"2", "3", "1"}) { // what was unread is not brought again
		t.Errorf("got %q", got)
	}
	closeArchive(t, s)
}
