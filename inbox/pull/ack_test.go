package pull

import (
	"slices"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestAcknowledgements(t *testing.T) {
	store := &shelf{}
	store.put(4, "ben", "chat/1") // at 3 to 12
	store.put(2, "eve", "chat/2")
	s := New(store, Options{})
	id := func(n int) string { return store.entries[n].Envelope.ID.String() }
	no := false
	next := func(r PullRequest) string {
		r.Limit, r.Ack = 2, &no
		return mustPull(t, s, phone, r).Next
	}
	counted := (&cursor{kind: ofPosition, inbox: inboxHash(7, "phone"), at: 12}).String()
	nothingYet := (&cursor{kind: ofPosition, inbox: inboxHash(7, "phone")}).String()
	foreign := (&cursor{kind: ofPosition, inbox: inboxHash(7, "tablet"), at: 12}).String()
	ids := func(n ...int) (ids []inbox.MessageID) {
		for _, i := range n {
			ids = append(ids, store.entries[i].Envelope.ID)
		}
		return ids
	}
	all := inbox.Selection{}
	ben, chat := inbox.Selection{Sender: "ben"}, inbox.Selection{Filter: "chat/+"}

	for _, c := range []struct {
		name     string
		request  AckRequest
		expected inbox.Acknowledgement
	}{
		{"ids", AckRequest{IDs: []string{id(1), id(4)}}, inbox.Acknowledgement{IDs: ids(1, 4)}},
		{"sender", AckRequest{Sender: "ben"}, inbox.Acknowledgement{Selection: ben}},
		{"topic", AckRequest{Topic: "chat/+"}, inbox.Acknowledgement{Selection: chat}},
		{"all", AckRequest{All: true}, inbox.Acknowledgement{}},
		{"a page", AckRequest{Through: next(PullRequest{})}, inbox.Acknowledgement{Selection: all, Through: 6}},
		{"a page of a sender", AckRequest{Through: next(PullRequest{Sender: "ben"}), Sender: "ben"}, inbox.Acknowledgement{Selection: ben, Through: 6}},
		{"a later page", AckRequest{Through: next(PullRequest{After: next(PullRequest{})})}, inbox.Acknowledgement{Through: 12}},
		{"a page behind an id", AckRequest{Through: next(PullRequest{After: id(1)})}, inbox.Acknowledgement{After: 8, Through: 12}},
		{"a page backwards", AckRequest{Through: next(PullRequest{Order: NewestFirst})}, inbox.Acknowledgement{After: 14, Through: 18}},
		{
			"a later page backwards", AckRequest{Through: next(PullRequest{Order: NewestFirst, Before: next(PullRequest{Order: NewestFirst})})},
			inbox.Acknowledgement{After: 8, Through: 18},
		},
		{"an id", AckRequest{Through: id(2)}, inbox.Acknowledgement{ThroughID: ids(2)[0]}},
		{"all through an id", AckRequest{Through: id(2), All: true}, inbox.Acknowledgement{ThroughID: ids(2)[0]}},
		{"a sender through an id", AckRequest{Through: id(2), Sender: "ben"}, inbox.Acknowledgement{Selection: ben, ThroughID: ids(2)[0]}},
		{"what was counted", AckRequest{Through: counted}, inbox.Acknowledgement{Through: 12}},
		{"all that was counted", AckRequest{Through: counted, All: true}, inbox.Acknowledgement{Through: 12}},
		{"what was counted of a sender", AckRequest{Through: counted, Sender: "ben"}, inbox.Acknowledgement{Selection: ben, Through: 12}},
	} {
		store.acked = nil
		clear(store.read)
		_, err := s.Ack(t.Context(), phone, c.request)
		if err != nil || len(store.acked) != 1 {
			t.Errorf("%s: %v, acknowledged: %v", c.name, err, store.acked)
			continue
		}
		if got := store.acked[0]; !slices.Equal(got.IDs, c.expected.IDs) || got.Selection != c.expected.Selection ||
			got.After != c.expected.After || got.Through != c.expected.Through || got.ThroughID != c.expected.ThroughID {
			t.Errorf("%s: got %+v, expected %+v", c.name, got, c.expected)
		}
	}

	for name, r := range map[string]AckRequest{
		"no ids":                   {IDs: []string{}},
		"nothing that was counted": {Through: nothingYet},
		"nothing of a sender":      {Through: nothingYet, Sender: "ben"},
	} {
		store.acked = nil
		if answer, err := s.Ack(t.Context(), phone, r); err != nil || answer.Acknowledged != 0 || len(store.acked) != 0 {
			t.Errorf("%s: %+v, %v, acknowledged: %+v", name, answer, err, store.acked)
		}
	}

	store.acked = nil
	clear(store.read)
	for _, c := range []struct {
		name    string
		request AckRequest
		code    string
	}{
		{"nothing", AckRequest{}, CodeBadRequest},
		{"ids and a sender", AckRequest{IDs: []string{id(1)}, Sender: "ben"}, CodeBadRequest},
		{"ids and all", AckRequest{IDs: []string{id(1)}, All: true}, CodeBadRequest},
		{"no ids and through", AckRequest{IDs: []string{}, Through: counted}, CodeBadRequest},
		{"all and a sender", AckRequest{All: true, Sender: "ben"}, CodeBadRequest},
		{"a filter", AckRequest{Topic: "a/#/b"}, CodeBadRequest},
		{"no id", AckRequest{IDs: []string{id(1), "x"}}, CodeUnknownID},
		{"too many ids", AckRequest{IDs: slices.Repeat([]string{id(1)}, MaxLimit+1)}, CodeTooLarge},
		{"ids and an id", AckRequest{IDs: []string{id(1)}, Through: id(1)}, CodeBadRequest},
		{"through no id", AckRequest{Through: "x"}, CodeBadRequest},
		{"through the id of nothing", AckRequest{Through: inbox.MessageID{}.String()}, CodeBadRequest},
		{"through a time", AckRequest{Through: "2026-03-01T09:30:00.000Z"}, CodeBadRequest},
		{"another inbox", AckRequest{Through: foreign}, CodeBadCursor},
		{"another selection", AckRequest{Through: next(PullRequest{Sender: "ben"})}, CodeBadCursor},
		{"another selection, too", AckRequest{Through: next(PullRequest{}), Sender: "ben"}, CodeBadCursor},
	} {
		_, err := s.Ack(t.Context(), phone, c.request)
		if err == nil || ErrorOf(err).Code != c.code {
			t.Errorf("%s: got %v, expected %s", c.name, err, c.code)
		}
	}
	if len(store.acked) != 0 {
		t.Errorf("acknowledged: %+v", store.acked)
	}
}

// What came after the summary is not marked as read with what it has counted.
func TestMarkReadWhatWasCounted(t *testing.T) {
	h := newHouse(t, keepAll)
	h.join("phone", "chat/#")
	first, err := h.Summary(t.Context(), phone, SummaryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h.send(3, "ben", "chat/1", 0)
	h.send(2, "eve", "chat/1", 0)
	if n := h.ack(phone, AckRequest{All: true, Through: first.Position}); n != 0 {
		t.Errorf("%d were acknowledged, and nothing was counted", n)
	}
	second, err := h.Summary(t.Context(), phone, SummaryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h.send(4, "ben", "chat/1", 0)
	if n := h.ack(phone, AckRequest{Sender: "ben", Through: second.Position}); n != 3 {
		t.Errorf("%d were acknowledged, expected 3", n)
	}
	no := false
	if ids, _ := walk(t, h.Service, phone, PullRequest{Before: second.Position, Ack: &no}, nothing); len(ids) != 2 {
		t.Errorf("%d are unread up to there, expected 2", len(ids))
	}
	if ids, _ := walk(t, h.Service, phone, PullRequest{After: second.Position}, nothing); len(ids) != 4 {
		t.Errorf("%d came since, expected 4", len(ids))
	}
}
