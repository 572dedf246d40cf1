package badger_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// BenchmarkAppend measures the durable path: so many publishers, each with so
// many messages in flight, to so many absent receivers in turn or all at once.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		publishers, inFlight, receivers int
		fanout                          bool
	}{
		{1, 1, 1, false}, {1, 100, 1, false}, {4, 100, 1, false}, {8, 100, 1, false}, {4, 100, 1000, false},
		{4, 100, 10, true}, {4, 100, 1000, true},
	} {
		b.Run(fmt.Sprintf("publishers=%d/inflight=%d/receivers=%d/all=%v", c.publishers, c.inFlight, c.receivers, c.fanout), func(b *testing.B) {
			s := open(b, b.TempDir())
			defer s.Close()
			subscribe(b, s, c.receivers, c.fanout)
			b.SetBytes(256)
			b.ReportAllocs()
			b.ResetTimer()
			load(b, s, c.publishers, c.inFlight, c.receivers, c.fanout)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(s.Stats().Commits)/float64(b.N), "syncs/msg")
		})
	}
}

func subscribe(b *testing.B, s inbox.Store, receivers int, fanout bool) {
	b.Helper()
	for i := range receivers {
		in, _, err := s.Open(context.Background(), inbox.Receiver(fmt.Sprintf("r%d", i)), inbox.OpenOptions{Expiry: inbox.ExpiryNever})
		if err != nil {
			b.Fatal(err)
		}
		filter := fmt.Sprintf("to/r%d", i)
		if fanout {
			filter = "to/all"
		}
		if _, err := in.Subscribe(context.Background(), inbox.Subscription{Filter: filter, QoS: 1}); err != nil {
			b.Fatal(err)
		}
		if err := in.Close(context.Background(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
			b.Fatal(err)
		}
	}
}

func load(b *testing.B, s inbox.Store, publishers, inFlight, receivers int, fanout bool) {
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			window := make(chan struct{}, inFlight)
			done := func(_ inbox.Receipt, err error) {
				if err != nil {
					b.Error(err)
				}
				<-window
			}
			payload := make([]byte, 256)
			for i := p; i < b.N; i += publishers {
				window <- struct{}{}
				topic := "to/all"
				if !fanout {
					topic = fmt.Sprintf("to/r%d", i%receivers)
				}
				s.Append(context.Background(), &inbox.Envelope{Topic: topic, Payload: payload, QoS: 1}, done)
			}
			for range inFlight {
				window <- struct{}{}
			}
		}()
	}
	wg.Wait()
}

// BenchmarkNext measures paging through a backlog of a million messages.
func BenchmarkNext(b *testing.B) {
	s := open(b, b.TempDir())
	defer s.Close()
	subscribe(b, s, 1, false)
	const backlog = 200_000
	var wg sync.WaitGroup
	wg.Add(backlog)
	for range backlog {
		s.Append(context.Background(), &inbox.Envelope{Topic: "to/r0", Payload: make([]byte, 256), QoS: 1},
			func(inbox.Receipt, error) { wg.Done() })
	}
	wg.Wait()
	b.SetBytes(256)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		in, _, err := s.Open(context.Background(), "r0", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
		if err != nil {
			b.Fatal(err)
		}
		for left := backlog; left > 0 && n < b.N; {
			page, err := in.Next(context.Background(), 200, 256<<10)
			if err != nil {
				b.Fatal(err)
			}
			n += len(page)
			left -= len(page)
		}
	}
}

// BenchmarkPublish measures exactly-once publishing: each message is stored with
// its packet id, which is completed and used again.
func BenchmarkPublish(b *testing.B) {
	s := open(b, b.TempDir())
	defer s.Close()
	subscribe(b, s, 1, false)
	in, _, err := s.Open(background, "publisher", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		b.Fatal(err)
	}
	const inFlight = 100
	window := make(chan uint16, inFlight)
	for id := range uint16(inFlight) {
		window <- id + 1
	}
	payload := make([]byte, 256)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		id := <-window
		in.Publish(background, id, &inbox.Envelope{Topic: "to/r0", Payload: payload, QoS: 2}, func(_ inbox.Receipt, err error) {
			if err != nil {
				b.Error(err)
			}
			go in.Complete(id, func(bool, error) { window <- id }) // done must not call the store
		})
	}
	for range inFlight {
		<-window
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkRetained measures a subscription to 10,000 retained messages, and one
// to a single of them.
func BenchmarkRetained(b *testing.B) {
	s := open(b, b.TempDir())
	defer s.Close()
	const retained = 10_000
	var wg sync.WaitGroup
	wg.Add(retained)
	for i := range retained {
		s.Append(background, &inbox.Envelope{Topic: fmt.Sprint("r/", i), Payload: make([]byte, 256), QoS: 1, Retain: true},
			func(inbox.Receipt, error) { wg.Done() })
	}
	wg.Wait()
	for _, filter := range []string{"r/+", "r/7777"} {
		b.Run(filter, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				in, _, err := s.Open(background, "r", inbox.OpenOptions{Expiry: inbox.ExpiryNever, Fresh: true})
				if err == nil {
					_, err = in.Subscribe(background, inbox.Subscription{Filter: filter, QoS: 1})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
