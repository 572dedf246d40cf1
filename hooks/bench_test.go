package hooks_test

import (
	"fmt"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// BenchmarkPublish is the rate at which one publisher has messages of 256 bytes
// acknowledged, 100 on their way, for a receiver that is away.
func BenchmarkPublish(b *testing.B) {
	br := start(b, setting{})
	br.subscribed(v3("receiver"), "a", 1)
	publisher := br.conn(clean("publisher"))
	b.ResetTimer()
	publishMany(b, publisher, b.N)
}

// BenchmarkLive is the same with a receiver who is there, until all has come.
func BenchmarkLive(b *testing.B) {
	br := start(b, setting{})
	br.subscribed(v3("receiver"), "a", 1)
	receiver, publisher := br.conn(v3("receiver")), br.conn(clean("publisher"))
	b.ResetTimer()
	done := make(chan error, 1)
	go func() { done <- receiveMany(receiver, b.N) }()
	publishMany(b, publisher, b.N)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkReplay is the rate at which a backlog reaches a receiver who
// acknowledges at once.
func BenchmarkReplay(b *testing.B) {
	br := start(b, setting{})
	br.subscribed(v3("receiver"), "a", 1)
	publishMany(b, br.conn(clean("publisher")), b.N)
	receiver := br.conn(v3("receiver"))
	b.ResetTimer()
	if err := receiveMany(receiver, b.N); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSubscribe is the rate at which a program is handed what one publisher
// publishes, until it has all.
func BenchmarkSubscribe(b *testing.B) {
	br := start(b, setting{})
	handled := 0
	done := make(chan struct{})
	stop, err := br.hook.Subscribe(b.Context(), "a", func(inbox.Entry) {
		if handled++; handled == b.N {
			close(done)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	publisher := br.conn(clean("publisher"))
	b.ResetTimer()
	publishMany(b, publisher, b.N)
	<-done
}

// BenchmarkPublishQoS2 is BenchmarkPublish at QoS 2, from PUBLISH to PUBCOMP.
func BenchmarkPublishQoS2(b *testing.B) {
	br := start(b, setting{})
	br.subscribed(v3("receiver"), "a", 2)
	publisher := br.conn(clean("publisher"))
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 2}, TopicName: "a", Payload: make([]byte, 256)}
	b.ResetTimer()
	for sent, completed := 0, 0; completed < b.N; {
		for ; sent < b.N && sent-completed < 100; sent++ {
			pk.PacketID = uint16(sent%1000 + 1)
			if err := publisher.Buffer(pk); err != nil {
				b.Fatal(err)
			}
		}
		if err := publisher.Flush(); err != nil {
			b.Fatal(err)
		}
		for ok := true; ok; ok = publisher.Pending() && completed < sent {
			answer, err := publisher.Read()
			if err != nil {
				b.Fatal(err)
			}
			if answer.FixedHeader.Type == packets.Pubcomp {
				completed++
				continue
			}
			release := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrel, Qos: 1}, PacketID: answer.PacketID}
			if err := publisher.Buffer(release); err != nil {
				b.Fatal(err)
			}
		}
		if err := publisher.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

func publishMany(b *testing.B, c *mqtttest.Conn, n int) {
	b.Helper()
	pk := packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Publish, Qos: 1},
		ProtocolVersion: 4,
		TopicName:       "a",
		PacketID:        1,
		Payload:         make([]byte, 256),
	}
	frame, err := mqtttest.Encode(pk)
	if err != nil {
		b.Fatal(err)
	}
	if err := publishFrames(c, [][]byte{frame}, n); err != nil {
		b.Fatal(err)
	}
}

// publishFrames has n messages acknowledged, which are frames in turn, 100 on their way.
func publishFrames(c *mqtttest.Conn, frames [][]byte, n int) error {
	const window = 100
	var burst []byte
	for sent, acked := 0, 0; acked < n; {
		burst = burst[:0]
		for ; sent < n && sent-acked < window; sent++ {
			burst = append(burst, frames[sent%len(frames)]...)
		}
		if err := c.WriteRaw(burst); err != nil {
			return err
		}
		for ok := true; ok; ok = c.Pending() && acked < sent {
			if _, err := c.Read(); err != nil {
				return err
			}
			acked++
		}
	}
	return nil
}

func receiveMany(c *mqtttest.Conn, n int) error {
	var acks []byte
	for i := range n {
		pk, err := c.Read()
		if err != nil {
			return fmt.Errorf("after %d messages: %w", i, err)
		}
		acks = append(acks, 0x40, 2, byte(pk.PacketID>>8), byte(pk.PacketID))
		if !c.Pending() || len(acks) > 1000 {
			if err := c.WriteRaw(acks); err != nil {
				return err
			}
			acks = acks[:0]
		}
	}
	return nil
}
