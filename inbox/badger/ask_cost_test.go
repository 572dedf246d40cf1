package badger

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// waitingFor makes a store in which n messages of ten senders, each in a topic of its own,
// wait for the receiver "a", and opens it. They are written past the store, which is faster.
func waitingFor(t *testing.T, n int) *Store {
	t.Helper()
	o := everythingOptions(t.TempDir())
	o.sweepEvery = 0
	open := func() *Store {
		s, err := OpenSorting(o, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	store(t, s, "nobody") // has numbers be taken
	a := enter(t, s, "a", nil, sub("#", 1))
	inc := a.Inbox.(*handle).incarnation
	if err := errors.Join(a.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}), s.Close()); err != nil {
		t.Fatal(err)
	}
	db, lock, err := openDB(o)
	if err != nil {
		t.Fatal(err)
	}
	batch := db.NewWriteBatch()
	const together = 100
	for first := 1; first <= n; first += together {
		var b block
		for p := first; p < first+together; p++ {
			e := &inbox.Envelope{
				Client: fmt.Sprint("sender-", p%10), Topic: fmt.Sprint("to/", p%10), QoS: 1,
				Payload: make([]byte, 50), Time: time.Now().UnixMilli(),
			}
			b.add(inbox.Position(p), inbox.Position(p), inbox.Grant{QoS: 1}, inbox.AppendEnvelope(nil, e))
		}
		if err := batch.Set(blockKey(inc, inbox.Position(first+together-1)), b.buf); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(batch.Flush(), db.Close(), lock.Close()); err != nil {
		t.Fatal(err)
	}
	s = open()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// spent is what something allocates: everything that is read from the store does.
type spent struct{ times, bytes uint64 }

// spends returns what a call allocates, at the least of several.
func spends(do func(i int)) (least spent) {
	var before, after runtime.MemStats
	for i := range 4 {
		runtime.ReadMemStats(&before)
		do(i)
		runtime.ReadMemStats(&after)
		got := spent{after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc}
		if i == 0 {
			least = got
		}
		least.times, least.bytes = min(least.times, got.times), min(least.bytes, got.bytes)
	}
	return least
}

// mostSpent is what an answer of 40 messages, or of 20 lines, may cost, whatever waits: that of a
// few hundred messages that are read together, and of a few records of lists.
var mostSpent = spent{times: 2500, bytes: 2 << 20}

func (s spent) isMore(than spent) bool { return s.times > than.times || s.bytes > than.bytes }

// What is asked costs what is in the answer, not what waits. Counted is what is allocated,
// for whatever is read is.
func TestAskingCostsWhatIsInTheAnswer(t *testing.T) {
	for _, n := range []int{1000, 20_000} {
		s := waitingFor(t, n)
		summary := func(int) {
			sum, err := s.Summarize(t.Context(), "a", inbox.SummaryQuery{Max: 50})
			if err != nil || sum.Total.Messages != int64(n) || len(sum.Senders) != 10 || len(sum.Topics) != 10 {
				t.Fatalf("%d messages of %d senders in %d topics, %v", sum.Total.Messages, len(sum.Senders), len(sum.Topics), err)
			}
		}
		page := func(q inbox.Query, remaining int) func(int) {
			q.Max, q.MaxBytes = 40, 1<<20
			return func(int) {
				page, err := s.Pull(t.Context(), "a", q)
				if err != nil || len(page.Entries) != 40 || page.Remaining.Messages != int64(remaining) || page.Remaining.AtLeast {
					t.Fatalf("%d messages, %+v remain, want %d, %v", len(page.Entries), page.Remaining, remaining, err)
				}
			}
		}
		sender, topic := inbox.Selection{Sender: "sender-3"}, inbox.Selection{Filter: "to/4"}
		half := inbox.Bound{Position: inbox.Position(n / 2)}
		all := spends(func(int) {
			if _, err := s.Pull(t.Context(), "a", inbox.Query{Max: n, MaxBytes: 1 << 30}); err != nil {
				t.Fatal(err)
			}
		})
		if n > 1000 && (all.times < 8*mostSpent.times || all.bytes < 5*mostSpent.bytes) {
			t.Errorf("to read everything allocates %+v: the test would test nothing", all)
		}
		summary(0) // has the index made
		for _, c := range []struct {
			name string
			ask  func(int)
		}{
			{"summary", summary},
			{"page of all", page(inbox.Query{After: half}, n/2-40)},
			{"page of a sender", page(inbox.Query{Selection: sender, After: half}, n/20-40)},
			{"newest of a sender", page(inbox.Query{Selection: sender, NewestFirst: true}, n/10-40)},
			{"page of a topic", page(inbox.Query{Selection: topic, After: half}, n/20-40)},
			{"newest of a topic", page(inbox.Query{Selection: topic, NewestFirst: true}, n/10-40)},
			{"acknowledge some of a sender", func(i int) {
				a := inbox.Acknowledgement{Selection: sender, Through: inbox.Position(100 * (i + 1))}
				if acked, err := s.Acknowledge(t.Context(), "a", a); err != nil || acked != 10 {
					t.Fatalf("%d acknowledged, %v", acked, err)
				}
			}},
			{"acknowledge all of a sender", func(i int) {
				a := inbox.Acknowledgement{Selection: inbox.Selection{Sender: fmt.Sprint("sender-", 5+i)}}
				if acked, err := s.Acknowledge(t.Context(), "a", a); err != nil || acked != n/10 {
					t.Fatalf("%d acknowledged, %v", acked, err)
				}
			}},
			{"acknowledge all", func(i int) {
				a := inbox.Acknowledgement{Through: inbox.Position(n/2 + 10*i)}
				if acked, err := s.Acknowledge(t.Context(), "a", a); err != nil || acked == 0 {
					t.Fatalf("%d acknowledged, %v", acked, err)
				}
			}},
		} {
			if got := spends(c.ask); got.isMore(mostSpent) {
				t.Errorf("%s allocates %+v where %d messages wait", c.name, got, n)
			} else {
				t.Logf("%s, of %d: %+v", c.name, n, got)
			}
		}
	}
}
