package mqtttest

import (
	"testing"
	"time"
)

// pollInterval is how often Eventually looks.
const pollInterval = 5 * time.Millisecond

// Eventually waits until cond is true, and fails the test with what was wanted
// if it is not within [Deadline].
func Eventually(t testing.TB, cond func() bool, what string) {
	t.Helper()
	EventuallyWithin(t, Deadline, cond, what)
}

// EventuallyWithin is Eventually with another deadline.
func EventuallyWithin(t testing.TB, d time.Duration, cond func() bool, what string) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", d, what)
		}
	}
}
