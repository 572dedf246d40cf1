package pull

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func nothing() {}

// N pages take N+1 requests, and everything is read then.
func TestWalkAcknowledgesAsItGoes(t *testing.T) {
	for _, order := range []string{"", NewestFirst} { // the first is the default
		store := &shelf{}
		store.put(10_000, "ben", "chat/1")
		s := New(store, Options{})
		before := store.unread()
		ids, pages := walk(t, s, phone, PullRequest{Order: order}, func() {
			if left := before - store.unread(); left > 0 && left%200 != 0 {
				t.Fatalf("%d were acknowledged", left)
			}
		})
		expected := idsOf(store.entries)
		if order == NewestFirst {
			slices.Reverse(expected)
		}
		if pages != 51 || !slices.Equal(ids, expected) || store.unread() != 0 {
			t.Errorf("order %q: %d messages in %d requests, %d are unread", order, len(ids), pages, store.unread())
		}
	}
}

func TestPeekingAcknowledgesNothing(t *testing.T) {
	store := &shelf{}
	store.put(10, "ben", "chat/1")
	s := New(store, Options{})
	no := false
	if ids, _ := walk(t, s, phone, PullRequest{Limit: 3, Ack: &no}, nothing); len(ids) != 10 || store.unread() != 10 || len(store.acked) != 0 {
		t.Errorf("%d messages, %d are unread, acknowledged: %v", len(ids), store.unread(), store.acked)
	}
}

// A page is acknowledged by its own cursor, and no other message is, whatever else was walked over.
func TestCursorAcknowledgesItsPageAlone(t *testing.T) {
	for _, order := range []string{OldestFirst, NewestFirst} {
		store := &shelf{}
		store.put(12, "ben", "chat/1")
		s := New(store, Options{})
		no := false
		ask := func(cursor string, ack *bool) MessagesAnswer {
			r := PullRequest{Limit: 3, Order: order, Ack: ack, After: cursor}
			if order == NewestFirst {
				r.After, r.Before = "", cursor
			}
			return mustPull(t, s, phone, r)
		}
		second := ask(ask("", nil).Next, &no)
		third := ask(second.Next, nil)
		var read []string
		for _, e := range store.entries {
			if store.read[e.Position] {
				read = append(read, e.Envelope.ID.String())
			}
		}
		var expected []string
		for _, m := range second.Messages {
			expected = append(expected, m.ID)
		}
		slices.Sort(expected)
		if !slices.Equal(read, expected) {
			t.Errorf("%s: %v are read, expected the second page, %v", order, read, expected)
		}
		if ack, err := s.Ack(t.Context(), phone, AckRequest{Through: third.Next}); err != nil || ack.Acknowledged != 6 || store.unread() != 3 {
			t.Errorf("%s: through the third page: %+v, %v, %d are unread", order, ack, err, store.unread())
		}
	}
}

// An answer that was lost is asked for again with the same cursor.
func TestSameCursorGivesSamePage(t *testing.T) {
	for _, order := range []string{OldestFirst, NewestFirst} {
		store := &shelf{}
		store.put(10, "ben", "chat/1")
		s := New(store, Options{})
		first := mustPull(t, s, phone, PullRequest{Limit: 4, Order: order})
		r := PullRequest{Limit: 4, Order: order, After: first.Next}
		if order == NewestFirst {
			r.After, r.Before = "", first.Next
		}
		second := mustPull(t, s, phone, r)
		store.put(1, "ben", "chat/1")
		again := mustPull(t, s, phone, r)
		if len(again.Messages) != 4 || !slices.EqualFunc(second.Messages, again.Messages, func(a, b Message) bool { return a.ID == b.ID }) {
			t.Errorf("%s: got %d messages, expected the %d of before", order, len(again.Messages), len(second.Messages))
		}
		if again.Next != second.Next {
			t.Errorf("%s: the cursor is another one", order)
		}
		if store.unread() != 7 {
			t.Errorf("%s: %d are unread, expected all but the first page", order, store.unread())
		}
	}
}

