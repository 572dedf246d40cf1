package badger_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// A stream has references where messages go elsewhere too, and then one block may
// stand for more than is decoded at once. Members read everything all the same, each
// from where it is.
func TestStreamOfLargeReferences(t *testing.T) {
	const messages, size = 100, 40 << 10
	s, err := badger.Open(badger.Options{Dir: t.TempDir(), Reserve: -1, Retention: -1, Pull: []string{"to/all"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	for receiver, filter := range map[inbox.Receiver]string{"a": "to/all", "b": "to/all", "other": "to/#"} {
		in, _, err := s.Open(ctx, receiver, inbox.OpenOptions{Expiry: inbox.ExpiryNever})
		if err != nil {
			t.Fatal(err)
		}
		subscribeTo(t, in, inbox.Subscription{Filter: filter, QoS: 1})
		if err := in.Close(ctx, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
			t.Fatal(err)
		}
	}
	stored := make(chan error, messages)
	for i := range messages {
		payload := append(make([]byte, size), fmt.Sprint(i)...)
		s.Append(ctx, &inbox.Envelope{Topic: "to/all", Payload: payload, QoS: 1}, func(_ inbox.Receipt, err error) { stored <- err })
	}
	for range messages {
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
	}
	for receiver, page := range map[inbox.Receiver]int{"a": 7, "b": 200, "other": 200} {
		in, _, err := s.Open(ctx, receiver, inbox.OpenOptions{Expiry: inbox.ExpiryNever})
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < messages; {
			entries, err := in.Next(context.WithoutCancel(ctx), page, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if got := string(e.Envelope.Payload[size:]); got != fmt.Sprint(n) {
					t.Fatalf("%s: message %s, want %d", receiver, got, n)
				}
				n++
			}
		}
	}
}
