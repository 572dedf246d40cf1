package badger

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A message that was deleted may be handed over while Next looks for what was: it is not
// returned.
func TestDeletedIsHandedOverMeanwhile(t *testing.T) {
	o := everythingOptions(t.TempDir())
	o.History = []inbox.Kept{{Filter: "#"}}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	h := enter(t, s, "a", nil, sub("a", 1)).Inbox.(*handle)
	appendAll(t, s, &inbox.Envelope{Topic: "a", QoS: 1}, &inbox.Envelope{Topic: "a", QoS: 1})
	h.mu.Lock()
	late := h.ready[1]
	h.ready = h.ready[:1] // it is on its way
	h.mu.Unlock()
	if err := s.Delete(t.Context(), late.Envelope.ID, ""); err != nil {
		t.Fatal(err)
	}

	s.reading.Lock() // Next comes no further than to what it is about to read
	next := make(chan []inbox.Entry, 1)
	go func() {
		page, err := h.Next(t.Context(), 10, 1<<20)
		if err != nil {
			t.Error(err)
		}
		next <- page
	}()
	eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.deletions > 0
	})
	h.take(late, false)
	s.reading.Unlock()
	if page := <-next; len(page) != 1 || page[0].Position >= late.Position {
		t.Errorf("got %v, which is at %d", page, late.Position)
	}
	closeSound(t, s, o.Dir)
}
