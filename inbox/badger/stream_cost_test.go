package badger

import (
	"context"
	"fmt"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// store publishes in a topic and waits.
func store(t *testing.T, s *Store, topic string) inbox.Receipt {
	t.Helper()
	return storeOne(t, s, &inbox.Envelope{Topic: topic, Payload: make([]byte, 256), QoS: 1})
}

// What is written for a message does not depend on how many read it.
func TestTenThousandMembersCostWhatTenDo(t *testing.T) {
	members := fleet{expiry: inbox.ExpiryNever, filter: func(inbox.Receiver) string { return "all" }, stream: true}
	for _, n := range []int{10, 10_000} {
		dir := t.TempDir()
		members.fill(t, dir, n)
		s, err := Open(members.options(dir))
		if err != nil {
			t.Fatal(err)
		}
		const messages = 50
		for range messages {
			if r := store(t, s, "all"); r.Matched != n {
				t.Errorf("%d receivers, want %d", r.Matched, n)
			}
		}
		if keys := s.Keys(); keys["i"] != messages || keys["m"] != 0 {
			t.Errorf("%d members: %d messages are %d blocks and %d bodies", n, messages, keys["i"], keys["m"])
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A member of many groups reads those alone that have something for it.
func TestSilentGroupsAreNotRead(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), Reserve: -1, Pull: []string{"#"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	in, _, err := s.Open(ctx, "a", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := in.Subscribe(ctx, inbox.Subscription{Filter: fmt.Sprint("g/", i), QoS: 1}); err != nil {
			t.Fatal(err)
		}
	}
	before := s.sequence
	store(t, s, "g/7")
	last := store(t, s, "g/8").ID.Sequence
	h := in.(*handle)
	h.mu.Lock()
	from := h.readingLocked()
	h.mu.Unlock()
	if err := s.view(func(txn *badger.Txn) error {
		m := s.merge(txn, from, part{after: before, upTo: last})
		defer m.close()
		if len(m.tracks) != 1+2 {
			t.Errorf("%d places are looked at, want its own inbox and two groups", len(m.tracks))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
