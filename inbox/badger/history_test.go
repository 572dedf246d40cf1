package badger_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// keeping is options with a history of some filters.
func keeping(dir string, filters ...string) badger.Options {
	o := badger.Options{Dir: dir}
	for _, f := range filters {
		o.History = append(o.History, inbox.Kept{Filter: f})
	}
	return o
}

// told is what a message in history says: its topic and its text.
func told(e inbox.Entry) string {
	if e.Envelope.Deleted {
		return e.Envelope.Topic + ": -"
	}
	return e.Envelope.Topic + ": " + string(e.Envelope.Payload)
}

// walk follows the pages of a query to the end.
func walk(t testing.TB, s inbox.Store, q inbox.Query) (all []inbox.Entry) {
	t.Helper()
	for pages := 0; ; pages++ {
		page, err := s.History(background, q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Entries...)
		if !page.More {
			return all
		}
		next := page.Next
		if n := len(page.Entries); next == 0 && n > 0 {
			next = page.Entries[n-1].Position
		}
		if next == 0 || pages > 100_000 {
			t.Fatalf("%+v: a page of %d that leads nowhere", q, len(page.Entries))
		}
		if q.NewestFirst {
			q.Before = inbox.Bound{Position: next}
		} else {
			q.After = inbox.Bound{Position: next}
		}
	}
}

// history returns what there is of a filter, oldest first.
func history(t testing.TB, s inbox.Store, filter string) (all []string) {
	t.Helper()
	for _, e := range walk(t, s, inbox.Query{Selection: inbox.Selection{Filter: filter}, Max: 20, MaxBytes: 1 << 20}) {
		all = append(all, told(e))
	}
	return all
}

func wantHistory(t testing.TB, s inbox.Store, filter string, want ...string) {
	t.Helper()
	if got := history(t, s, filter); !slices.Equal(got, want) {
		t.Errorf("history of %s:\n got %q\nwant %q", filter, got, want)
	}
}

// What history answers is what a plain list of the messages answers, whatever is
// asked: over a restart, with filters that overlap, and while inboxes share the
// messages.
func TestHistoryIsAPlainList(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	o := keeping(t.TempDir(), "chat/#", "+/a", "news")
	s := verifying(t, o)
	defer func() { s.Close() }()
	leave(t, connect(t, s, "away", inbox.ExpiryNever, "chat/a", "other"), inbox.ExpiryNever)
	var list []inbox.Entry
	fill := func(n int) {
		for i := range n {
			e := &inbox.Envelope{
				Topic: []string{"chat/a", "chat/b", "chat/a/x", "x/a", "news", "other", "$x/a"}[r.IntN(7)],
				QoS:   byte(1 + r.IntN(2)), Time: 1_000_000 + int64(len(list)/3), Client: []string{"ann", "bob"}[r.IntN(2)],
				Payload: make([]byte, r.IntN(300)),
			}
			if r.IntN(3) == 0 {
				e.User = "carl"
			}
			if r.IntN(10) == 0 {
				e.QoS = 0
			}
			receipt := publish(t, s, e)
			if e.QoS > 0 && e.Topic != "other" && e.Topic[0] != '$' {
				list = append(list, inbox.Entry{Position: receipt.ID.Sequence, Envelope: e})
			}
			if i%50 == 49 {
				finishEverything(t, s, "away")
			}
		}
	}
	ask := func() {
		q, want := randomQuery(r, list)
		got := walk(t, s, q)
		same := slices.EqualFunc(got, want, func(a, b inbox.Entry) bool {
			return a.Position == b.Position && a.Envelope.ID.Sequence == b.Position && a.Envelope.Topic == b.Envelope.Topic && len(a.Envelope.Payload) == len(b.Envelope.Payload)
		})
		if !same {
			t.Fatalf("%+v: got %d messages, want %d", q, len(got), len(want))
		}
	}
	for range 2 {
		fill(200)
		for range 100 {
			ask()
		}
		s.Close()
		s = verifying(t, o)
		for range 50 {
			ask()
		}
	}
}

// finishEverything acknowledges all that a receiver has.
func finishEverything(t testing.TB, s inbox.Store, r inbox.Receiver) {
	t.Helper()
	c := connect(t, s, r, inbox.ExpiryNever)
	defer leave(t, c, inbox.ExpiryNever)
	subscribeTo(t, c, inbox.Subscription{Filter: "end/" + string(r), QoS: 1})
	publish(t, s, &inbox.Envelope{Topic: "end/" + string(r), QoS: 1})
	for {
		ids, entries := c.take(t, 1)
		c.finish(ids...)
		if strings.HasPrefix(entries[0].Envelope.Topic, "end/") {
			return
		}
	}
}