// Cases 135 and 138.
func TestMessagesThatComeMeanwhile(t *testing.T) {
	for _, order := range []string{OldestFirst, NewestFirst} {
		for _, ack := range []bool{true, false} {
			store := &shelf{}
			store.put(500, "ben", "chat/1")
			before := idsOf(store.entries)
			s := New(store, Options{})
			ids, _ := walk(t, s, phone, PullRequest{Limit: 20, Order: order, Ack: &ack}, func() {
				if len(store.entries) < 600 {
					store.put(1, "ben", "chat/1")
				}
			})
			expected := idsOf(store.entries)
			if order == NewestFirst {
				expected = before
				slices.Reverse(expected)
			}
			if !slices.Equal(ids, expected) {
				t.Errorf("%s, ack %t: got %d messages, expected %d", order, ack, len(ids), len(expected))
			}
			if missing := len(store.entries) - len(expected); ack && store.unread() != missing {
				t.Errorf("%s: %d are unread, expected the %d that came meanwhile", order, store.unread(), missing)
			}
		}
	}
}

func TestSelectionIsWalkedAlone(t *testing.T) {
	store := &shelf{}
	for range 30 {
		store.put(1, "ben", "chat/1")
		store.put(1, "eve", "chat/2")
		store.put(1, "ben", "news")
	}
	s := New(store, Options{})
	ids, _ := walk(t, s, phone, PullRequest{Limit: 7, Sender: "ben", Topic: "chat/+"}, nothing)
	if len(ids) != 30 || store.unread() != 60 {
		t.Errorf("got %d messages, %d are unread", len(ids), store.unread())
	}
}

// Case 139.
func TestBoundsOfPull(t *testing.T) {
	store := &shelf{}
	store.put(10, "ben", "chat/1") // at 3, 6, 9, and so on
	other := store.put(1, "eve", "chat/2").Envelope.ID.String()
	store.put(10, "ben", "chat/1")
	s := New(store, Options{})
	id := func(n int) string { return store.entries[n].Envelope.ID.String() }
	position := (&cursor{kind: ofPosition, inbox: inboxHash(7, "phone"), at: store.entries[4].Position}).String()
	begin := (&cursor{kind: ofPosition, inbox: inboxHash(7, "phone")}).String()
	no := false
	for _, c := range []struct {
		name          string
		request       PullRequest
		first, last   int // of the entries; -1 for none
		more          bool
		expectedCount int
	}{
		{"newest", PullRequest{Order: NewestFirst, Limit: 20}, 20, 1, true, 20},
		{"before an id", PullRequest{Order: NewestFirst, Before: id(5), Limit: 2}, 4, 3, true, 2},
		{"after an id", PullRequest{After: id(5), Limit: 2}, 6, 7, true, 2},
		{"before an id, oldest first", PullRequest{Before: id(5)}, 0, 4, false, 5},
		{"after an id, newest first", PullRequest{Order: NewestFirst, After: id(18)}, 20, 19, false, 2},
		{"between", PullRequest{After: id(2), Before: id(6)}, 3, 5, false, 3},
		{"between the wrong way round", PullRequest{After: id(6), Before: id(2)}, -1, -1, false, 0},
		{"after a message of others", PullRequest{Sender: "ben", After: other, Limit: 1}, 11, 11, true, 1},
		{"limit zero", PullRequest{Limit: -1}, 0, 0, true, 1}, // as it is read from a request
		{"limit huge", PullRequest{Limit: 1 << 30}, 0, 20, false, 21},
		{"bytes zero", PullRequest{MaxBytes: -1}, 0, 0, true, 1},
		{"after the beginning", PullRequest{After: "0", Limit: 1}, 0, 0, true, 1},
		{"before the beginning", PullRequest{Before: "0"}, -1, -1, false, 0},
		{"after a time", PullRequest{After: "2026-01-01T00:00:00Z"}, -1, -1, false, 0},
		{"before a time", PullRequest{Before: "2026-01-01T00:00:00+01:00", Limit: 1000}, 0, 20, false, 21},
		{"before 1970", PullRequest{Before: "1960-01-01T00:00:00Z"}, -1, -1, false, 0},
		{"after a position", PullRequest{After: position, Limit: 1}, 5, 5, true, 1},
		{"up to a position", PullRequest{Before: position, Order: NewestFirst, Limit: 1}, 4, 4, true, 1},
		{"after no position", PullRequest{After: begin, Limit: 1}, 0, 0, true, 1},
		{"up to no position", PullRequest{Before: begin}, -1, -1, false, 0},
	} {
		c.request.Ack = &no
		answer := mustPull(t, s, phone, c.request)
		if len(answer.Messages) != c.expectedCount || answer.More != c.more {
			t.Errorf("%s: got %d messages, more %t", c.name, len(answer.Messages), answer.More)
			continue
		}
		if n := len(answer.Messages); n > 0 && (answer.Messages[0].ID != id(c.first) || answer.Messages[n-1].ID != id(c.last)) {
			t.Errorf("%s: got %s to %s, expected %s to %s", c.name, answer.Messages[0].ID, answer.Messages[n-1].ID, id(c.first), id(c.last))
		}
		if (answer.Next != "") != (c.expectedCount > 0) {
			t.Errorf("%s: the cursor is %q", c.name, answer.Next)
		}
	}
	_, err := s.Pull(t.Context(), phone, PullRequest{After: "0000000000000003-00000008"})
	wantCode(t, err, CodeUnknownID)
}

