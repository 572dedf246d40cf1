package pull

import (
	"slices"
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
	position := (&cursor{kind: ofPosition, inbox: inboxHash("phone"), at: 9}).String()
	for _, before := range []string{position, mustPull(t, s, phone, PullRequest{Order: NewestFirst, Limit: 3}).Next} {
		_, err = s.History(t.Context(), phone, HistoryRequest{Before: before})
		wantCode(t, err, CodeBadCursor)
	}
	_, err = s.History(t.Context(), phone, HistoryRequest{Before: answer.Next, Topic: "chat/1"})
	wantCode(t, err, CodeBadCursor)
	_, err = s.Ack(t.Context(), phone, AckRequest{Through: answer.Next})
	wantCode(t, err, CodeBadCursor)
}

func TestDeleting(t *testing.T) {
	store := &shelf{}
	own := store.put(1, "ann", "chat/1").Envelope.ID.String()
	other := store.put(1, "ben", "chat/1").Envelope.ID.String()
	nameless := store.put(1, "", "chat/1")
	nameless.Envelope.Client = "ann" // a client id that is the name of a user
	s := New(store, Options{})
	operator := Asker{Receiver: "x", Operator: true}
	for _, c := range []struct {
		name     string
		asker    Asker
		request  DeleteRequest
		code     string
		expected string // what the store was asked for
	}{
		{"one's own", phone, DeleteRequest{ID: own}, "", own + " by ann"},
		{"of another", phone, DeleteRequest{ID: other}, CodeForbidden, ""},
		{"of a client without a user", phone, DeleteRequest{ID: nameless.Envelope.ID.String()}, CodeForbidden, ""},
		{"as the client without its user", Asker{Receiver: "ann-client"}, DeleteRequest{ID: own}, CodeForbidden, ""},
		{"as a client without a user", Asker{Receiver: "ann"}, DeleteRequest{ID: own}, CodeForbidden, ""},
		{"one's own without a user", Asker{Receiver: "ann"}, DeleteRequest{ID: nameless.Envelope.ID.String()}, "", nameless.Envelope.ID.String() + " by ann"},
		{"unknown", phone, DeleteRequest{ID: "0000000000000004-00000007"}, CodeUnknownID, ""},
		{"of another store", phone, DeleteRequest{ID: own[:17] + "00000008"}, CodeUnknownID, ""},
		{"the very first", phone, DeleteRequest{ID: "0000000000000000-00000007"}, CodeUnknownID, ""},
		{"the very last", phone, DeleteRequest{ID: "ffffffffffffffff-00000007"}, CodeUnknownID, ""},
		{"no id", phone, DeleteRequest{ID: "x"}, CodeUnknownID, ""},
		{"nothing", phone, DeleteRequest{}, CodeBadRequest, ""},
		{"both", operator, DeleteRequest{ID: own, Sender: "ann"}, CodeBadRequest, ""},
		{"all of oneself", phone, DeleteRequest{Sender: "ann"}, CodeForbidden, ""},
		{"an operator", operator, DeleteRequest{ID: other}, "", other + " by "},
		{"an operator, all", operator, DeleteRequest{Sender: "ann"}, "", "all of ann"},
	} {
		store.deleted = nil
		answer, err := s.Delete(t.Context(), c.asker, c.request)
		var expected []string
		switch {
		case c.code != "":
			wantCode(t, err, c.code)
		case err != nil || answer.Deleted == 0:
			t.Errorf("%s: %+v, %v", c.name, answer, err)
		}
		if c.expected != "" {
			expected = []string{c.expected}
		}
		if !slices.Equal(store.deleted, expected) {
			t.Errorf("%s: deleted %q, expected %q", c.name, store.deleted, expected)
		}
	}
}

// What was deleted is left in history as a mark, and is not unread any more.
func TestDeletedMessageIsGone(t *testing.T) {
	h := newHouse(t, keepAll)
	h.join("phone", "chat/#")
	sent := h.send(3, "ben", "chat/1", 0)
	h.delete(sent[1])
	h.delete(sent[1])
	if n := h.unread(phone); n != 2 {
		t.Errorf("%d are unread, expected 2", n)
	}
	got := h.walkHistory(phone, HistoryRequest{}, nothing)
	if len(got) != 3 || !got[1].Deleted || got[1].Payload != "" || got[1].Sender != "ben" {
		t.Errorf("history has %+v", got)
	}
	if answer, err := h.Delete(t.Context(), Asker{Operator: true}, DeleteRequest{Sender: "ben"}); err != nil || answer.Deleted != 2 {
		t.Errorf("erased %+v, %v, expected 2", answer, err)
	}
	for _, m := range h.walkHistory(phone, HistoryRequest{}, nothing) {
		if !m.Deleted || m.Sender != "" || m.Client != "" {
			t.Errorf("history has %+v", m)
		}
	}
}

func TestModes(t *testing.T) {
	h := newHouse(t, keepAll)
	h.join("phone", "chat/#")
	for _, mode := range []string{ModePull, ModePush} {
		answer, err := h.Mode(t.Context(), phone, ModeRequest{Mode: mode})
		if err != nil || answer.Mode != mode {
			t.Errorf("%s: %+v, %v", mode, answer, err)
		}
		for session, err := range h.store.Sessions(t.Context()) {
			if err != nil || session.Mode != modes[mode] {
				t.Errorf("%s: the session has the mode %d, %v", mode, session.Mode, err)
			}
		}
	}
	for _, mode := range []string{"", "Pull"} {
		_, err := h.Mode(t.Context(), phone, ModeRequest{Mode: mode})
		wantCode(t, err, CodeBadRequest)
	}
	_, err := h.Mode(t.Context(), Asker{Receiver: "nobody"}, ModeRequest{Mode: ModePull})
	wantCode(t, err, CodeNoSession)
}