// randomQuery returns a query, and what a list answers.
func randomQuery(r *rand.Rand, list []inbox.Entry) (q inbox.Query, want []inbox.Entry) {
	q = inbox.Query{NewestFirst: r.IntN(2) == 0, Max: 1 + r.IntN(30), MaxBytes: 1 + r.IntN(20_000)}
	q.Filter = []string{"", "#", "chat/#", "chat/a", "+/a", "news", "nobody"}[r.IntN(7)]
	q.Sender = []string{"", "", "ann", "carl", "zoe"}[r.IntN(5)]
	bound := func() inbox.Bound {
		at := list[r.IntN(len(list))]
		switch r.IntN(4) {
		case 0:
			return inbox.Bound{Position: at.Position}
		case 1:
			return inbox.Bound{ID: at.Envelope.ID}
		case 2:
			return inbox.Bound{Time: at.Envelope.Time + int64(r.IntN(3)) - 1}
		default:
			return inbox.Bound{}
		}
	}
	q.After, q.Before = bound(), bound()
	inFront := func(b inbox.Bound, e inbox.Entry) bool { // of the bound, or at it
		switch {
		case b.Position != 0:
			return e.Position <= b.Position
		case b.ID.Sequence != 0:
			return e.Position <= b.ID.Sequence
		default:
			return e.Envelope.Time < b.Time
		}
	}
	for _, e := range list {
		behind := q.After == inbox.Bound{} || !inFront(q.After, e)
		before := q.Before == inbox.Bound{} || inFront(q.Before, e) && e.Position != q.Before.Position && e.Position != q.Before.ID.Sequence
		if behind && before && q.Matches(e.Envelope) {
			want = append(want, e)
		}
	}
	if q.NewestFirst {
		slices.Reverse(want)
	}
	return q, want
}

func TestHistoryBounds(t *testing.T) {
	s := openKeeping(t, keeping(t.TempDir(), "chat/#"))
	defer s.Close()
	say(t, s, "chat/a", "1", "2", "3")
	all := walk(t, s, inbox.Query{Max: 1, MaxBytes: 1})
	id := all[1].Envelope.ID
	for _, b := range []inbox.MessageID{{Sequence: id.Sequence, Store: id.Store + 1}, {Sequence: id.Sequence + 2, Store: id.Store}, {Store: id.Store}} {
		for _, q := range []inbox.Query{{After: inbox.Bound{ID: b}}, {Before: inbox.Bound{ID: b}}} {
			if page, err := s.History(background, q); !errors.Is(err, inbox.ErrUnknownID) {
				t.Errorf("by id %s: %+v, %v", b, page, err)
			}
		}
	}
	page, err := s.History(background, inbox.Query{NewestFirst: true, Max: 2, MaxBytes: 1 << 20})
	if err != nil || len(page.Entries) != 2 || told(page.Entries[0]) != "chat/a: 3" || !page.More || page.Next != 0 {
		t.Errorf("newest: %+v, %v", page, err)
	}
	page, err = s.History(background, inbox.Query{NewestFirst: true, Before: inbox.Bound{ID: id}, Max: 1, MaxBytes: 1 << 20})
	if err != nil || len(page.Entries) != 1 || told(page.Entries[0]) != "chat/a: 1" || page.More {
		t.Errorf("the last page: %+v, %v", page, err)
	}
}

// What is asked for may be rare: a request ends all the same, and says where to go on.
func TestHistoryLooksAtSoMuchAtOnce(t *testing.T) {
	s := openKeeping(t, keeping(t.TempDir(), "#"))
	defer s.Close()
	fillHistory(t, s, 10_502, func(i int) string {
		if i%10_501 == 0 {
			return "rare"
		}
		return "often"
	})
	q := inbox.Query{Selection: inbox.Selection{Filter: "rare/#", Sender: "filler"}, NewestFirst: true, Max: 10, MaxBytes: 1 << 20}
	page, err := s.History(background, q)
	if err != nil || len(page.Entries) != 1 || !page.More || page.Next == 0 {
		t.Fatalf("%d entries, more %v, next %d, %v", len(page.Entries), page.More, page.Next, err)
	}
	q.Before = inbox.Bound{Position: page.Next}
	if page, err = s.History(background, q); err != nil || len(page.Entries) != 1 || page.More {
		t.Fatalf("then %d entries, more %v, %v", len(page.Entries), page.More, err)
	}
}

// Few topics of very many are found by a filter all the same.
func TestHistoryOfManyTopics(t *testing.T) {
	s := openKeeping(t, keeping(t.TempDir(), "#"))
	defer s.Close()
	fillHistory(t, s, 1200, func(i int) string { return fmt.Sprintf("t/%d/%v", i, i%400 == 7) })
	for range 2 {
		wantHistory(t, s, "t/+/true", "t/7/true: 7", "t/407/true: 407", "t/807/true: 807")
		wantHistory(t, s, "+/407/#", "t/407/true: 407")
	}
}