func TestBadPulls(t *testing.T) {
	store := &shelf{}
	store.put(10, "ben", "chat/1")
	s := New(store, Options{})
	next := func(r PullRequest) string {
		r.Limit = 3
		return mustPull(t, s, phone, r).Next
	}
	oldest, newest := next(PullRequest{}), next(PullRequest{Order: NewestFirst})
	history, err := s.History(t.Context(), phone, HistoryRequest{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	foreign := (&cursor{kind: ofPull, inbox: inboxHash(7, "tablet"), selection: selectionHash(inbox.Selection{}), at: 9}).String()
	for _, c := range []struct {
		name    string
		request PullRequest
		code    string
	}{
		{"order", PullRequest{Order: "newest"}, CodeBadRequest},
		{"filter", PullRequest{Topic: "a/#/b"}, CodeBadRequest},
		{"shared filter", PullRequest{Topic: "$share/g/a"}, CodeBadRequest},
		{"place", PullRequest{After: "yesterday"}, CodeBadRequest},
		{"damaged", PullRequest{After: oldest[:len(oldest)-2]}, CodeBadCursor},
		{"of another inbox", PullRequest{After: foreign}, CodeBadCursor},
		{"of a sender", PullRequest{After: next(PullRequest{Sender: "ben"})}, CodeBadCursor},
		{"of a topic", PullRequest{After: next(PullRequest{Topic: "chat/1"})}, CodeBadCursor},
		{"of everything", PullRequest{After: oldest, Sender: "ben"}, CodeBadCursor},
		{"of the other order", PullRequest{After: newest}, CodeBadCursor},
		{"of the other order, too", PullRequest{Order: NewestFirst, Before: oldest}, CodeBadCursor},
		{"in the wrong place", PullRequest{Before: oldest}, CodeBadCursor},
		{"in the wrong place, too", PullRequest{Order: NewestFirst, After: newest}, CodeBadCursor},
		{"of history", PullRequest{Order: NewestFirst, Before: history.Next}, CodeBadCursor},
	} {
		_, err := s.Pull(t.Context(), phone, c.request)
		if err == nil || ErrorOf(err).Code != c.code {
			t.Errorf("%s: got %v, expected %s", c.name, err, c.code)
		}
	}
	if store.unread() != 10 {
		t.Errorf("%d are unread, although nothing was asked for well", store.unread())
	}
	_, err = s.Pull(t.Context(), Asker{Receiver: "nobody"}, PullRequest{})
	wantCode(t, err, CodeNoSession)
	_, err = s.Pull(t.Context(), Asker{Receiver: "phone", MaxAnswer: MinAnswer - 1}, PullRequest{})
	wantCode(t, err, CodeTooLarge)
}

// The page after a failure is the one that was asked for.
func TestFailedAcknowledgementGivesNoPage(t *testing.T) {
	store := &shelf{}
	store.put(10, "ben", "chat/1")
	s := New(store, Options{})
	next := mustPull(t, s, phone, PullRequest{Limit: 3}).Next
	store.failure = inbox.ErrFull
	_, err := s.Pull(t.Context(), phone, PullRequest{After: next})
	wantCode(t, err, CodeFull)
}

func TestRewindIsAskedForByAnOwnPlace(t *testing.T) {
	store := &shelf{}
	store.put(10, "ben", "chat/1")
	for _, e := range store.entries[:5] {
		store.read[e.Position] = true
	}
	if ids, _ := walk(t, New(store, Options{}), phone, PullRequest{After: "0", Limit: 3}, nothing); len(ids) != 5 {
		t.Errorf("got %d messages, though nothing is kept that was acknowledged", len(ids))
	}
	s := New(store, Options{Rewind: true})
	if ids, _ := walk(t, s, phone, PullRequest{After: "0", Limit: 3}, nothing); len(ids) != 10 {
		t.Errorf("got %d messages, expected all", len(ids))
	}
	if ids, _ := walk(t, s, phone, PullRequest{After: "0", Limit: 3, Order: NewestFirst}, nothing); len(ids) != 10 {
		t.Errorf("got %d messages newest first, expected all", len(ids))
	}
	if ids, _ := walk(t, s, phone, PullRequest{Limit: 3}, nothing); len(ids) != 0 {
		t.Errorf("got %d messages, expected what is unread: none", len(ids))
	}
}

// A store may give short and empty pages; the walk goes on.
func TestShortPagesAreFilledUp(t *testing.T) {
	for _, order := range []string{OldestFirst, NewestFirst} {
		store := &shelf{examine: 3}
		for range 50 {
			store.put(9, "ben", "chat/1")
			store.put(1, "eve", "chat/1")
		}
		s := New(store, Options{})
		answer := mustPull(t, s, phone, PullRequest{Order: order, Limit: 20})
		if len(answer.Messages) != 20 || !answer.More {
			t.Errorf("%s: got %d messages of 20", order, len(answer.Messages))
		}
		asked := len(store.asked)
		answer = mustPull(t, s, phone, PullRequest{Order: order, Limit: 20, Sender: "nobody"})
		if len(answer.Messages) != 0 || !answer.More || answer.Next == "" || len(store.asked)-asked != maxReads {
			t.Errorf("%s: got %d messages after reading %d pages, more %t", order, len(answer.Messages), len(store.asked)-asked, answer.More)
		}
		if ids, _ := walk(t, s, phone, PullRequest{Order: order, Limit: 20, Sender: "eve"}, nothing); len(ids) != 50 || store.unread() != 450 {
			t.Errorf("%s: got %d messages, %d are unread", order, len(ids), store.unread())
		}
	}
}

// A walk that began at an own place, with pages that are empty, acknowledges what it has
// given, and nothing that is before that.
func TestWalkBeginsWhereItWasAsked(t *testing.T) {
	for _, order := range []string{OldestFirst, NewestFirst} {
		store := &shelf{examine: 3}
		store.put(2, "ben", "chat/1")
		store.put(50, "eve", "chat/2")
		middle := store.put(1, "eve", "chat/2").Envelope.ID.String()
		store.put(50, "eve", "chat/2")
		store.put(2, "ben", "chat/1")
		s := New(store, Options{})
		r, next := PullRequest{Order: order, Sender: "ben"}, (*string)(nil)
		if next = &r.After; order == NewestFirst {
			next = &r.Before
		}
		*next = middle
		answer := mustPull(t, s, phone, r)
		if len(answer.Messages) != 0 || !answer.More {
			t.Fatalf("%s: got %d messages, more %t", order, len(answer.Messages), answer.More)
		}
		ack, err := s.Ack(t.Context(), phone, AckRequest{Sender: "ben", Through: answer.Next})
		if err != nil || ack.Acknowledged != 0 || len(store.acked) != 0 {
			t.Errorf("%s: through a walk that gave nothing: %+v, %v, %+v", order, ack, err, store.acked)
		}
		for answer.Next != "" && len(answer.Messages) == 0 {
			*next = answer.Next
			answer = mustPull(t, s, phone, r)
		}
		ack, err = s.Ack(t.Context(), phone, AckRequest{Sender: "ben", Through: answer.Next})
		if err != nil || len(answer.Messages) != 2 || ack.Acknowledged != 2 {
			t.Errorf("%s: through a walk that gave %d messages: %+v, %v", order, len(answer.Messages), ack, err)
		}
	}
}

// A message is not passed over because one before it is lost while its page is read, and
// neither is what was lost before that.
func TestLossWhilePageIsRead(t *testing.T) {
	for _, order := range []string{OldestFirst, NewestFirst} {
		store := &shelf{}
		store.put(30, "ben", "chat/1")
		for i, e := range store.entries {
			if i%3 == 2 || i == 7 {
				store.lost[e.Position] = inbox.GapExpired
			}
		}
		store.meanwhile = func() {
			if len(store.asked) == 2 { // asks what was lost among the first
				store.lost[store.entries[1].Position] = inbox.GapExpired
				store.lost[store.entries[28].Position] = inbox.GapExpired
			}
		}
		a := phone
		a.MaxAnswer = 1500
		given, told := map[string]bool{}, 0
		for r := (PullRequest{Order: order}); ; {
			answer := mustPull(t, New(store, Options{}), a, r)
			for _, m := range answer.Messages {
				given[m.ID] = true
			}
			for _, g := range answer.Gaps {
				told += int(g.Count)
			}
			if answer.Next == "" {
				break
			}
			if r.After = answer.Next; order == NewestFirst {
				r.After, r.Before = "", answer.Next
			}
		}
		for _, e := range store.entries {
			if id := e.Envelope.ID.String(); given[id] != (store.lost[e.Position] == "") {
				t.Errorf("%s: %s was lost: %q, and given: %v", order, id, store.lost[e.Position], given[id])
			}
		}
		if told != len(store.lost) {
			t.Errorf("%s: %d lost messages were told, expected %d", order, told, len(store.lost))
		}
	}
}

func TestGapsAreToldOnce(t *testing.T) {
	for _, order := range []string{OldestFirst, NewestFirst} {
		for _, limit := range []int{1, 2, 3, 7, 100} {
			store := &shelf{}
			store.put(40, "ben", "chat/1")
			lost := 0
			for i, e := range store.entries {
				if i%4 < 2 || i > 35 {
					store.lost[e.Position] = inbox.GapExpired
					lost++
				}
			}
			for _, maxAnswer := range []int{0, 1500} {
				s, count, got := New(store, Options{}), int64(0), 0
				no := false
				r, a := PullRequest{Order: order, Limit: limit, Ack: &no}, phone
				a.MaxAnswer = maxAnswer
				for {
					answer := mustPull(t, s, a, r)
					got += len(answer.Messages)
					for _, g := range answer.Gaps {
						count += g.Count
					}
					if answer.Next == "" {
						break
					}
					r.After = answer.Next
					if order == NewestFirst {
						r.After, r.Before = "", answer.Next
					}
				}
				if count != int64(lost) || got != 40-lost {
					t.Errorf("%s, limit %d, answers of %d: %d messages and %d lost, expected %d and %d", order, limit, maxAnswer, got, count, 40-lost, lost)
				}
			}
		}
	}
}

func TestGapsAreAddedUpWhenTheyAreMany(t *testing.T) {
	store := &shelf{}
	store.put(100, "ben", "chat/1")
	for i, e := range store.entries {
		switch i % 4 {
		case 0:
			store.lost[e.Position] = inbox.GapExpired
		case 1:
			store.lost[e.Position] = inbox.GapLimit
		}
	}
	answer := mustPull(t, New(store, Options{}), phone, PullRequest{})
	expected := []Gap{{shelfTime, shelfTime, 25, "expired"}, {shelfTime, shelfTime, 25, "limit"}}
	if !slices.Equal(answer.Gaps, expected) {
		t.Errorf("got %v", answer.Gaps)
	}
}

func TestRemainingIsWhatFollowsTheAnswer(t *testing.T) {
	for _, a := range []Asker{phone, {Receiver: "phone", MaxAnswer: 2000}} {
		store := &shelf{}
		store.put(50, "ben", "chat/1")
		s := New(store, Options{})
		r := PullRequest{Limit: 20}
		for given := 0; ; {
			answer := mustPull(t, s, a, r)
			given += len(answer.Messages)
			bytes := int64(0)
			for _, e := range store.entries[given:] {
				bytes += contentSize(e.Envelope)
			}
			if *answer.Remaining != (Count{Messages: int64(50 - given), Bytes: bytes}) || answer.More != (given < 50) {
				t.Fatalf("after %d messages, %+v remain, more %t", given, *answer.Remaining, answer.More)
			}
			if answer.Next == "" {
				break
			}
			r.After = answer.Next
		}
	}
}

func TestAnswersFit(t *testing.T) {
	store := &shelf{}
	store.put(100, "ben", "chat/1")
	for i, e := range store.entries {
		e.Envelope.Payload = bytes.Repeat([]byte(`"`), i*37%5000)
		if i%3 == 0 {
			e.Envelope.Payload = bytes.Repeat([]byte{0xff}, i*37%3000)
		}
	}
	store.entries[50].Envelope.Topic = strings.Repeat("t", 60_000)
	store.entries[60].Envelope.UserProperties = slices.Repeat([]inbox.UserProperty{{Key: "k"}}, 1000)
	s := New(store, Options{})
	for _, request := range []string{"{}", "\x80"} {
		for _, maxAnswer := range []int{MinAnswer, 1500, 4096, 10_000, 70_000, 1 << 20} {
			a := phone
			a.MaxAnswer = maxAnswer
			ids, request := []string{}, []byte(request)
			enc := encodingOf("", request)
			for {
				b, contentType := s.Do(t.Context(), a, OpPull, request, "")
				if len(b) > maxAnswer || contentType != enc.contentType() {
					t.Fatalf("got %d bytes of %s, at most %d are taken", len(b), contentType, maxAnswer)
				}
				var answer MessagesAnswer
				if err := decode(enc, b, &answer); err != nil {
					t.Fatal(err)
				}
				fill := 0
				for _, m := range answer.Messages {
					ids = append(ids, m.ID)
					fill += len(m.Content())
					e := store.entries[len(ids)-1].Envelope
					if !m.Truncated && (!bytes.Equal(m.Content(), e.Payload) || m.Topic != e.Topic) {
						t.Fatalf("message %d is not whole, and does not say so", len(ids))
					}
					if m.Truncated && (m.PayloadBytes != len(e.Payload) || len(answer.Messages) > 1 && len(m.Topic) > 0 && m.Topic != e.Topic) {
						t.Fatalf("message %d is %+v", len(ids), m)
					}
				}
				if answer.Next == "" {
					break
				}
				no := false
				request, _ = enc.encode(PullRequest{After: answer.Next, Ack: &no})
			}
			if !slices.Equal(ids, idsOf(store.entries)) {
				t.Errorf("answers of %d bytes: got %d messages", maxAnswer, len(ids))
			}
		}
	}
	store.asked = nil
	mustPull(t, s, phone, PullRequest{MaxBytes: 100_000})
	if q := store.asked[0]; len(store.asked) > 1 || q.MaxBytes > 100_000+300*DefaultLimit {
		t.Errorf("for 100,000 bytes the store is asked %d times for up to %d", len(store.asked), q.MaxBytes)
	}
}

// What fits is given: pages are not smaller than they have to be.
func TestPagesAreFull(t *testing.T) {
	store := &shelf{}
	store.put(1000, "ben", "chat/1")
	s := New(store, Options{})
	for _, maxAnswer := range []int{4096, 20_000} {
		a := phone
		a.MaxAnswer = maxAnswer
		b, _ := s.Do(t.Context(), a, OpPull, []byte(`{"limit":1000}`), "")
		if len(b) < maxAnswer/2 {
			t.Errorf("%d bytes of %d are used", len(b), maxAnswer)
		}
	}
	b, _ := s.Do(t.Context(), phone, OpPull, []byte(`{"limit":1000,"max_bytes":10000}`), "")
	if len(b) < 5000 || len(b) > 10_000+skeletonSize {
		t.Errorf("%d bytes where 10000 were asked for", len(b))
	}
}
