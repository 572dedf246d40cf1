package hooks_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// numbers are the payloads from first to last.
func numbers(first, last int) []string {
	var all []string
	for i := first; i <= last; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

func wantPayloads(t testing.TB, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("received %d messages, want %d; number %d is %.40q, want %.40q", len(got), len(want), i, got[i], want[i])
		}
	}
	t.Fatalf("received %d messages, want %d", len(got), len(want))
}

// publish publishes numbers to a topic at QoS 1, as fast as they are
// acknowledged with at most 200 on their way.
func (b *broker) publish(topic string, first, last int) {
	b.t.Helper()
	if err := publishNumbers(b.addr, "publisher-"+topic, topic, first, last); err != nil {
		b.t.Fatal(err)
	}
}

func publishNumbers(addr, id, topic string, first, last int) error {
	conn, err := mqtttest.Open(addr, mqtttest.Options{ClientID: id, Clean: true})
	if err != nil {
		return err
	}
	defer conn.Close()
	const window = 200
	for i, waiting := first, 0; i <= last || waiting > 0; {
		if i <= last && waiting < window {
			pk := packets.Packet{
				FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1},
				TopicName:   topic,
				PacketID:    uint16(i%60000 + 1),
				Payload:     []byte(strconv.Itoa(i)),
			}
			if err := conn.Buffer(pk); err != nil {
				return err
			}
			i++
			waiting++
			continue
		}
		if err := conn.Flush(); err != nil {
			return err
		}
		ack, err := conn.ReadWithin(mqtttest.Deadline)
		if err != nil {
			return fmt.Errorf("wait for PUBACK: %w", err)
		}
		if ack.FixedHeader.Type != packets.Puback {
			return fmt.Errorf("got %s, want PUBACK", mqtttest.Describe(ack))
		}
		waiting--
	}
	return nil
}

// conn is a link for many messages, which ends with the test.
func (b *broker) conn(o mqtttest.Options) *mqtttest.Conn {
	b.t.Helper()
	c, err := mqtttest.Open(b.addr, o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return c
}

// receive reads n messages and acknowledges each at once.
func receive(t testing.TB, c *mqtttest.Conn, n int) []packets.Packet {
	t.Helper()
	all := make([]packets.Packet, 0, n)
	for len(all) < n {
		pk, err := c.ReadWithin(mqtttest.Deadline)
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(all), n, err)
		}
		if pk.FixedHeader.Type != packets.Publish {
			t.Fatalf("after %d of %d messages: %s", len(all), n, mqtttest.Describe(pk))
		}
		all = append(all, pk)
		acknowledge(t, c, pk)
	}
	return all
}

func acknowledge(t testing.TB, c *mqtttest.Conn, pk packets.Packet) {
	t.Helper()
	if pk.FixedHeader.Qos == 0 {
		return
	}
	err := c.Write(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: pk.PacketID})
	if err != nil {
		t.Fatal(err)
	}
}

// drain reads and acknowledges what comes until nothing has come for a while.
func drain(t testing.TB, c *mqtttest.Conn, quiet time.Duration) []packets.Packet {
	t.Helper()
	var all []packets.Packet
	for {
		pk, err := c.ReadWithin(quiet)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if pk.FixedHeader.Type == packets.Publish {
			all = append(all, pk)
			acknowledge(t, c, pk)
		}
	}
}

func payloads(all []packets.Packet) []string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = string(all[i].Payload)
	}
	return texts
}

func ids(all []packets.Packet) []uint16 {
	list := make([]uint16, len(all))
	for i := range all {
		list[i] = all[i].PacketID
	}
	return list
}

// wantDup checks the DUP flag of each message.
func wantDup(t testing.TB, all []packets.Packet, want ...bool) {
	t.Helper()
	for i := range all {
		if all[i].FixedHeader.Dup != want[i] {
			t.Errorf("%s: dup %t, want %t", mqtttest.Describe(all[i]), all[i].FixedHeader.Dup, want[i])
		}
	}
}
