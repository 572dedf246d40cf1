package mqtttest

import (
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Send sends a packet as the client's version encodes it.
func (c *Client) Send(pk packets.Packet) {
	c.t.Helper()
	if err := c.conn.Write(pk); err != nil {
		c.t.Fatalf("client %q: send %s: %v; %s", c.ID, Describe(pk), err, c.situation())
	}
}

// SendRaw sends bytes as they are.
func (c *Client) SendRaw(b []byte) {
	c.t.Helper()
	if err := c.conn.WriteRaw(b); err != nil {
		c.t.Fatalf("client %q: send %x: %v; %s", c.ID, b, err, c.situation())
	}
}

// Ping sends PINGREQ and waits for PINGRESP. What the broker has done on this
// client's read goroutine before is then done.
func (c *Client) Ping() {
	c.t.Helper()
	c.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pingreq}})
	c.NextOf(packets.Pingresp)
}

// Disconnect sends DISCONNECT and waits until the broker has closed the link.
// Each change is applied to the packet before it is sent.
func (c *Client) Disconnect(changes ...func(*packets.Packet)) {
	c.t.Helper()
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect}}
	for _, change := range changes {
		change(&pk)
	}
	c.Send(pk)
	c.WaitClosed()
}

// WithSessionExpiry changes the session expiry at DISCONNECT (MQTT 5).
func WithSessionExpiry(seconds uint32) func(*packets.Packet) {
	return func(pk *packets.Packet) {
		pk.Properties.SessionExpiryInterval, pk.Properties.SessionExpiryIntervalFlag = seconds, true
	}
}

// WaitClosed waits until the broker has closed the link. Packets that came
// before can still be taken.
func (c *Client) WaitClosed() {
	c.t.Helper()
	c.Thaw()
	timeout := time.NewTimer(Deadline)
	defer timeout.Stop()
	select {
	case <-c.done:
	case <-timeout.C:
		c.t.Fatalf("client %q: waited for the broker to close the link, but %s", c.ID, c.situation())
	}
}

// WaitDisconnect waits for the broker's DISCONNECT (MQTT 5) and for the end of
// the link, and returns the reason code.
func (c *Client) WaitDisconnect() byte {
	c.t.Helper()
	pk := c.NextOf(packets.Disconnect)
	c.WaitClosed()
	return pk.ReasonCode
}

// Cut ends the link without DISCONNECT. It may be called again.
func (c *Client) Cut() {
	_ = c.conn.Close() // a second close, or the broker was first
	c.Thaw()
	<-c.done
}

// Freeze stops reading from the link after at most one more packet, as a device
// does that has fallen asleep: the broker's writes fill the network's buffers.
func (c *Client) Freeze() {
	if !c.frozen {
		c.gate <- struct{}{}
		c.frozen = true
	}
}

// Thaw reads on after Freeze.
func (c *Client) Thaw() {
	if c.frozen {
		<-c.gate
		c.frozen = false
	}
}
