package pull

import (
	"slices"
	"testing"
)

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

// Who may not read a topic cannot find out by deleting what there is.
func TestDeletingTellsNothing(t *testing.T) {
	store := &shelf{}
	readable := store.put(1, "ben", "open/1").Envelope.ID.String()
	hidden := store.put(1, "ben", "secret/1").Envelope.ID.String()
	own := store.put(1, "ann", "secret/1").Envelope.ID.String()
	s := New(store, Options{Rules: readers{"ann": "open/"}})
	_, unknown := s.Delete(t.Context(), phone, DeleteRequest{ID: "0000000000000004-00000007"})
	wantCode(t, unknown, CodeUnknownID)
	if _, err := s.Delete(t.Context(), phone, DeleteRequest{ID: hidden}); err == nil || *ErrorOf(err) != *ErrorOf(unknown) {
		t.Errorf("one that may not be read: %v, and one that is not there: %v", err, unknown)
	}
	_, err := s.Delete(t.Context(), phone, DeleteRequest{ID: readable})
	wantCode(t, err, CodeForbidden)
	if answer, err := s.Delete(t.Context(), phone, DeleteRequest{ID: own}); err != nil || answer.Deleted != 1 {
		t.Errorf("one's own: %+v, %v", answer, err)
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
