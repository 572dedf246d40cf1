package mqtttest

import (
	"fmt"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Subscribe subscribes to one filter and returns the code of SUBACK.
func (c *Client) Subscribe(filter string, qos byte) byte {
	c.t.Helper()
	return c.SubscribeAll(packets.Subscription{Filter: filter, Qos: qos})[0]
}

// SubscribeAll sends one SUBSCRIBE and returns the codes of SUBACK. The
// identifier of the first subscription, if it has one, goes for all.
func (c *Client) SubscribeAll(subs ...packets.Subscription) []byte {
	c.t.Helper()
	return c.SubscribeWithID(c.NextID(), subs...)
}

// SubscribeWithID is SubscribeAll with a given packet id.
func (c *Client) SubscribeWithID(id uint16, subs ...packets.Subscription) []byte {
	c.t.Helper()
	pk := short(packets.Subscribe, id)
	pk.Filters = subs
	if len(subs) > 0 && subs[0].Identifier > 0 {
		pk.Properties.SubscriptionIdentifier = []int{subs[0].Identifier}
	}
	c.Send(pk)
	return c.answered(packets.Suback, id, len(subs))
}

// Unsubscribe sends one UNSUBSCRIBE and returns the codes of UNSUBACK, which
// has none before MQTT 5.
func (c *Client) Unsubscribe(filters ...string) []byte {
	c.t.Helper()
	pk := short(packets.Unsubscribe, c.NextID())
	for _, f := range filters {
		pk.Filters = append(pk.Filters, packets.Subscription{Filter: f})
	}
	c.Send(pk)
	if c.options.version() < 5 {
		return c.answered(packets.Unsuback, pk.PacketID, 0)
	}
	return c.answered(packets.Unsuback, pk.PacketID, len(filters))
}

func (c *Client) answered(kind byte, id uint16, codes int) []byte {
	c.t.Helper()
	what := fmt.Sprintf("%s %d", packets.PacketNames[kind], id)
	pk := c.await(what, func(pk packets.Packet) bool { return pk.FixedHeader.Type == kind && pk.PacketID == id })
	if len(pk.ReasonCodes) != codes {
		c.t.Fatalf("client %q: %s has %d codes, want %d", c.ID, what, len(pk.ReasonCodes), codes)
	}
	return pk.ReasonCodes
}

// Next returns the next packet of any kind, and false if none comes in time or
// the link has ended.
func (c *Client) Next(timeout time.Duration) (packets.Packet, bool) {
	return c.take(timeout, func(packets.Packet) bool { return true })
}

// NextOf waits for the next packet of a kind, such as packets.Pubrel, and
// leaves the others.
func (c *Client) NextOf(kind byte) packets.Packet {
	c.t.Helper()
	return c.await(packets.PacketNames[kind], func(pk packets.Packet) bool { return pk.FixedHeader.Type == kind })
}

// NextPublish waits for the next message.
func (c *Client) NextPublish() packets.Packet {
	c.t.Helper()
	return c.NextOf(packets.Publish)
}

// NextOn waits for the next message with this topic, and leaves the others.
func (c *Client) NextOn(topic string) packets.Packet {
	c.t.Helper()
	return c.await("a message on "+topic, func(pk packets.Packet) bool {
		return pk.FixedHeader.Type == packets.Publish && pk.TopicName == topic
	})
}

// Collect waits for n messages.
func (c *Client) Collect(n int) []packets.Packet {
	c.t.Helper()
	all := make([]packets.Packet, 0, n)
	for range n {
		pk := c.await(fmt.Sprintf("message %d of %d", len(all)+1, n), func(pk packets.Packet) bool {
			return pk.FixedHeader.Type == packets.Publish
		})
		all = append(all, pk)
	}
	return all
}

// Payloads waits for n messages and returns what is in them.
func (c *Client) Payloads(n int) []string {
	c.t.Helper()
	all := make([]string, 0, n)
	for _, pk := range c.Collect(n) {
		all = append(all, string(pk.Payload))
	}
	return all
}

// Silent fails the test if a message comes before the time is over. Time spent
// here is lost, so keep it short, and prefer to wait for something that must
// come after.
func (c *Client) Silent(d time.Duration) {
	c.t.Helper()
	pk, ok := c.take(d, func(pk packets.Packet) bool { return pk.FixedHeader.Type == packets.Publish })
	if ok {
		c.t.Fatalf("client %q: got %s, want no message", c.ID, Describe(pk))
	}
}

// Ack sends the first acknowledgement of a message: PUBACK for QoS 1, PUBREC
// for QoS 2.
func (c *Client) Ack(pk packets.Packet) {
	c.t.Helper()
	c.AckWith(pk, 0)
}

// AckWith is Ack with a reason code (MQTT 5).
func (c *Client) AckWith(pk packets.Packet, code byte) {
	c.t.Helper()
	ack := ackOf(pk)
	ack.ReasonCode = code
	c.Send(ack)
}

// Complete sends PUBCOMP, the answer to PUBREL.
func (c *Client) Complete(id uint16) {
	c.t.Helper()
	c.Send(short(packets.Pubcomp, id))
}
