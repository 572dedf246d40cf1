package badger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// Case 155: the process ends somewhere inside a commit that takes several transactions.
// Then history and inboxes have the same messages, and when the publisher sends again what
// it has no answer to, everybody has each of them once.
func TestHistoryAndInboxesAfterACrash(t *testing.T) {
	const n = 2
	message := func(i int) *inbox.Envelope {
		return &inbox.Envelope{
			Topic: "a/b", QoS: 2, Payload: fmt.Append(nil, i), Client: "publisher",
			UserProperties: []inbox.UserProperty{{Key: inbox.PropertyMessageID, Value: fmt.Sprint("name ", i)}},
		}
	}
	unnamed := message(n)
	unnamed.UserProperties = nil // it comes under a packet id
	dir := t.TempDir()
	o := streamsOf(dir, "a/#", "a/#", "a/b")
	s := openKeeping(t, o)
	for name, filter := range map[inbox.Receiver]string{"one": "a/b", "other": "a/b", "member": "a/#"} {
		c := connect(t, s, name, inbox.ExpiryNever)
		subscribeTo(t, c, inbox.Subscription{Filter: filter, QoS: 2})
		leave(t, c, inbox.ExpiryNever)
	}
	publisher := connect(t, s, "publisher", inbox.ExpiryNever)
	var all []*inbox.Envelope
	for i := range n {
		all = append(all, message(i))
	}
	var crashed []string
	err := s.PublishInPieces(publisher.Inbox, 7, append(all, unnamed), func() {
		crashed = append(crashed, t.TempDir())
		if err := copyDir(dir, crashed[len(crashed)-1]); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verifyClean(t, dir)

	seen := map[int]bool{}
	for i, dir := range crashed {
		o.Dir = dir
		s := openKeeping(t, o)
		seen[s.Keys()["m"]] = true
		at := history(t, s, "#")
		if got := texts(walk(t, s, inbox.Query{Max: 2, MaxBytes: 1 << 20, NewestFirst: true})); len(got) != len(at) {
			t.Errorf("crash %d: history has %q forwards, and %q backwards", i, at, got)
		}
		for _, name := range []inbox.Receiver{"one", "other", "member"} {
			if page, err := s.Pull(background, name, inbox.Query{Max: 10, MaxBytes: 1 << 20}); err != nil || len(page.Entries) != len(at) {
				t.Errorf("crash %d: %s has %d messages, %v, and history %q", i, name, len(page.Entries), err, at)
			}
		}
		for i := range n {
			publish(t, s, message(i))
		}
		publisher := connect(t, s, "publisher", inbox.ExpiryNever)
		done := make(chan error, 1)
		again := *unnamed
		publisher.Publish(background, 7, &again, func(_ inbox.Receipt, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := []string{"0", "1", "2"}
		for what, got := range map[string][]string{
			"history": texts(walk(t, s, inbox.Query{Max: 3, MaxBytes: 1 << 20})),
			"topic":   texts(walk(t, s, inbox.Query{Selection: inbox.Selection{Filter: "a/b"}, Max: 3, MaxBytes: 1 << 20})),
		} {
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("crash %d: in the end %s has %q", i, what, got)
			}
		}
		for _, name := range []inbox.Receiver{"one", "other", "member"} {
			_, entries := connect(t, s, name, inbox.ExpiryNever).take(t, len(want))
			if got := texts(entries); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("crash %d: %s gets %q", i, name, got)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := badger.Verify(background, o, func(f badger.Fault) { t.Errorf("crash %d: %v", i, f) }); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != n+2 {
		t.Errorf("bodies were there as %v: the test would test nothing", seen)
	}
}
