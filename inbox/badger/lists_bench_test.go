package badger

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// waitingStore opens a store in which n messages of so many senders wait for the
// receiver "a", and which has its index.
func waitingStore(b *testing.B, n, senders int) (*Store, incarnation) {
	b.Helper()
	o := everythingOptions(b.TempDir())
	o.sweepEvery = 0
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
	fill(b, s, n, senders)
	begun := time.Now()
	inc := indexFor(b, s, "a", kindsOfInbox)
	if err := s.indexer.await(b.Context(), inc); err != nil {
		b.Fatal(err)
	}
	b.Logf("indexed %d messages of %d senders in %v", n, senders, time.Since(begun).Round(time.Millisecond))
	return s, inc
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

func BenchmarkLists(b *testing.B) {
	for _, c := range []struct{ n, senders int }{{1_000_000, 10}, {1_000_000, 1000}} {
		s, inc := waitingStore(b, c.n, c.senders)
		view := func(b *testing.B, read func(*lists)) {
			for b.Loop() {
				err := s.viewLists(b.Context(), []incarnation{inc}, func(_ *badger.Txn, all []*lists, _ inbox.Position) error {
					read(all[0])
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(fmt.Sprintf("counts/senders=%d", c.senders), func(b *testing.B) {
			b.ReportAllocs()
			view(b, func(l *lists) {
				for one := range l.all(listPair, nil) {
					one.live(1000, endless, deadline{now: 1, old: math.MinInt64})
				}
			})
		})
		b.Run(fmt.Sprintf("page/senders=%d", c.senders), func(b *testing.B) {
			view(b, func(l *lists) {
				w := l.list(listID{listPair, pairOf("sender-3", "to/chat/3")}).after(500_000)
				for range 200 {
					w.next()
				}
			})
		})
		b.Run(fmt.Sprintf("merge/senders=%d", c.senders), func(b *testing.B) {
			view(b, func(l *lists) {
				var walks []*walk
				for one := range l.all(listPair, nil) {
					walks = append(walks, one.after(500_000))
				}
				m := mergeLists(false, walks...)
				for range 200 {
					m.next()
				}
			})
		})
	}
}

// BenchmarkAppendIndexed measures what an index costs publishers: messages of so many
// senders, a thousand of which are on their way at a time, to one inbox.
func BenchmarkAppendIndexed(b *testing.B) {
	for _, senders := range []int{10, 1000} {
		for _, indexed := range []bool{false, true} {
			b.Run(fmt.Sprintf("senders=%d/indexed=%v", senders, indexed), func(b *testing.B) {
				s, err := Open(everythingOptions(b.TempDir()))
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
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
				if indexed {
					indexFor(b, s, "a", kindsOfInbox)
				}
				b.ReportAllocs()
				b.ResetTimer()
				fill(b, s, b.N, senders)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}
