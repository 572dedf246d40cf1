package badger

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A receiver may become the member of a stream while it starts again: what is in there
// from before is not for it.
func TestJoinsWhileItStartsAgain(t *testing.T) {
	o := everythingOptions(t.TempDir())
	o.StreamFrom, o.Pull, o.Rewind, o.sweepEvery = 8, nil, time.Hour, time.Hour // nobody else queues anything
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var members []*actor
	for i := range o.StreamFrom {
		members = append(members, enter(t, s, inbox.Receiver(fmt.Sprint("m", i)), nil, sub("g", 1)))
	}
	appendAll(t, s, &inbox.Envelope{Topic: "g", QoS: 1, Payload: []byte("old")})
	for _, m := range members[1:] { // the first one still reads what is in the stream, which is closed
		if _, err := m.Unsubscribe(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
	}
	a := enter(t, s, "a", nil, sub("g", 1))
	appendAll(t, s, &inbox.Envelope{Topic: "g", QoS: 1, Payload: []byte("new")})
	h, err := run(t.Context(), s, "open", func(g *commitGroup) (*handle, error) {
		return g.open("a", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: a.state, From: &inbox.Bound{}})
	})
	if err != nil {
		t.Fatal(err)
	}

	release := s.hold()
	var all sync.WaitGroup
	for i, m := range members[1:] { // so that there are as many as open the stream
		all.Go(func() {
			if _, err := m.Subscribe(t.Context(), sub("g", 1)); err != nil {
				t.Error(err)
			}
		})
		eventually(t, func() bool { return s.queued() > i })
	}
	all.Go(func() {
		if err := h.restore(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() bool { return s.queued() >= o.StreamFrom })
	release()
	all.Wait()
	if len(h.allSources()) == 0 {
		t.Fatal("it is no member: the test tests nothing")
	}
	page, err := s.Pull(t.Context(), "a", inbox.Query{Max: 3, MaxBytes: 1 << 20})
	if err != nil || len(page.Entries) != 1 || string(page.Entries[0].Envelope.Payload) != "new" {
		t.Errorf("unread: %v, %v, want what is new", page.Entries, err)
	}
	closeSound(t, s, o.Dir)
}
