package badger

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// waitingStore opens a store in which n messages of so many senders, each in a topic of
// its own, wait for the receiver "a", who has asked for them before.
func waitingStore(b *testing.B, n, senders int, keep Options) *Store {
	b.Helper()
	s := storeFor(b, keep)
	fill(b, s, n, senders)
	begun := time.Now()
	if _, err := s.Summarize(b.Context(), "a", inbox.SummaryQuery{Max: 1}); err != nil {
		b.Fatal(err)
	}
	b.Logf("indexed %d messages of %d senders in %v", n, senders, time.Since(begun).Round(time.Millisecond))
	return s
}

// storeFor opens a store with the receiver "a", who is away and gets everything.
func storeFor(b *testing.B, o Options) *Store {
	b.Helper()
	o.Dir, o.Reserve, o.Log = b.TempDir(), -1, everythingOptions("").Log
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	in, _, err := s.Open(b.Context(), "a", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err == nil {
		_, err = in.Subscribe(b.Context(), sub("to/#", 1))
	}
	if err == nil {
		err = in.Close(b.Context(), inbox.Ending{Expiry: inbox.ExpiryNever})
	}
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// fill appends n messages of so many senders in turn.
func fill(b *testing.B, s *Store, n, senders int) {
	var wg sync.WaitGroup
	wg.Add(n)
	for i := range n {
		e := &inbox.Envelope{
			Topic: fmt.Sprintf("to/chat/%d", i%senders), Client: fmt.Sprintf("sender-%d", i%senders), QoS: 1,
			Time: time.Now().UnixMilli(), Payload: make([]byte, 100),
		}
		s.Append(b.Context(), e, func(_ inbox.Receipt, err error) {
			if err != nil {
				b.Error(err)
			}
			wg.Done()
		})
	}
	wg.Wait()
}

// BenchmarkAsk measures what is asked of an inbox in which a million messages wait, of 10
// senders and of 1,000, in blocks of its own and in a stream.
func BenchmarkAsk(b *testing.B) {
	for _, c := range []struct {
		name    string
		senders int
		keep    Options
	}{
		{"own", 10, Options{StreamFrom: -1}}, {"stream", 10, Options{Pull: []string{"#"}}}, {"own", 1000, Options{StreamFrom: -1}},
	} {
		const n = 1_000_000
		s := waitingStore(b, n, c.senders, c.keep)
		b.Run(fmt.Sprintf("summary/%s/senders=%d", c.name, c.senders), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sum, err := s.Summarize(b.Context(), "a", inbox.SummaryQuery{Max: 5000})
				if err != nil || sum.Total.Messages < n || len(sum.Senders) != c.senders {
					b.Fatalf("%d messages of %d senders, %v", sum.Total.Messages, len(sum.Senders), err)
				}
			}
		})
		pull := func(name string, q inbox.Query) {
			b.Run(fmt.Sprintf("%s/%s/senders=%d", name, c.name, c.senders), func(b *testing.B) {
				q.Max, q.MaxBytes = 200, 1<<20
				b.ReportAllocs()
				for b.Loop() {
					page, err := s.Pull(b.Context(), "a", q)
					if err != nil || len(page.Entries) != 200 || page.Remaining.AtLeast {
						b.Fatalf("%d messages, %+v remain, %v", len(page.Entries), page.Remaining, err)
					}
				}
			})
		}
		one := inbox.Selection{Sender: "sender-3"}
		pull("oldest of one", inbox.Query{Selection: one})
		pull("newest of one", inbox.Query{Selection: one, NewestFirst: true})
		pull("in one topic", inbox.Query{Selection: inbox.Selection{Filter: "to/chat/3"}, After: inbox.Bound{Position: n / 2}})
		pull("of all", inbox.Query{After: inbox.Bound{Position: n / 2}})
		b.Run(fmt.Sprintf("acknowledge/%s/senders=%d", c.name, c.senders), func(b *testing.B) {
			for i := 0; b.Loop(); i++ { // some more of one sender each time
				a := inbox.Acknowledgement{Selection: one, Through: inbox.Position(1000 * (i + 1))}
				if _, err := s.Acknowledge(b.Context(), "a", a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppendIndexed measures what an index costs publishers: messages of so many
// senders to one inbox, as fast as the store takes them.
func BenchmarkAppendIndexed(b *testing.B) {
	for _, senders := range []int{10, 1000} {
		for _, indexed := range []bool{false, true} {
			b.Run(fmt.Sprintf("senders=%d/indexed=%v", senders, indexed), func(b *testing.B) {
				s := storeFor(b, Options{StreamFrom: -1})
				if indexed {
					indexFor(b, s, "a", kindsOfInbox)
				}
				b.ReportAllocs()
				b.ResetTimer()
				begun := processorTime()
				fill(b, s, b.N, senders)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
				b.ReportMetric(float64((processorTime()-begun).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime is what the process has used of its processors.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
