package hooks_test

import (
	"fmt"
	"slices"
	"testing"
)

// numbers are the payloads from first to last.
func numbers(first, last int) []string {
	var all []string
	for i := first; i <= last; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func wantPayloads(t testing.TB, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("received %v, want %v", got, want)
	}
}

// Field case 002: a backlog comes in the order of storing.
func TestBacklogComesInOrder(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a/#", 1)
	publisher := b.dial(clean("publisher"))
	var last uint16
	for _, payload := range numbers(1, 1000) {
		last = publisher.Publish("a/b", payload, 1)
	}
	publisher.WaitAck(last)

	receiver := b.dial(v3("receiver"))
	if !receiver.SessionPresent {
		t.Error("no session present")
	}
	wantPayloads(t, receiver.Payloads(1000), numbers(1, 1000))
}
