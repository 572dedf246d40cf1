package badger_test

import (
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
// of that is in the state of one that is connected.
func TestVerifyAcknowledgedInStream(t *testing.T) {
	dir := t.TempDir()
	s := sweepingStreams(t, dir)
	defer func() { s.Close() }()
	connect(t, s, "a", inbox.ExpiryNever, "g")
	away(t, s, "b", "g")
	say(t, s, "g", "one", "two")
	for _, r := range []inbox.Receiver{"a", "b"} {
		acknowledge(t, s, r, inbox.Acknowledgement{}, 2)
	}
	eventually(t, s, map[string]int{"i": 0, "m": 0})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verifyClean(t, dir)
}
