package badger_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// eachKeeping runs a test with references, and with a stream for each filter.
func eachKeeping(t *testing.T, test func(t *testing.T, o badger.Options)) {
	t.Run("references", func(t *testing.T) { test(t, badger.Options{Dir: t.TempDir()}) })
	t.Run("streams", func(t *testing.T) { test(t, badger.Options{Dir: t.TempDir(), Pull: []string{"#"}}) })
}

// away makes a session that is away.
func away(t testing.TB, s inbox.Store, r inbox.Receiver, filters ...string) {
	t.Helper()
	leave(t, connect(t, s, r, inbox.ExpiryNever, filters...), inbox.ExpiryNever)
}

func pull(t testing.TB, s inbox.Store, r inbox.Receiver, q inbox.Query) inbox.Page {
	t.Helper()
	if q.Max == 0 {
		q.Max = 1000
	}
	if q.MaxBytes == 0 {
		q.MaxBytes = 1 << 20
	}
	page, err := s.Pull(background, r, q)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func acknowledge(t testing.TB, s inbox.Store, r inbox.Receiver, a inbox.Acknowledgement, want int) {
	t.Helper()
	n, err := s.Acknowledge(background, r, a)
	if err != nil || n != want {
		t.Fatalf("acknowledged %d, %v, want %d", n, err, want)
	}
}

func wantTexts(t testing.TB, what string, entries []inbox.Entry, want ...string) {
	t.Helper()
	if got := texts(entries); !slices.Equal(got, want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// Pages follow each other in both directions, over blocks of one message and of many,
// with what came in between.
func TestPullBothWays(t *testing.T) {
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		s := openKeeping(t, o)
		defer func() { s.Close() }()
		away(t, s, "a", "all", "own/a")
		away(t, s, "b", "all")
		var want []string
		for i := range 30 {
			var batch []*inbox.Envelope
			for j := range 1 + i%7*i%7 {
				topic := []string{"all", "own/a", "other"}[(i+j)%3]
				text := fmt.Sprintf("%d.%d", i, j)
				batch = append(batch, &inbox.Envelope{Topic: topic, QoS: 1, Payload: []byte(text), Client: fmt.Sprint("p", j%2)})
				if topic != "other" {
					want = append(want, text)
				}
			}
			storeAll(t, s, batch...)
		}
		for _, size := range []int{1, 7, 1000} {
			for _, back := range []bool{false, true} {
				var got []string
				q, remaining := inbox.Query{Max: size, NewestFirst: back}, int64(len(want))
				for more := true; more; {
					page := pull(t, s, "a", q)
					got = append(got, texts(page.Entries)...)
					remaining -= int64(len(page.Entries))
					if page.Remaining.Messages != remaining || page.More != (remaining > 0) || page.Next != 0 {
						t.Fatalf("page of %d, %d remain and more %v, want %d", len(page.Entries), page.Remaining.Messages, page.More, remaining)
					}
					last := page.Entries[len(page.Entries)-1].Position
					if more = page.More; back {
						q.Before = inbox.Bound{Position: last}
					} else {
						q.After = inbox.Bound{Position: last}
					}
				}
				if back {
					slices.Reverse(got)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("pages of %d, back %v: %q, want %q", size, back, got, want)
				}
			}
		}
		s = reopen(t, s, o)
		if got := texts(pull(t, s, "a", inbox.Query{}).Entries); !slices.Equal(got, want) {
			t.Fatalf("after a restart: %q, want %q", got, want)
		}
	})
}

// appendAll stores messages, as many as can be in one commit.
func storeAll(t testing.TB, s inbox.Store, all ...*inbox.Envelope) (ids []inbox.MessageID) {
	t.Helper()
	done := make(chan inbox.Receipt, len(all))
	for _, e := range all {
		if e.Time == 0 {
			e.Time = time.Now().UnixMilli()
		}
		s.Append(background, e, func(r inbox.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
			done <- r
		})
	}
	for range all {
		ids = append(ids, (<-done).ID)
	}
	return ids
}

// A page is bounded by bytes, ids and times, and by what its messages are.
func TestPullBounds(t *testing.T) {
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		s := openKeeping(t, o)
		defer s.Close()
		away(t, s, "a", "g/#", "own/#")
		var all []*inbox.Envelope
		for i := range 10 {
			all = append(all, &inbox.Envelope{
				Topic: []string{"g/x", "own/x"}[i%2], QoS: 1, Payload: fmt.Append(nil, i), Time: int64(1000 + i/2),
				Client: fmt.Sprint("c", i%3), User: []string{"", "u"}[i/5],
			})
		}
		ids := storeAll(t, s, all...)
		for _, c := range []struct {
			name string
			q    inbox.Query
			want []string
		}{
			{"by id", inbox.Query{After: inbox.Bound{ID: ids[3]}, Before: inbox.Bound{ID: ids[6]}}, []string{"4", "5"}},
			{"nothing between", inbox.Query{After: inbox.Bound{ID: ids[3]}, Before: inbox.Bound{ID: ids[4]}}, nil},
			{"turned round", inbox.Query{After: inbox.Bound{ID: ids[6]}, Before: inbox.Bound{ID: ids[3]}, NewestFirst: true}, nil},
			{"since a time", inbox.Query{After: inbox.Bound{Time: 1003}}, []string{"6", "7", "8", "9"}},
			{"before a time", inbox.Query{Before: inbox.Bound{Time: 1001}}, []string{"0", "1"}},
			{"between times", inbox.Query{After: inbox.Bound{Time: 1001}, Before: inbox.Bound{Time: 1002}}, []string{"2", "3"}},
			{"before all times", inbox.Query{Before: inbox.Bound{Time: 5}}, nil},
			{"since the first", inbox.Query{After: inbox.Bound{Time: 5}, Max: 1}, []string{"0"}},
			{"since after the last", inbox.Query{After: inbox.Bound{Time: 5000}}, nil},
			{"of a sender without a name", inbox.Query{Selection: inbox.Selection{Sender: "c1"}}, []string{"1", "4"}},
			{"of a user", inbox.Query{Selection: inbox.Selection{Sender: "u"}}, []string{"5", "6", "7", "8", "9"}},
			{"of a filter", inbox.Query{Selection: inbox.Selection{Filter: "own/+"}}, []string{"1", "3", "5", "7", "9"}},
			{"of both", inbox.Query{Selection: inbox.Selection{Sender: "u", Filter: "g/x"}, NewestFirst: true}, []string{"8", "6"}},
			{"of nobody", inbox.Query{Selection: inbox.Selection{Sender: "c2", Filter: "none"}}, nil},
			{"at least one", inbox.Query{MaxBytes: 1}, []string{"0"}},
			{"two", inbox.Query{MaxBytes: all[0].Size() + all[1].Size()}, []string{"0", "1"}},
		} {
			wantTexts(t, c.name, pull(t, s, "a", c.q).Entries, c.want...)
		}
		unknown := []inbox.MessageID{
			{Sequence: ids[0].Sequence, Store: ids[0].Store + 1}, {Sequence: ids[9].Sequence + 100, Store: ids[0].Store}, {Store: ids[0].Store},
		}
		for _, id := range unknown {
			for _, q := range []inbox.Query{{After: inbox.Bound{ID: id}}, {Before: inbox.Bound{ID: id}}} {
				if q.Max, q.MaxBytes = 1, 1; true {
					if _, err := s.Pull(background, "a", q); !errors.Is(err, inbox.ErrUnknownID) {
						t.Errorf("%v: %v, want ErrUnknownID", id, err)
					}
				}
			}
			if n, err := s.Acknowledge(background, "a", inbox.Acknowledgement{IDs: []inbox.MessageID{ids[0], id}}); !errors.Is(err, inbox.ErrUnknownID) || n != 0 {
				t.Errorf("acknowledge %v: %d, %v, want ErrUnknownID", id, n, err)
			}
		}
		if n := len(pull(t, s, "a", inbox.Query{}).Entries); n != 10 {
			t.Errorf("%d are left, want 10", n)
		}
		for _, err := range []error{
			second(s.Pull(background, "nobody", inbox.Query{Max: 1, MaxBytes: 1})),
			second(s.Acknowledge(background, "nobody", inbox.Acknowledgement{})),
			second(s.Pull(background, "\x00g/#", inbox.Query{Max: 1, MaxBytes: 1})),
		} {
			if !errors.Is(err, inbox.ErrNoSession) {
				t.Errorf("of nobody: %v, want ErrNoSession", err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// What is acknowledged is gone from everywhere: for one who is away, for one who is
// connected, from what is ready to be sent, and from what was sent; over a restart
// too. And in the end nothing of it is left on disk.
func TestAcknowledge(t *testing.T) {
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		o.Reserve, o.Retention, o.Log = -1, -1, quiet()
		open := func() *badger.Store {
			s, err := badger.OpenSweeping(o, 5*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := open()
		defer func() { s.Close() }()
		away(t, s, "a", "g/#")
		var all []*inbox.Envelope
		for i := range 12 {
			all = append(all, &inbox.Envelope{Topic: fmt.Sprint("g/", i%2), QoS: 1, Payload: fmt.Append(nil, i), Client: fmt.Sprint("c", i%3)})
		}
		ids := storeAll(t, s, all...)
		acknowledge(t, s, "a", inbox.Acknowledgement{IDs: []inbox.MessageID{ids[3], ids[1], ids[3]}}, 2)
		acknowledge(t, s, "a", inbox.Acknowledgement{IDs: []inbox.MessageID{ids[3]}}, 0)
		acknowledge(t, s, "a", inbox.Acknowledgement{Selection: inbox.Selection{Sender: "c2"}, Through: ids[8].Sequence}, 3)
		wantTexts(t, "away", pull(t, s, "a", inbox.Query{}).Entries, "0", "4", "6", "7", "9", "10", "11")
		s.Close()
		s = open()
		wantTexts(t, "after a restart", pull(t, s, "a", inbox.Query{NewestFirst: true}).Entries, "11", "10", "9", "7", "6", "4", "0")

		a := connect(t, s, "a", inbox.ExpiryNever)
		_, sent := a.take(t, 2)
		wantTexts(t, "sent", sent, "0", "4")
		acknowledge(t, s, "a", inbox.Acknowledgement{Selection: inbox.Selection{Filter: "g/0"}, Through: ids[7].Sequence}, 3)
		if again, err := a.Read(background, []inbox.Position{sent[0].Position, sent[1].Position}); err != nil || len(again) != 0 {
			t.Errorf("what was sent is read again: %q, %v", texts(again), err)
		}
		_, rest := a.take(t, 1)
		wantTexts(t, "ready", rest, "7")
		acknowledge(t, s, "a", inbox.Acknowledgement{After: ids[9].Sequence}, 2)
		wantTexts(t, "connected", pull(t, s, "a", inbox.Query{}).Entries, "7", "9")
		say(t, s, "g/x", "new")
		_, rest = a.take(t, 2)
		wantTexts(t, "behind", rest, "9", "new")
		acknowledge(t, s, "a", inbox.Acknowledgement{}, 3)
		acknowledge(t, s, "a", inbox.Acknowledgement{}, 0)
		wantTexts(t, "all", pull(t, s, "a", inbox.Query{}).Entries)
		for _, d := range a.state().Open {
			a.finish(d.PacketID)
		}
		leave(t, a, inbox.ExpiryAtOnce)
		eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0, "a": 0, "b": 0, "k": 0, "p": 0})
	})
}

// A copy of a retained message is found by the message's id, wherever it is.
func TestPullCopies(t *testing.T) {
	o := badger.Options{Dir: t.TempDir()}
	s := openKeeping(t, o)
	defer func() { s.Close() }()
	ids := storeAll(t, s,
		&inbox.Envelope{Topic: "r/1", QoS: 1, Retain: true, Payload: []byte("one"), Time: 1000},
		&inbox.Envelope{Topic: "r/2", QoS: 1, Retain: true, Payload: []byte("two"), Time: 1001})
	away(t, s, "a", "g", "r/#", "r/1")
	storeAll(t, s, &inbox.Envelope{Topic: "g", QoS: 1, Payload: []byte("three"), Time: 1002})
	s = reopen(t, s, o)
	page := pull(t, s, "a", inbox.Query{})
	wantTexts(t, "all", page.Entries, "one", "two", "one", "three")
	wantTexts(t, "behind", pull(t, s, "a", inbox.Query{After: inbox.Bound{ID: ids[1]}}).Entries, "one", "three")
	wantTexts(t, "in front", pull(t, s, "a", inbox.Query{Before: inbox.Bound{ID: ids[1]}}).Entries, "one")
	acknowledge(t, s, "a", inbox.Acknowledgement{IDs: ids[:1]}, 2)
	wantTexts(t, "rest", pull(t, s, "a", inbox.Query{}).Entries, "two", "three")
	wantTexts(t, "by time", pull(t, s, "a", inbox.Query{After: inbox.Bound{Time: 1002}}).Entries, "three")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verifyClean(t, o.Dir)
}

// What is lost is told once for a page, and not after it was acknowledged with it.
func TestPullGaps(t *testing.T) {
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		s := openKeeping(t, o)
		defer s.Close()
		away(t, s, "a", "g")
		now := time.Now().UnixMilli()
		var all []*inbox.Envelope
		for i, expired := range []bool{true, false, true, true, false, false, true} {
			e := &inbox.Envelope{Topic: "g", QoS: 1, Payload: fmt.Append(nil, i), Time: now - 1000 + int64(i), Client: fmt.Sprint("c", i%2)}
			if expired {
				e.Expiry = now - 1
			}
			all = append(all, e)
		}
		ids := storeAll(t, s, all...)
		gap := func(n int64, from, to int) []inbox.Gap {
			return []inbox.Gap{{From: all[from].Time, To: all[to].Time, Messages: n, Reason: inbox.GapExpired}}
		}
		page := pull(t, s, "a", inbox.Query{Max: 1})
		wantTexts(t, "first", page.Entries, "1")
		if !slices.Equal(page.Gaps, gap(3, 0, 3)) || page.Next != ids[3].Sequence || page.Remaining.Messages != 2 {
			t.Errorf("first page: %+v, and next %d", page.Gaps, page.Next)
		}
		page = pull(t, s, "a", inbox.Query{After: inbox.Bound{Position: page.Next}})
		if wantTexts(t, "second", page.Entries, "4", "5"); !slices.Equal(page.Gaps, gap(1, 6, 6)) || page.More {
			t.Errorf("second page: %+v", page.Gaps)
		}
		page = pull(t, s, "a", inbox.Query{NewestFirst: true, Selection: inbox.Selection{Sender: "c0"}})
		if wantTexts(t, "of one", page.Entries, "4"); !slices.Equal(page.Gaps, gap(3, 0, 6)) {
			t.Errorf("of one: %+v", page.Gaps)
		}
		acknowledge(t, s, "a", inbox.Acknowledgement{Through: ids[4].Sequence}, 2)
		if page = pull(t, s, "a", inbox.Query{}); !slices.Equal(page.Gaps, gap(1, 6, 6)) {
			t.Errorf("after acknowledging: %+v", page.Gaps)
		}
	})
}
