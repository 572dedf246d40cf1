package pull

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
)

// Cases from the field, by their numbers.

// 135: a walk with full pages, while messages go on arriving, leaves no hole.
func TestFullPagesLeaveNoHole(t *testing.T) {
	h := newHouse(t, keepAll)
	h.join("phone", "chat/#")
	sent := h.send(1, "ben", "chat/1", 0)
	sent = append(sent, h.send(1200, "ben", "chat/1", 0)...)
	more := func() { sent = append(sent, h.send(30, "ben", "chat/1", 0)...) }
	no := false
	live := func() {
		if len(sent) < 1500 {
			more()
		}
	}
	if ids, _ := walk(t, h.Service, phone, PullRequest{After: sent[0], Limit: 500, Ack: &no}, live); !slices.Equal(ids, sent[1:]) {
		t.Errorf("got %d messages, expected %d", len(ids), len(sent)-1)
	}
	got := h.walkHistory(phone, HistoryRequest{After: sent[0], Limit: 500, Order: OldestFirst}, live)
	if !slices.Equal(messageIDs(got), sent[1:]) {
		t.Errorf("history has %d messages, expected %d", len(got), len(sent)-1)
	}
}

// 137: equal times neither skip nor repeat, and a time from a wrong clock is a place like any other.
func TestEqualTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands still
		h := newHouse(t, keepAll)
		h.join("phone", "chat/#")
		sent := h.send(100, "ben", "chat/1", 0)
		no := false
		backwards := slices.Clone(sent)
		slices.Reverse(backwards)
		for _, c := range []struct {
			order    string
			expected []string
		}{{OldestFirst, sent}, {NewestFirst, backwards}} {
			if ids, _ := walk(t, h.Service, phone, PullRequest{Limit: 7, Order: c.order, Ack: &no}, nothing); !slices.Equal(ids, c.expected) {
				t.Errorf("%s: pull gives %d messages", c.order, len(ids))
			}
			if got := h.walkHistory(phone, HistoryRequest{Limit: 7, Order: c.order}, nothing); !slices.Equal(messageIDs(got), c.expected) {
				t.Errorf("%s: history gives %d messages", c.order, len(got))
			}
		}
		since := func(d time.Duration) int {
			ids, _ := walk(t, h.Service, phone, PullRequest{After: time.Now().Add(d).Format(time.RFC3339Nano), Limit: 7, Ack: &no}, nothing)
			return len(ids)
		}
		if slow, fast := since(-time.Hour), since(time.Hour); slow != 100 || fast != 0 {
			t.Errorf("since an hour ago there are %d messages, and since in an hour %d", slow, fast)
		}
	})
}

// 138: a walk through history, while messages come, are deleted and expire.
func TestHistoryChangesDuringWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, keepAll)
		sent := h.send(300, "ben", "chat/1", 0)
		sent = append(sent, h.send(1, "ben", "chat/1", time.Minute)...)
		sent = append(sent, h.send(199, "ben", "chat/1", 0)...)
		pages := 0
		got := h.walkHistory(phone, HistoryRequest{Topic: "chat/1"}, func() {
			pages++
			h.send(1, "ben", "chat/1", 0)
			if pages == 3 {
				h.delete(sent[50])
				time.Sleep(2 * time.Minute)
			}
		})
		slices.Reverse(got)
		expected := slices.Delete(slices.Clone(sent), 300, 301) // the one that has expired
		if !slices.Equal(messageIDs(got), expected) {
			t.Fatalf("got %d messages, expected %d", len(got), len(expected))
		}
		for _, m := range got {
			if m.Deleted != (m.ID == sent[50]) || m.Deleted == (m.Payload != "") {
				t.Errorf("%+v", m)
			}
		}
	})
}

func (h *house) delete(id string) {
	h.t.Helper()
	if _, err := h.Delete(h.t.Context(), Asker{Receiver: "ben-client", User: "ben"}, DeleteRequest{ID: id}); err != nil {
		h.t.Fatalf("delete: %v", err)
	}
}

// 145: what one has sent oneself is not unread.
func TestOwnMessagesAreNotUnread(t *testing.T) {
	h := newHouse(t, memory.Options{})
	anns := []Asker{{Receiver: "ann-phone", User: "ann"}, {Receiver: "ann-tablet", User: "ann"}}
	ben := Asker{Receiver: "ben-phone", User: "ben"}
	for _, a := range append(anns, ben) {
		h.join(a.Receiver, "chat/#")
	}
	h.send(5, "ann", "chat/1", 0)
	h.send(3, "ben", "chat/1", 0)
	check := func() {
		t.Helper()
		for _, a := range anns {
			if n := h.unread(a); n != 3 {
				t.Errorf("%s has %d unread, expected 3", a.Receiver, n)
			}
		}
	}
	check()
	if n := h.unread(ben); n != 5 {
		t.Errorf("ben has %d unread, expected 5", n)
	}
	h.ack(ben, AckRequest{All: true})
	check()
	if ids, _ := walk(t, h.Service, anns[0], PullRequest{}, nothing); len(ids) != 8 {
		t.Errorf("a device is given %d messages, expected what its user has sent, too", len(ids))
	}
}

