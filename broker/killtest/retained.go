package killtest

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// retained publishes ascending numbers, to be retained, without pause. After
// each kill a new subscriber gets at least the number that was acknowledged last.
// A topic that was cleared stays so.
type retained struct {
	*run

	mu     sync.Mutex // guards what follows
	values [counters]value
}

// counters is how many topics have numbers.
const counters = 3

// value is the latest number of one topic, from 1.
type value struct{ sent, acknowledged int }

func (x *retained) before(t testing.TB, round int) {
	c := x.dial(t, "marker", nil)
	defer c.Disconnect()
	if round == 0 {
		x.clients.Go(x.publishAll)
	} else {
		c.PublishAndWait(mark(round-1), "", x.QoS, mqtttest.Retain)
	}
	c.PublishAndWait(mark(round), "set", x.QoS, mqtttest.Retain)
}

// after subscribes anew. The first message of each topic is the retained one, or
// one that was published while the broker subscribed.
func (x *retained) after(t testing.TB, round int) {
	old := x.snapshot()
	want := map[string]bool{mark(round): true}
	for i, v := range old {
		if v.acknowledged > 0 {
			want[counter(i)] = true
		}
	}
	c := mqtttest.Dial(t, x.Address, mqtttest.Options{ClientID: "newcomer", Version: 5, Clean: true})
	defer c.Disconnect()
	c.Subscribe("retained/#", x.QoS)
	got := map[string]string{}
	for len(want) > 0 {
		pk, ok := c.Next(mqtttest.Deadline)
		if !ok {
			break // what is missing is found below
		}
		if _, later := got[pk.TopicName]; later {
			if pk.FixedHeader.Retain {
				x.ledger.Violate("%s: %s came after another message", c.ID, mqtttest.Describe(pk))
			}
			continue
		}
		if pk.FixedHeader.Qos != x.QoS {
			x.ledger.Violate("%s: got %s, want qos %d", c.ID, mqtttest.Describe(pk), x.QoS)
		}
		got[pk.TopicName] = string(pk.Payload)
		delete(want, pk.TopicName)
	}
	x.check(old, got, mark(round))
}

// check compares what came first of each topic.
func (x *retained) check(old [counters]value, got map[string]string, mark string) {
	for i, v := range x.snapshot() {
		topic := counter(i)
		n, err := strconv.Atoi(got[topic])
		if (err != nil && old[i].acknowledged > 0) || n < old[i].acknowledged || n > v.sent {
			x.ledger.Violate("%s: retained is %q, want %d to %d", topic, got[topic], old[i].acknowledged, v.sent)
		}
		delete(got, topic)
	}
	if len(got) != 1 || got[mark] != "set" {
		x.ledger.Violate("retained is %v, want %s alone", got, mark)
	}
}

func (x *retained) finally(testing.TB) {}

func (x *retained) snapshot() [counters]value {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.values
}

// publishAll is the publisher's goroutine, until the sending ends. What was not
// acknowledged when a link broke is not sent again.
func (x *retained) publishAll() {
	for x.publish.Err() == nil {
		c, ok := x.open(mqtttest.Options{ClientID: "retainer", Clean: true})
		if !ok {
			return
		}
		for i := 0; x.publish.Err() == nil; i = (i + 1) % counters {
			if x.publishOne(c, i) != nil {
				break
			}
			pause(x.publish, x.Pause)
		}
		_ = c.Close() // the broker may have been first
	}
}

func (x *retained) publishOne(c *conn, i int) error {
	x.mu.Lock()
	x.values[i].sent++
	n := x.values[i].sent
	x.mu.Unlock()
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: x.QoS, Retain: true},
		PacketID:    uint16(i) + 1, //nolint:gosec // a few
		TopicName:   counter(i),
		Payload:     []byte(strconv.Itoa(n)),
	}
	if err := c.Write(pk); err != nil {
		return err
	}
	for {
		pk, err := c.ReadWithin(mqtttest.Deadline)
		if err != nil {
			return err
		}
		switch pk.FixedHeader.Type {
		case packets.Puback, packets.Pubrec:
			x.mu.Lock()
			x.values[i].acknowledged = n
			x.mu.Unlock()
		case packets.Pubcomp:
		default:
			return x.unasked("retainer", c, pk)
		}
		if pk.FixedHeader.Type != packets.Pubrec {
			return nil
		}
		if err := c.Write(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrel}, PacketID: pk.PacketID}); err != nil {
			return err
		}
	}
}

func counter(i int) string { return fmt.Sprintf("retained/counter/%d", i) }

func mark(round int) string { return fmt.Sprintf("retained/mark/%d", round) }
