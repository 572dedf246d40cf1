package badger_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// verifyClean fails the test unless everything in a store that was closed is right:
// nothing missing, nothing forgotten.
func verifyClean(t testing.TB, dir string) badger.Summary {
	t.Helper()
	sum, err := badger.Verify(background, badger.Options{Dir: dir, Retention: -1, Log: quiet()}, func(f badger.Fault) { t.Error(f) })
	if err != nil {
		t.Error(err)
	}
	if sum.Torn != 0 || sum.Expired != 0 {
		t.Errorf("messages are missing: %+v", sum)
	}
	return sum
}

// A stream is swept when its readers have acknowledged what is in it, though nothing
// of that is in the state of one that is connected, and reads on.
func TestVerifyAcknowledgedInStream(t *testing.T) {
	dir := t.TempDir()
	s := sweepingStreams(t, dir)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { s.Close() }()
	a := connect(t, s, "a", inbox.ExpiryNever, "g")
	away(t, s, "b", "g")
	say(t, s, "g", "one", "two")
	for _, r := range []inbox.Receiver{"a", "b"} {
		acknowledge(t, s, r, inbox.Acknowledgement{}, 2)
	}
	// What was on its way to a when it was acknowledged is passed over by Next.
	reading.Go(func() {
		if entries, err := a.Next(background, 10, 1<<20); !errors.Is(err, inbox.ErrClosed) {
			t.Errorf("got %d messages, %v; want to wait until the store is closed", len(entries), err)
		}
	})
	eventually(t, s, map[string]int{"i": 0, "m": 0})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verifyClean(t, dir)
}
