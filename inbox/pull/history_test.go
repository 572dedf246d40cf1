package pull

import (
	"strings"
	"testing"
)

// readers are who may read what begins with a name.
type readers map[string]string

func (r readers) MayRead(a Asker, topic string) bool {
	begin, ok := r[a.User]
	return ok && strings.HasPrefix(topic, begin)
}

func TestHistoryShowsWhatOneMayRead(t *testing.T) {
	store := &shelf{}
	for range 20 {
		store.put(1, "ben", "open/1")
		store.put(3, "ben", "secret/1")
		store.put(1, "ann", "secret/1")
	}
	s := New(store, Options{Rules: readers{"ann": "open/", "ben": ""}})
	count := func(a Asker, r HistoryRequest) int {
		h := &house{t: t, Service: s}
		r.Limit = 7
		return len(h.walkHistory(a, r, nothing))
	}
	ann, ben, operator := phone, Asker{Receiver: "tablet", User: "ben"}, Asker{Operator: true}
	for _, c := range []struct {
		name     string
		asker    Asker
		request  HistoryRequest
		expected int
	}{
		{"ann, all", ann, HistoryRequest{}, 40},
		{"ann, oldest first", ann, HistoryRequest{Order: OldestFirst}, 40},
		{"ann, what she may read", ann, HistoryRequest{Topic: "open/1"}, 20},
		{"ann, what she may not read", ann, HistoryRequest{Topic: "secret/1"}, 20},
		{"ann, what she may not read, by filter", ann, HistoryRequest{Topic: "secret/+"}, 20},
		{"ann, her own", ann, HistoryRequest{Topic: "secret/1", Sender: "ann"}, 20},
		{"ann, of ben", ann, HistoryRequest{Sender: "ben"}, 20},
		{"ben, all", ben, HistoryRequest{}, 100},
		{"operator", operator, HistoryRequest{}, 100},
		{"a client without a user", Asker{Receiver: "ann"}, HistoryRequest{}, 0},
		{"nobody", Asker{Receiver: "x", User: "eve"}, HistoryRequest{}, 0},
	} {
		if got := count(c.asker, c.request); got != c.expected {
			t.Errorf("%s: got %d messages, expected %d", c.name, got, c.expected)
		}
	}
	store.asked = nil
	count(ann, HistoryRequest{Topic: "secret/1"})
	if q := store.asked[0]; q.Sender != "ann" {
		t.Errorf("the store is asked for what may not be shown: %+v", q)
	}
	_, err := s.History(t.Context(), ann, HistoryRequest{Topic: "secret/1", Sender: "ben"})
	wantCode(t, err, CodeForbidden)
}

// A page of which nothing may be shown is not read for ever.
func TestHistoryReadsWithinBounds(t *testing.T) {
	store := &shelf{}
	store.put(1, "ben", "open/1")
	store.put(3000, "ben", "secret/1")
	s := New(store, Options{Rules: readers{"ann": "open/"}})
	r := HistoryRequest{}
	answer, err := s.History(t.Context(), phone, r)
	if err != nil || len(answer.Messages) != 0 || !answer.More || answer.Next == "" || len(store.asked) != maxReads {
		t.Fatalf("%d messages, more %t, %v, after reading %d pages", len(answer.Messages), answer.More, err, len(store.asked))
	}
	for pages := 1; answer.More; pages++ {
		r.Before = answer.Next
		if answer, err = s.History(t.Context(), phone, r); err != nil || pages > 10 {
			t.Fatalf("%d pages, %v", pages, err)
		}
	}
	if len(answer.Messages) != 1 {
		t.Errorf("the last page has %d messages", len(answer.Messages))
	}
}

// Only pages of history go on with a cursor of history, on whichever device.
func TestCursorsOfHistory(t *testing.T) {
	store := &shelf{}
	store.put(10, "ben", "chat/1")
	s := New(store, Options{})
	answer, err := s.History(t.Context(), phone, HistoryRequest{Limit: 4})
	if err != nil {
		t.Fatal(err)
	}
	tablet := Asker{Receiver: "tablet", User: "ann"}
	answer, err = s.History(t.Context(), tablet, HistoryRequest{Limit: 4, Before: answer.Next})
	if err != nil || len(answer.Messages) != 4 || answer.Messages[0].ID != store.entries[5].Envelope.ID.String() {
		t.Errorf("another device goes on with %+v, %v", answer, err)
	}
	if len(store.acked) != 0 {
		t.Error("history has acknowledged something")
	}
	position := (&cursor{kind: ofPosition, inbox: inboxHash(7, "phone"), at: 9}).String()
	for _, before := range []string{position, mustPull(t, s, phone, PullRequest{Order: NewestFirst, Limit: 3}).Next} {
		_, err = s.History(t.Context(), phone, HistoryRequest{Before: before})
		wantCode(t, err, CodeBadCursor)
	}
	_, err = s.History(t.Context(), phone, HistoryRequest{Before: answer.Next, Topic: "chat/1"})
	wantCode(t, err, CodeBadCursor)
	_, err = s.Ack(t.Context(), phone, AckRequest{Through: answer.Next})
	wantCode(t, err, CodeBadCursor)
}
