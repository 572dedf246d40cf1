package badger_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// sayBefore publishes a message that was taken so long ago.
func sayBefore(t testing.TB, s inbox.Store, ago time.Duration, topic, text string) {
	t.Helper()
	publish(t, s, &inbox.Envelope{Topic: topic, QoS: 1, Payload: []byte(text), Time: time.Now().Add(-ago).UnixMilli()})
}

// What is too old goes, with its body, unless somebody else has it: then with the last.
func TestHistoryGoesInTime(t *testing.T) {
	o := badger.Options{Dir: t.TempDir(), History: []inbox.Kept{
		{Filter: "a/#", Keep: time.Hour.Milliseconds()}, {Filter: "a/long", Keep: 24 * time.Hour.Milliseconds()},
	}}
	s := verifying(t, o)
	defer func() { s.Close() }()
	leave(t, connect(t, s, "away", inbox.ExpiryNever, "a/b"), inbox.ExpiryNever)
	sayBefore(t, s, 3*time.Hour, "a/b", "old, and unread")
	sayBefore(t, s, 3*time.Hour, "a/c", "old")
	sayBefore(t, s, 2*time.Hour, "a/long", "old, but kept longer")
	sayBefore(t, s, -10*365*24*time.Hour, "a/c", "by a clock that was wrong")
	sayBefore(t, s, 2*time.Hour, "a/c", "old too")
	sayBefore(t, s, time.Minute, "a/b", "new")
	sayBefore(t, s, 2*time.Hour, "a/c", "behind what is new")
	// Of a/#: what is new, and what is behind; of a/long one; of the inbox two.
	eventually(t, s.Store, map[string]int{"i": 2 + 1 + 2, "m": 4})
	for range 2 {
		wantHistory(t, s, "#", "a/long: old, but kept longer", "a/b: new")
		wantHistory(t, s, "a/long", "a/long: old, but kept longer")
		wantHistory(t, s, "a/+", "a/long: old, but kept longer", "a/b: new")
		s.Close()
		s = verifying(t, o)
	}
	finishEverything(t, s, "away")
	eventually(t, s.Store, map[string]int{"i": 3, "m": 3})
}

// What is too much goes, to the message, though they were stored together.
func TestHistoryGoesBySize(t *testing.T) {
	const n, left = 100, 37
	size := (&inbox.Envelope{Topic: "a", Payload: []byte("000"), Client: "c"}).Size()
	o := badger.Options{Dir: t.TempDir(), History: []inbox.Kept{{Filter: "a", Bytes: int64(left*size + size/2)}}}
	s := verifying(t, o)
	defer func() { s.Close() }()
	leave(t, connect(t, s, "away", inbox.ExpiryNever, "a"), inbox.ExpiryNever)
	release := gated(t, s)
	var want []string
	var wg sync.WaitGroup
	for i := range n {
		text := fmt.Sprintf("%03d", i)
		want = append(want, "a: "+text)
		wg.Add(1)
		s.Append(background, &inbox.Envelope{Topic: "a", QoS: 1, Payload: []byte(text), Client: "c"}, func(inbox.Receipt, error) { wg.Done() })
	}
	release()
	wg.Wait()
	s.Eventually(t, func() bool { return len(history(t, s, "a")) <= left }, func() string { return fmt.Sprint(history(t, s, "a")) })
	for range 2 {
		wantHistory(t, s, "a", want[n-left:]...)
		wantHistory(t, s, "#", want[n-left:]...)
		s.Close()
		s = verifying(t, o)
	}
	ids := walk(t, s, inbox.Query{Max: 1, MaxBytes: 1})
	gone := ids[0].Envelope.ID
	gone.Sequence--
	if err := s.Delete(background, gone, ""); err == nil {
		t.Error("what is gone can be deleted")
	}
	say(t, s, "a", "100")
	s.Eventually(t, func() bool { return len(history(t, s, "a")) <= left }, func() string { return fmt.Sprint(history(t, s, "a")) })
	wantHistory(t, s, "a", append(slices.Clone(want[n-left+1:]), "a: 100")...)
	s.Close()
	o.History[0].Bytes = 1
	s = verifying(t, o)
	eventually(t, s.Store, map[string]int{"i": 2, "m": n + 1}) // the inbox has them all
	finishEverything(t, s, "away")
	eventually(t, s.Store, map[string]int{"i": 0, "m": 0, "c": 0})
}

// A body that nobody but receivers has any more is bound to go when they are given
// up, though these are not counted down by then.
func TestBodiesThatHistoryLetsGo(t *testing.T) {
	o := badger.Options{
		Dir: t.TempDir(), Reserve: -1, Retention: 5 * time.Hour, Log: quiet(),
		History: []inbox.Kept{{Filter: "a/#", Keep: time.Hour.Milliseconds()}, {Filter: "a/long", Keep: 30 * time.Hour.Milliseconds()}},
	}
	s, err := badger.OpenSweeping(o, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	leave(t, connect(t, s, "away", inbox.ExpiryNever, "#"), inbox.ExpiryNever)
	sayBefore(t, s, 2*time.Hour, "a/b", "unread")
	sayBefore(t, s, 2*time.Hour, "a/long", "kept by another")
	sayBefore(t, s, 0, "a/b", "new")
	eventually(t, s, map[string]int{"i": 3 + 1 + 1, "m": 3})
	want := uint64(time.Now().Add(o.Retention).Unix()) + badger.ExpiryMargin
	got := s.Expiries('m')
	if len(got) != 3 || got[0] < want-60 || got[0] > want+60 || got[1] != 0 || got[2] != 0 {
		t.Errorf("bodies go at %d, want the first at %d and the others not", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := badger.Verify(background, o, func(f badger.Fault) { t.Error(f) }); err != nil {
		t.Error(err)
	}
}

// The disk comes back from what a history has let go of.
func TestSpaceComesBackFromHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 30 MB")
	}
	o := badger.Options{Dir: t.TempDir(), Reserve: -1, Retention: -1, Log: quiet(), History: []inbox.Kept{{Filter: "#"}}}
	s, err := badger.OpenSweeping(o, 300*time.Millisecond) // idle is a round without a commit
	if err != nil {
		t.Fatal(err)
	}
	const messages, size = 2000, 15_000
	done := make(chan error, messages)
	for range messages {
		s.Append(background, &inbox.Envelope{Topic: "t", QoS: 1, Payload: make([]byte, size)}, func(_ inbox.Receipt, err error) { done <- err })
	}
	for range messages {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // what is still in memory goes to tables
		t.Fatal(err)
	}
	full := tableBytes(t, o.Dir)
	if full < messages*size/2 {
		t.Fatalf("%d bytes in tables: the test would test nothing", full)
	}
	o.History[0].Bytes = 1000
	if s, err = badger.OpenSweeping(o, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for deadline := time.Now().Add(badger.Patience); tableBytes(t, o.Dir) > full/10; {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes in tables in the end, %d before", tableBytes(t, o.Dir), full)
		}
		<-time.After(20 * time.Millisecond) // the store is to be idle
	}
}
