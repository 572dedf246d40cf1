package badger_test

import (
	"slices"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// inStreams runs a test in a store that keeps everything in streams, and in one
// that has none.
func inStreams(t *testing.T, test func(t *testing.T, o badger.Options)) {
	for name, o := range map[string]badger.Options{"pull": {Pull: []string{"#"}}, "push": {Push: []string{"#"}}} {
		t.Run(name, func(t *testing.T) {
			o.Dir = t.TempDir()
			test(t, o)
		})
	}
}

// reopen closes a store and opens it again.
func reopen(t *testing.T, s *badger.Store, o badger.Options) *badger.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openKeeping(t, o)
}

// A filter is left, subscribed to again, and then another is left that brought the
// message too: it was never without a subscription, and is delivered, after a
// restart as well.
func TestNeverWithoutASubscription(t *testing.T) {
	inStreams(t, func(t *testing.T, o badger.Options) {
		s := openKeeping(t, o)
		a := connect(t, s, "a", inbox.ExpiryNever, "g/a", "g/+")
		publish(t, s, &inbox.Envelope{Topic: "g/a", QoS: 1, Payload: []byte("kept")})
		unsubscribe(t, a, "g/a")
		publish(t, s, &inbox.Envelope{Topic: "g/b", QoS: 1, Payload: []byte("later")})
		subscribeTo(t, a, inbox.Subscription{Filter: "g/a", QoS: 1})
		unsubscribe(t, a, "g/+") // gives up g/b, which g/a does not match
		leave(t, a, inbox.ExpiryNever)
		s = reopen(t, s, o)
		defer func() { s.Close() }()
		connect(t, s, "a", inbox.ExpiryNever, "drain/end")
		if got := texts(drain(t, s, "a")); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("got %q", got)
		}
	})
}

func subscribeTo(t testing.TB, in inbox.Inbox, subs ...inbox.Subscription) {
	t.Helper()
	if _, err := in.Subscribe(background, subs...); err != nil {
		t.Fatal(err)
	}
}

func unsubscribe(t testing.TB, in inbox.Inbox, filters ...string) {
	t.Helper()
	if _, err := in.Unsubscribe(background, filters...); err != nil {
		t.Fatal(err)
	}
}