// 146: what is unread is what is there and not acknowledged, whatever was done.
func TestUnreadDoesNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, keepAll)
		h.join("phone", "chat/#")
		short := h.send(5, "ben", "chat/1", time.Minute)
		sent := h.send(95, "ben", "chat/1", 0)
		unread := len(short) + len(sent)
		check := func(did string) {
			t.Helper()
			if n := h.unread(phone); n != unread {
				t.Fatalf("%s: %d are unread, expected %d", did, n, unread)
			}
		}
		check("before")
		for _, id := range sent[:5] {
			h.delete(id)
		}
		unread -= 5
		check("five deleted")
		time.Sleep(2 * time.Minute)
		unread -= 5
		check("five expired")

		r := rand.New(rand.NewPCG(1, 2))
		read := map[string]bool{}
		for range 60 {
			id := sent[5+r.IntN(90)]
			if n := h.ack(phone, AckRequest{IDs: []string{id, id}}); n != 1 && !read[id] || n != 0 && read[id] {
				t.Fatalf("%d acknowledged by %s, which was read: %t", n, id, read[id])
			}
			if !read[id] {
				read[id] = true
				unread--
			}
		}
		check("read in random order")
		h.ack(phone, AckRequest{IDs: []string{sent[0], short[0]}})
		check("what was deleted, and what has expired")
		_, err := h.Ack(t.Context(), phone, AckRequest{IDs: []string{sent[94], "ffffffffffffffff" + sent[94][16:]}})
		wantCode(t, err, CodeUnknownID)
		check("what there will be")
		h.restart()
		check("a restart")
		h.ack(phone, AckRequest{Sender: "ben"})
		unread = 0
		check("all of a sender")
		if n := h.ack(phone, AckRequest{All: true}); n != 0 {
			t.Errorf("%d are acknowledged twice", n)
		}
	})
}

// 148: a late mark does not take back a newer one.
func TestReadMarksDoNotGoBack(t *testing.T) {
	h := newHouse(t, memory.Options{})
	h.join("phone", "chat/#")
	h.send(100, "ben", "chat/1", 0)
	no := false
	early := mustPull(t, h.Service, phone, PullRequest{Limit: 60, Ack: &no}).Next
	late := mustPull(t, h.Service, phone, PullRequest{Limit: 100, Ack: &no}).Next
	if n := h.ack(phone, AckRequest{Through: late}); n != 100 {
		t.Errorf("%d were acknowledged, expected 100", n)
	}
	if n := h.ack(phone, AckRequest{Through: early}); n != 0 {
		t.Errorf("%d were acknowledged again", n)
	}
	h.restart()
	if n := h.unread(phone); n != 0 {
		t.Errorf("%d are unread", n)
	}
}

// 149: each device has its own copy.
func TestDevicesReadForThemselves(t *testing.T) {
	h := newHouse(t, memory.Options{})
	devices := map[string]int{"u/phone": 50, "u/web": 20, "u/tablet": 0}
	for d := range devices {
		h.join(inbox.Receiver(d), "chat/#")
	}
	h.send(50, "ben", "chat/1", 0)
	for d, read := range devices {
		a := Asker{Receiver: inbox.Receiver(d), User: "u"}
		if read > 0 {
			h.ack(a, AckRequest{Through: mustPull(t, h.Service, a, PullRequest{Limit: read}).Next})
		}
	}
	for d, read := range devices {
		if n := h.unread(Asker{Receiver: inbox.Receiver(d), User: "u"}); n != 50-read {
			t.Errorf("%s has %d unread, expected %d", d, n, 50-read)
		}
	}
}

// 139, for history.
func TestBoundsOfHistory(t *testing.T) {
	h := newHouse(t, keepAll)
	sent := h.send(30, "ben", "chat/1", 0)
	other := h.send(1, "eve", "chat/2", 0)[0]
	sent = append(sent, h.send(30, "ben", "chat/1", 0)...)
	for _, c := range []struct {
		name     string
		request  HistoryRequest
		expected []string // in the order of sending
	}{
		{"newest 20", HistoryRequest{}, sent[40:60]},
		{"before an id", HistoryRequest{Before: sent[20]}, sent[0:20]},
		{"after an id", HistoryRequest{After: sent[50], Order: OldestFirst, Limit: 3}, sent[51:54]},
		{"both", HistoryRequest{After: sent[10], Before: sent[15]}, sent[11:15]},
		{"a message of others", HistoryRequest{Before: other, Limit: 2}, sent[28:30]},
		{"limit zero", HistoryRequest{Limit: -1}, sent[59:60]},
		{"limit huge", HistoryRequest{Limit: 1 << 40}, sent},
	} {
		c.request.Topic = "chat/1"
		answer, err := h.History(t.Context(), phone, c.request)
		got := messageIDs(answer.Messages)
		if c.request.Order != OldestFirst {
			slices.Reverse(got)
		}
		if err != nil || !slices.Equal(got, c.expected) {
			t.Errorf("%s: got %d messages, %v", c.name, len(got), err)
		}
		if answer.Remaining != nil {
			t.Errorf("%s: history counts what remains: %+v", c.name, answer.Remaining)
		}
	}
	_, err := h.History(t.Context(), phone, HistoryRequest{Before: "ffffffffffffffff-00000000"})
	wantCode(t, err, CodeUnknownID)
}
