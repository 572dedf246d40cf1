package mqtttest

import (
	"fmt"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Publish sends a message without waiting, and returns its packet id (0 for QoS
// 0). Each change is applied to the packet before it is sent.
func (c *Client) Publish(topic, payload string, qos byte, changes ...func(*packets.Packet)) uint16 {
	c.t.Helper()
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: qos},
		TopicName:   topic,
		Payload:     []byte(payload),
	}
	if qos > 0 {
		pk.PacketID = c.NextID()
	}
	for _, change := range changes {
		change(&pk)
	}
	c.Send(pk)
	return pk.PacketID
}

// PublishAndWait sends a message and waits until it is acknowledged with
// success.
func (c *Client) PublishAndWait(topic, payload string, qos byte, changes ...func(*packets.Packet)) {
	c.t.Helper()
	id := c.Publish(topic, payload, qos, changes...)
	if qos == 0 {
		return
	}
	if ack := c.WaitAck(id); ack.ReasonCode >= 0x80 {
		c.t.Fatalf("client %q: publish %q to %q: answered with %s", c.ID, payload, topic, Describe(ack))
	}
}

// NextID returns the next packet id of the client, from 1 to 65,535 and round.
func (c *Client) NextID() uint16 {
	if c.lastID++; c.lastID == 0 {
		c.lastID = 1
	}
	return c.lastID
}

// WaitAck waits for the last acknowledgement of a published message: PUBACK,
// PUBCOMP, or a PUBREC that refuses.
func (c *Client) WaitAck(id uint16) packets.Packet {
	c.t.Helper()
	return c.await(fmt.Sprintf("the acknowledgement of %d", id), func(pk packets.Packet) bool {
		switch pk.FixedHeader.Type {
		case packets.Puback, packets.Pubcomp:
			return pk.PacketID == id
		case packets.Pubrec:
			return pk.PacketID == id && pk.ReasonCode >= 0x80
		}
		return false
	})
}

// Release sends PUBREL.
func (c *Client) Release(id uint16) {
	c.t.Helper()
	c.Send(short(packets.Pubrel, id))
}

// Retain asks the broker to keep the message for later subscribers.
func Retain(pk *packets.Packet) { pk.FixedHeader.Retain = true }

// Dup marks the message as sent before.
func Dup(pk *packets.Packet) { pk.FixedHeader.Dup = true }

// WithID sends the message with this packet id.
func WithID(id uint16) func(*packets.Packet) {
	return func(pk *packets.Packet) { pk.PacketID = id }
}

// WithExpiry makes the message expire after so many seconds.
func WithExpiry(seconds uint32) func(*packets.Packet) {
	return func(pk *packets.Packet) { pk.Properties.MessageExpiryInterval = seconds }
}

// WithUser adds a user property.
func WithUser(key, value string) func(*packets.Packet) {
	return func(pk *packets.Packet) {
		pk.Properties.User = append(pk.Properties.User, packets.UserProperty{Key: key, Val: value})
	}
}
