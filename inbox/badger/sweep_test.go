package badger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

var background = context.Background()

// receiver is a session of a test: its inbox, and its window behind a lock as
// the owner of a real one has it.
type receiver struct {
	inbox.Inbox
	mu     sync.Mutex
	window *inbox.Window
}

func connect(t testing.TB, s inbox.Store, r inbox.Receiver, expiry inbox.Expiry, filters ...string) *receiver {
	t.Helper()
	c := &receiver{window: inbox.NewWindow(1000, inbox.State{})}
	in, _, err := s.Open(background, r, inbox.OpenOptions{Expiry: expiry, State: c.state})
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.Inbox, c.window = in, inbox.NewWindow(1000, in.State())
	c.mu.Unlock()
	for _, f := range filters {
		if _, err := in.Subscribe(background, inbox.Subscription{Filter: f, QoS: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *receiver) state() inbox.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window.State()
}

// take reads n entries and returns their packet ids, without finishing them.
func (c *receiver) take(t testing.TB, n int) (ids []uint16, entries []inbox.Entry) {
	t.Helper()
	for len(ids) < n {
		page, err := c.Next(background, n-len(ids), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		for _, e := range page {
			ids = append(ids, c.window.Send(e.Position, e.QoS))
		}
		c.mu.Unlock()
		entries = append(entries, page...)
	}
	return ids, entries
}

func (c *receiver) finish(ids ...uint16) {
	c.mu.Lock()
	for _, id := range ids {
		c.window.Ack(id)
	}
	c.mu.Unlock()
	c.Save(nil)
}

func sweeping(t testing.TB, dir string) *badger.Store {
	t.Helper()
	return sweepingEvery(t, dir, 5*time.Millisecond)
}

func sweepingEvery(t testing.TB, dir string, every time.Duration) *badger.Store {
	t.Helper()
	s, err := badger.OpenSweeping(badger.Options{Dir: dir, Reserve: -1, Retention: -1, Log: quiet()}, every)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually waits until the keys of the given kinds are as many as wanted.
func eventually(t testing.TB, s *badger.Store, want map[string]int) {
	t.Helper()
	var got map[string]int
	s.Eventually(t, func() bool {
		got = s.Keys()
		for kind, n := range want {
			if got[kind] != n {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("keys %v, want %v", got, want) })
}

// What is finished is deleted; what is open stays, with its body.
func TestSweep(t *testing.T) {
	s := sweeping(t, t.TempDir())
	defer s.Close()
	a := connect(t, s, "a", inbox.ExpiryNever, "one/a", "all")
	b := connect(t, s, "b", inbox.ExpiryNever, "all")
	for i := range 5 { // each in a commit, so in a block, of its own
		publish(t, s, &inbox.Envelope{Topic: "all", QoS: 1, Payload: fmt.Appendf(nil, "all %d", i)})
		publish(t, s, &inbox.Envelope{Topic: "one/a", QoS: 1})
	}
	eventually(t, s, map[string]int{"i": 15, "m": 5, "c": 0})

	ids, entries := a.take(t, 10)
	a.finish(append(ids[:2:2], ids[3:]...)...) // all but the third, which is for both
	eventually(t, s, map[string]int{"i": 1 + 5, "m": 5, "c": 4})

	bIDs, _ := b.take(t, 5)
	b.finish(bIDs...)
	eventually(t, s, map[string]int{"i": 1, "m": 1, "c": 1})
	if got, err := a.Read(background, []inbox.Position{entries[2].Position}); err != nil || len(got) != 1 || string(got[0].Envelope.Payload) != "all 1" {
		t.Fatalf("the open entry reads as %v, %v", got, err)
	}

	a.finish(ids[2])
	eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0})
}

// What a process has not swept, the next one does, whether the session comes back
// or not, and though nobody saves a state.
func TestSweepWhatWasLeft(t *testing.T) {
	dir := t.TempDir()
	s := sweepingEvery(t, dir, time.Hour)
	all := map[inbox.Receiver]*receiver{}
	for _, n := range []inbox.Receiver{"away", "back", "half"} {
		all[n] = connect(t, s, n, inbox.ExpiryNever, "all", "to/"+string(n))
		for range 3 {
			publish(t, s, &inbox.Envelope{Topic: "to/" + string(n), QoS: 1})
		}
		ids, _ := all[n].take(t, 3)
		if n == "half" {
			ids = ids[:1]
		}
		all[n].finish(ids...)
	}
	publish(t, s, &inbox.Envelope{Topic: "all", QoS: 1})
	for _, r := range all {
		leave(t, r, inbox.ExpiryNever)
	}
	if n := s.Keys()["i"]; n != 12 {
		t.Fatalf("%d blocks before the restart, want 12: the test would test nothing", n)
	}
	s = again(t, s, dir)
	defer s.Close()
	back, _, err := s.Open(background, "back", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, s, map[string]int{"i": 2 + 3, "m": 1})
	leave(t, back, inbox.ExpiryNever)
}

// A retained message is one key, whatever was there before; its copies are
// swept like anything else.
func TestSweepRetained(t *testing.T) {
	s := sweeping(t, t.TempDir())
	defer s.Close()
	for i := range 10 {
		publish(t, s, &inbox.Envelope{Topic: "a", QoS: 1, Retain: true, Payload: []byte{1}})
		publish(t, s, &inbox.Envelope{Topic: fmt.Sprint("b/", i), QoS: 1, Retain: true, Payload: []byte{1}})
	}
	eventually(t, s, map[string]int{"R": 11, "i": 0, "m": 0})
	a := connect(t, s, "a", inbox.ExpiryNever, "#")
	ids, _ := a.take(t, 11)
	a.finish(ids...)
	eventually(t, s, map[string]int{"R": 11, "i": 0, "m": 0})
	if _, err := a.Unsubscribe(background, "#"); err != nil {
		t.Fatal(err)
	}
	publish(t, s, &inbox.Envelope{Topic: "a", Retain: true})
	eventually(t, s, map[string]int{"R": 10, "i": 0, "m": 0})
}

// A packet id that was completed leaves nothing.
func TestSweepReceived(t *testing.T) {
	s := sweeping(t, t.TempDir())
	defer s.Close()
	a := connect(t, s, "a", inbox.ExpiryNever)
	for id := range uint16(10) {
		done := make(chan error, 2)
		a.Publish(background, id+1, &inbox.Envelope{Topic: "all", QoS: 2}, func(_ inbox.Receipt, err error) { done <- err })
		a.Publish(background, id+1, &inbox.Envelope{Topic: "all", QoS: 2}, func(_ inbox.Receipt, err error) { done <- err })
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, s, map[string]int{"x": 10})
	for id := range uint16(10) {
		done := make(chan error, 1)
		a.Complete(id+1, func(_ bool, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, s, map[string]int{"x": 0})
}

// A session that ends with its link is in memory, but for what its receiver is
// too slow to take: that is on disk while it waits, and gone afterwards.
func TestSlowReceiverInMemory(t *testing.T) {
	s := sweeping(t, t.TempDir())
	defer s.Close()
	a := connect(t, s, "a", inbox.ExpiryAtOnce, "#")
	commits := s.Stats().Commits
	for range 100 {
		publish(t, s, &inbox.Envelope{Topic: "t", QoS: 1, Payload: make([]byte, 100)})
	}
	if n := s.Stats().Commits - commits; n > 1 { // one for the lease of sequence numbers
		t.Errorf("%d syncs for a receiver in memory", n)
	}
	const many = 5000
	var wg sync.WaitGroup
	wg.Add(many)
	for range many {
		s.Append(background, &inbox.Envelope{Topic: "t", QoS: 1, Payload: make([]byte, 100)}, func(inbox.Receipt, error) { wg.Done() })
	}
	wg.Wait()
	if s.Keys()["i"] == 0 {
		t.Fatal("nothing on disk: the test would test nothing")
	}
	last := inbox.Position(0)
	for n := 0; n < many+100; {
		ids, entries := a.take(t, min(500, many+100-n))
		for _, e := range entries {
			if e.Position <= last {
				t.Fatalf("position %d after %d", e.Position, last)
			}
			last = e.Position
		}
		n += len(ids)
		a.finish(ids...)
	}
	eventually(t, s, map[string]int{"i": 0, "m": 0, "p": 1})
	if err := a.Close(background, inbox.Ending{Expiry: inbox.ExpiryAtOnce}); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, map[string]int{"i": 0, "p": 0, "S": 0, "k": 0})
}

// Whatever is finished in whatever order over whatever restarts: nothing
// finished comes again once its state was saved, nothing open is lost, and in
// the end nothing is left.
func TestSweepRandomly(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	s := sweeping(t, dir)
	names := []inbox.Receiver{"a", "b", "c"}
	rs := map[inbox.Receiver]*receiver{}
	for _, n := range names {
		rs[n] = connect(t, s, n, inbox.ExpiryNever, "all", "to/"+string(n))
	}
	want := map[inbox.Receiver]int{} // entries not finished
	for range 300 {
		n := names[rng.IntN(len(names))]
		r := rs[n]
		switch rng.IntN(10) {
		case 0: // restart
			for _, n := range names {
				if err := rs[n].Close(background, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			verifyClean(t, dir)
			s = sweeping(t, dir)
			for _, n := range names {
				rs[n] = connect(t, s, n, inbox.ExpiryNever)
			}
		case 1, 2, 3:
			publish(t, s, &inbox.Envelope{Topic: "all", QoS: 1})
			for _, n := range names {
				want[n]++
			}
		case 4, 5:
			publish(t, s, &inbox.Envelope{Topic: "to/" + string(n), QoS: 1})
			want[n]++
		default:
			if unsent := want[n] - r.window.Len(); unsent > 0 {
				r.take(t, 1+rng.IntN(unsent))
			}
			for _, d := range r.state().Open {
				if rng.IntN(2) == 0 {
					r.finish(d.PacketID)
					want[n]--
				}
			}
		}
	}
	for _, n := range names {
		r := rs[n]
		if unsent := want[n] - r.window.Len(); unsent > 0 {
			r.take(t, unsent)
		}
		var at []inbox.Position
		for _, d := range r.state().Open {
			at = append(at, d.Position)
		}
		if got, err := r.Read(background, at); err != nil || len(got) != want[n] {
			t.Fatalf("%s: %d open entries can be read, want %d (%v)", n, len(got), want[n], err)
		}
		for _, d := range r.state().Open {
			r.finish(d.PacketID)
		}
	}
	eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0, "p": 0})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if sum := verifyClean(t, dir); sum.Sessions != len(names) || sum.Bodies != 0 || sum.Waiting != 0 {
		t.Errorf("in the end there is %+v", sum)
	}
}

// The disk comes back after a drain, by itself, when the store is idle.
func TestSpaceComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 60 MB")
	}
	dir := t.TempDir()
	s := sweepingEvery(t, dir, 500*time.Millisecond) // idle is a round without a commit
	defer s.Close()
	a := connect(t, s, "a", inbox.ExpiryNever, "#")
	const messages, size = 3000, 20_000
	var wg sync.WaitGroup
	wg.Add(messages)
	for range messages {
		s.Append(background, &inbox.Envelope{Topic: "t", QoS: 1, Payload: make([]byte, size)}, func(inbox.Receipt, error) { wg.Done() })
	}
	wg.Wait()
	for deadline := time.Now().Add(badger.Patience); tableBytes(t, dir) < messages*size/2; {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes in tables: the test would test nothing", tableBytes(t, dir))
		}
		<-time.After(20 * time.Millisecond) // they are written in the background
	}
	full := tableBytes(t, dir)
	for n := 0; n < messages; {
		ids, _ := a.take(t, min(500, messages-n))
		a.finish(ids...)
		n += len(ids)
	}
	for deadline := time.Now().Add(badger.Patience); tableBytes(t, dir) > full/10; {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes in tables after the drain, %d before", tableBytes(t, dir), full)
		}
		<-time.After(20 * time.Millisecond) // the store is to be idle
	}
}

func tableBytes(t testing.TB, dir string) (n int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if st, err := os.Stat(name); err == nil {
			n += st.Size()
		}
	}
	return n
}
