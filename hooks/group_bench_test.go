package hooks_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// BenchmarkGroup is the rate at which messages of 256 bytes, from one publisher
// with 100 on their way, go through a group of three connected members who
// acknowledge at once.
func BenchmarkGroup(b *testing.B) {
	br := start(b, setting{})
	members := openMembers(b, br, 3)
	publisher := br.conn(clean("publisher"))
	b.ResetTimer()
	done := make(chan error, 1)
	go func() { done <- receiveTogether(members, b.N) }()
	publishMany(b, publisher, b.N)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkGroupReplay is the rate at which three members take what their group
// has kept.
func BenchmarkGroupReplay(b *testing.B) {
	br := start(b, setting{})
	for _, m := range openMembers(b, br, 3) {
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
	publishMany(b, br.conn(clean("publisher")), b.N)
	var members []*mqtttest.Conn
	b.ResetTimer()
	for i := range 3 {
		members = append(members, br.conn(v3(fmt.Sprint("member-", i))))
	}
	if err := receiveTogether(members, b.N); err != nil {
		b.Fatal(err)
	}
}

// openMembers makes so many sessions of a group, each with a link.
func openMembers(b *testing.B, br *broker, n int) []*mqtttest.Conn {
	b.Helper()
	var members []*mqtttest.Conn
	for i := range n {
		o := v3(fmt.Sprint("member-", i))
		br.subscribed(o, share, 1)
		members = append(members, br.conn(o))
	}
	return members
}

// receiveTogether reads and acknowledges n messages, whoever gets them, and
// closes the links.
func receiveTogether(members []*mqtttest.Conn, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	errs := make(chan error, len(members))
	for _, m := range members {
		go func() {
			var acks []byte
			for {
				pk, err := m.Read()
				if err != nil && left.Load() > 0 {
					errs <- err
					return
				}
				if err != nil {
					errs <- nil
					return
				}
				acks = append(acks, 0x40, 2, byte(pk.PacketID>>8), byte(pk.PacketID))
				last := left.Add(-1) <= 0
				if last || !m.Pending() || len(acks) > 1000 {
					if err := m.WriteRaw(acks); err != nil {
						errs <- err
						return
					}
					acks = acks[:0]
				}
				if last {
					for _, m := range members {
						_ = m.Close() // ends the reading of the others
					}
				}
			}
		}()
	}
	for range members {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}
