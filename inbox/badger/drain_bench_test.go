package badger_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// BenchmarkDrain measures how fast receivers that return at once read what waits
// for them, hundreds of messages each: the members of a stream, and as many with
// inboxes of their own.
func BenchmarkDrain(b *testing.B) {
	const receivers = 100
	for _, c := range []struct {
		name          string
		size, waiting int
		all           bool
	}{
		{"own/256", 256, 1000, false}, {"stream/256", 256, 1000, true},
		{"own/4096", 4096, 250, false}, {"stream/4096", 4096, 250, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := badger.Open(badger.Options{Dir: b.TempDir(), Reserve: -1, Retention: -1, Pull: []string{"to/all"}})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			subscribe(b, s, receivers, c.all)
			topics := []string{"to/all"}
			if !c.all {
				topics = topics[:0]
				for i := range receivers {
					topics = append(topics, fmt.Sprintf("to/r%d", i))
				}
			}
			fillTopics(b, s, topics, c.waiting, c.size)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += receivers * c.waiting {
				drainAll(b, s, receivers, min(c.waiting, (b.N-n+receivers-1)/receivers))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// fillTopics appends n messages to each topic in turn.
func fillTopics(b *testing.B, s inbox.Store, topics []string, n, size int) {
	var wg sync.WaitGroup
	for range n {
		wg.Add(len(topics))
		for _, topic := range topics {
			s.Append(context.Background(), &inbox.Envelope{Topic: topic, Payload: make([]byte, size), QoS: 1}, func(_ inbox.Receipt, err error) {
				if err != nil {
					b.Error(err)
				}
				wg.Done()
			})
		}
	}
	wg.Wait()
}

// drainAll opens all inboxes at once and reads n messages from each, without
// noting that.
func drainAll(b *testing.B, s inbox.Store, receivers, n int) {
	var wg sync.WaitGroup
	for i := range receivers {
		wg.Go(func() {
			in, _, err := s.Open(context.Background(), inbox.Receiver(fmt.Sprintf("r%d", i)), inbox.OpenOptions{Expiry: inbox.ExpiryNever})
			if err != nil {
				b.Error(err)
				return
			}
			for left := n; left > 0; {
				page, err := in.Next(context.Background(), min(left, 200), 256<<10)
				if err != nil {
					b.Error(err)
					return
				}
				left -= len(page)
			}
		})
	}
	wg.Wait()
}
