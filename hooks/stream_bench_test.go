package hooks_test

import (
	"fmt"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// startOnDisk starts a broker whose store is on disk, with these options.
func startOnDisk(b *testing.B, o badger.Options) *broker {
	b.Helper()
	o.Dir = b.TempDir()
	br := &broker{t: b, store: openStore(b, o)}
	br.serve()
	b.Cleanup(func() {
		br.close()
		if err := br.store.Close(); err != nil {
			b.Error("close store:", err)
		}
	})
	return br
}

// BenchmarkReturn is the time from CONNECT to the last of 15 messages: for a
// receiver with one subscription, and for one with a thousand, of which three
// have five messages each.
func BenchmarkReturn(b *testing.B) {
	const subscriptions, news, few = 1000, 3, 5
	for _, c := range []struct {
		name    string
		options badger.Options
		filters int
	}{
		{"inbox", badger.Options{StreamFrom: -1}, 1},
		{"references", badger.Options{StreamFrom: -1}, subscriptions},
		{"streams", badger.Options{Pull: []string{"group/#"}}, subscriptions},
	} {
		b.Run(c.name, func(b *testing.B) {
			br := startOnDisk(b, c.options)
			for _, id := range []string{"member", "other"} {
				subscribeMany(br, id, c.filters)
			}
			publisher := br.conn(clean("publisher"))
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				b.StopTimer()
				for i := range news {
					topic := fmt.Sprintf("group/%d", (n+i*c.filters/news)%c.filters)
					publishTo(b, publisher, topic, few)
				}
				b.StartTimer()
				member := br.conn(v3("member"))
				if err := receiveMany(member, news*few); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				leave(b, member)
				b.StartTimer()
			}
		})
	}
}

// subscribeMany makes a session that is subscribed to groups 0 to n-1.
func subscribeMany(br *broker, id string, n int) {
	c := br.dial(v3(id))
	subs := make([]packets.Subscription, n)
	for i := range subs {
		subs[i] = packets.Subscription{Filter: fmt.Sprint("group/", i), Qos: 1}
	}
	c.SubscribeAll(subs...)
	c.Disconnect()
}

// publishTo publishes n messages of 256 bytes, and waits for the last to be
// acknowledged.
func publishTo(b *testing.B, c *mqtttest.Conn, topic string, n int) {
	b.Helper()
	for range n {
		pk := packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1},
			TopicName:   topic, PacketID: 1, Payload: make([]byte, 256),
		}
		if err := c.Write(pk); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(); err != nil {
			b.Fatal(err)
		}
	}
}

// leave says goodbye and waits until the broker has closed the connection.
func leave(b *testing.B, c *mqtttest.Conn) {
	b.Helper()
	if err := c.WriteRaw([]byte{packets.Disconnect << 4, 0}); err != nil {
		b.Fatal(err)
	}
	for {
		if _, err := c.Read(); err != nil {
			return
		}
	}
}