// fillHistory stores n messages as fast as it goes.
func fillHistory(t testing.TB, s inbox.Store, n int, topic func(int) string) {
	t.Helper()
	done := make(chan error, n)
	now := time.Now().UnixMilli()
	for i := range n {
		s.Append(background, &inbox.Envelope{Topic: topic(i), QoS: 1, Payload: fmt.Append(nil, i), Client: "filler", Time: now}, func(_ inbox.Receipt, err error) { done <- err })
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// A message that nobody else gets is stored and synced, and nobody is said to have
// got it.
func TestHistoryAlone(t *testing.T) {
	o := keeping(t.TempDir(), "chat/#")
	s := verifying(t, o)
	before := s.Stats().Commits
	receipt := publish(t, s, &inbox.Envelope{Topic: "chat/a", QoS: 1, Payload: []byte("x")})
	if receipt.Matched != 0 {
		t.Errorf("%d receivers, want none", receipt.Matched)
	}
	if s.Stats().Commits == before {
		t.Error("acknowledged without a commit")
	}
	publish(t, s, &inbox.Envelope{Topic: "chat/a", QoS: 0, Payload: []byte("not kept")})
	publish(t, s, &inbox.Envelope{Topic: "$chat/a", QoS: 1, Payload: []byte("not kept")})
	wantHistory(t, s, "#", "chat/a: x")
	s.Close()
	o.KeepQoS0 = true
	s = verifying(t, o)
	publish(t, s, &inbox.Envelope{Topic: "chat/a", QoS: 0, Payload: []byte("kept")})
	s.Close()
	s = verifying(t, o)
	defer s.Close()
	wantHistory(t, s, "#", "chat/a: x", "chat/a: kept")
}

// A filter that is new begins empty, and one that is not named any more takes its
// history with it, but nothing that others have.
func TestHistoryOfOtherFilters(t *testing.T) {
	dir := t.TempDir()
	s := verifying(t, keeping(dir, "chat/#", "chat/a"))
	leave(t, connect(t, s, "away", inbox.ExpiryNever, "chat/b"), inbox.ExpiryNever)
	say(t, s, "chat/a", "1")
	say(t, s, "chat/b", "2")
	say(t, s, "news", "3")
	s.Close()

	var log strings.Builder
	o := keeping(dir, "chat/a", "news")
	o.Reserve, o.Retention, o.Log = -1, -1, slog.New(slog.NewTextHandler(&log, nil))
	other, err := badger.OpenSweeping(o, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	say(t, other, "news", "4")
	say(t, other, "chat/b", "5")
	wantHistory(t, other, "#", "chat/a: 1", "news: 4")
	eventually(t, other, map[string]int{"p": 0, "m": 3, "i": 4}) // what is left is 1, 4, and 2 and 5, for which somebody waits
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); strings.Count(got, "filter=chat/#") != 1 || strings.Contains(got, "filter=news") {
		t.Errorf("logged: %s", got)
	}

	s = verifying(t, keeping(dir, "chat/#"))
	defer s.Close()
	wantHistory(t, s, "#")
	finishAll(t, connect(t, s, "away", inbox.ExpiryNever), "2", "5")
}

// Messages are not stored quite in the order of their times. Who asks by a time gets what
// was taken in that time, and no more.
func TestHistoryByTimesOutOfOrder(t *testing.T) {
	s := openKeeping(t, keeping(t.TempDir(), "#"))
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Now().UnixMilli()
	var times []int64
	for i := range 500 {
		times = append(times, now+int64(i*10-r.IntN(900)))
		publish(t, s, &inbox.Envelope{Topic: "a", QoS: 1, Time: times[i]})
	}
	for range 100 {
		after, before := times[r.IntN(len(times))], times[r.IntN(len(times))]
		want := 0
		for _, at := range times {
			if at >= after && at < before {
				want++
			}
		}
		q := inbox.Query{After: inbox.Bound{Time: after}, Before: inbox.Bound{Time: before}, Max: 50, MaxBytes: 1 << 20, NewestFirst: r.IntN(2) == 0}
		if got := walk(t, s, q); len(got) != want {
			t.Fatalf("from %d to %d: %d messages, want %d", after-now, before-now, len(got), want)
		}
	}
}

func TestHistoryRefusesFilters(t *testing.T) {
	for _, kept := range [][]inbox.Kept{
		{{Filter: ""}}, {{Filter: "a/#/b"}}, {{Filter: "$share/g/a"}}, {{Filter: "$SYS/#"}}, {{Filter: "a"}, {Filter: "a"}},
		{{Filter: "a", Keep: -1}}, {{Filter: "a", Bytes: -1}},
	} {
		if s, err := badger.Open(badger.Options{Dir: t.TempDir(), Reserve: -1, Log: quiet(), History: kept}); err == nil {
			s.Close()
			t.Errorf("%+v is taken", kept)
		}
	}
}

// Nobody's inbox is the place of a history.
func TestHistoryIsNoInbox(t *testing.T) {
	s := openKeeping(t, keeping(t.TempDir(), "chat/#"))
	defer s.Close()
	if _, _, err := s.Open(background, "\x00\x00chat/#", inbox.OpenOptions{Expiry: inbox.ExpiryNever}); !errors.Is(err, inbox.ErrNoSession) {
		t.Errorf("opened: %v", err)
	}
	for sess, err := range s.Sessions(background) {
		t.Errorf("a session: %+v, %v", sess, err)
	}
}
