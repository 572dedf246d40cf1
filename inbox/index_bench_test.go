package inbox

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

func BenchmarkIndexMatch(b *testing.B) {
	for _, c := range []struct{ name, filter, topic string }{
		{"one of 1000000", "inbox/client%d/#", "inbox/client%d/chat"},
		{"one of 1000000 with three levels", "device/client%d/command", "device/client%d/command"},
	} {
		own := NewIndex()
		for i := range 1_000_000 {
			own.Subscribe(Member(i+1), Subscription{Filter: fmt.Sprintf(c.filter, i), QoS: 1})
		}
		b.Run(c.name, func(b *testing.B) {
			topics := make([]string, 1<<16)
			for i := range topics {
				topics[i] = fmt.Sprintf(c.topic, rand.IntN(1_000_000))
			}
			var dst []Match
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				dst = own.Match(topics[i%len(topics)], 0, dst[:0])
			}
			if len(dst) != 1 {
				b.Fatal(dst)
			}
		})
	}
	b.Run("65535 slashes", func(b *testing.B) {
		x := NewIndex()
		x.Subscribe(1, Subscription{Filter: "#"})
		x.Subscribe(2, Subscription{Filter: strings.Repeat("+/", 32_767) + "+"})
		topic := strings.Repeat("/", 65_535)
		var dst []Match
		b.ReportAllocs()
		for b.Loop() {
			dst = x.Match(topic, 0, dst[:0])
		}
	})
	for _, filters := range [][]string{{"all"}, {"all", "+"}} {
		for _, members := range []int{1, 10, 10_000} {
			x := NewIndex()
			for i := range members {
				for _, f := range filters {
					x.Subscribe(Member(i+1), Subscription{Filter: f, QoS: 1})
				}
			}
			b.Run(fmt.Sprintf("members=%d/filters=%d", members, len(filters)), func(b *testing.B) {
				var dst []Match
				b.ReportAllocs()
				for b.Loop() {
					dst = x.Match("all", 0, dst[:0])
				}
				if len(dst) != members {
					b.Fatal(len(dst))
				}
			})
		}
	}
}

// A million subscriptions: what each costs in memory and time.
func BenchmarkIndexMemory(b *testing.B) {
	const n = 1_000_000
	for _, c := range []struct{ name, filter string }{
		{"own two levels", "inbox/client%06d"},
		{"own three levels with #", "inbox/client%06d/#"},
		{"own three levels", "device/client%06d/command"},
		{"one filter", "all/devices"},
	} {
		b.Run(c.name, func(b *testing.B) {
			filters := make([]string, n)
			for i := range filters {
				filters[i] = c.filter
				if strings.Contains(c.filter, "%") {
					filters[i] = fmt.Sprintf(c.filter, i)
				}
			}
			for b.Loop() {
				before := heap()
				start := time.Now()
				x := NewIndex()
				for i, f := range filters {
					x.Subscribe(Member(i+1), Subscription{Filter: f, QoS: 1})
				}
				took := time.Since(start)
				b.ReportMetric(float64(heap()-before)/n, "B/sub")
				b.ReportMetric(float64(took.Nanoseconds())/n, "ns/sub")
				b.ReportMetric(0, "ns/op")
				runtime.KeepAlive(x)
			}
		})
	}
}

// One member of very many leaves a filter, and another comes.
func BenchmarkIndexChurn(b *testing.B) {
	x := NewIndex()
	const n = 1_000_000
	for i := range n {
		x.Subscribe(Member(i+1), Subscription{Filter: "all/devices", QoS: 1})
	}
	b.ReportAllocs()
	for b.Loop() {
		m := Member(1 + rand.IntN(n))
		x.Unsubscribe(m, "all/devices")
		x.Subscribe(m, Subscription{Filter: "all/devices", QoS: 1})
	}
}

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
