package badger_test

import (
	"testing"

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
