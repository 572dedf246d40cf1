package hooks_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// A client that breaks the protocol is told so and loses its connection, and
// nobody else notices.
func TestMalformedFrameEndsOneConnection(t *testing.T) {
	b := start(t, setting{})
	other := b.dial(v5("other"))
	other.Subscribe("will/#", 1)
	tests := []struct {
		name  string
		frame string
		code  byte
	}{
		{"subscribe without options", "\x82\x07\x00\x01\x00\x00\x02ab", 0x81},
		{"subscribe with reserved options", "\x82\x07\x00\x01\x00\x00\x01a\x40", 0x81},
		{"subscribe to nothing", "\x82\x03\x00\x01\x00", 0x82},
		{"subscription identifier 0", "\x82\x09\x00\x01\x02\x0B\x00\x00\x01a\x00", 0x82},
		{"unsubscribe with id 0", "\xA2\x06\x00\x00\x00\x00\x01a", 0x82},
		{"publish to a wildcard", "\x30\x04\x00\x01#\x00", 0x81},
		{"publish at QoS 3", "\x36\x06\x00\x01a\x00\x01\x00", 0x81},
		{"publish at QoS 0 again", "\x38\x04\x00\x01a\x00", 0x81},
		{"publish with a property twice", "\x30\x08\x00\x01a\x04\x01\x01\x01\x01", 0x82},
		{"publish with topic alias 0", "\x30\x07\x00\x01a\x03\x23\x00\x00", 0x94},
		{"publish to a control character", "\x30\x04\x00\x01\x01\x00", 0x81},
		{"PUBACK that says nothing known", "\x40\x03\x00\x01\x01", 0x82},
		{"second CONNECT", "\x10\x0E\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01i", 0x82},
		{"AUTH", "\xF0\x00", 0x82},
		{"PINGRESP", "\xD0\x00", 0x82},
		{"PINGREQ with flags", "\xC1\x00", 0x81},
		{"type 0", "\x00\x00", 0x81},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			topic := "will/" + strings.ReplaceAll(tt.name, " ", "-")
			o := v5("modern")
			o.Will = &mqtttest.Will{Topic: topic, Payload: "modern", QoS: 1}
			modern := b.dial(o)
			modern.SendRaw([]byte(tt.frame))
			if code := modern.WaitDisconnect(); code != tt.code {
				t.Errorf("DISCONNECT %#x, want %#x", code, tt.code)
			}
			wantPayloads(t, other.Payloads(1), []string{"modern"})
		})
	}
	old := b.dial(v3("old"))
	old.SendRaw([]byte{0x82, 6, 0, 1, 0, 1, 'a', 3})
	old.WaitClosed()
	if pk, ok := old.Next(0); ok {
		t.Errorf("got %s, want nothing", mqtttest.Describe(pk))
	}
	other.Ping()
}

// What a first frame is refused with.
func TestConnectRefused(t *testing.T) {
	b := start(t, setting{})
	tests := []struct {
		name    string
		version byte // in whose form the answer comes
		frame   string
		code    byte
	}{
		{"receive maximum 0", 5, "\x10\x11\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x00\x00\x01i", 0x82},
		{"authentication method", 5, "\x10\x12\x00\x04MQTT\x05\x02\x00\x00\x04\x15\x00\x01m\x00\x01i", 0x8C},
		{"reserved flag", 5, "\x10\x0E\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x01i", 0x81},
		{"unknown version", 5, "\x10\x0E\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x01i", 0x84},
		{"old version", 4, "\x10\x0D\x00\x04MQTT\x02\x02\x00\x00\x00\x01i", 0x01},
		{"no client id, not clean", 4, "\x10\x0C\x00\x04MQTT\x04\x00\x00\x00\x00\x00", 0x02},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := mqtttest.DialRaw(t, b.addr, mqtttest.Options{Version: tt.version})
			c.SendRaw([]byte(tt.frame))
			if pk := c.NextOf(packets.Connack); pk.ReasonCode != tt.code || pk.SessionPresent {
				t.Errorf("got %s, want code %#x", mqtttest.Describe(pk), tt.code)
			}
			c.WaitClosed()
		})
	}
	for name, frame := range map[string]string{
		"reserved flag":  "\x10\x0D\x00\x04MQTT\x04\x03\x00\x00\x00\x01i",
		"other protocol": "\x10\x0D\x00\x04HTTP\x04\x02\x00\x00\x00\x01i",
		"no CONNECT":     "\x30\x03\x00\x01a",
	} {
		t.Run(name, func(t *testing.T) {
			c := mqtttest.DialRaw(t, b.addr, v3(""))
			c.SendRaw([]byte(frame))
			c.WaitClosed()
			if pk, ok := c.Next(0); ok {
				t.Errorf("got %s, want nothing", mqtttest.Describe(pk))
			}
		})
	}
}

// Only the reason 0 takes the will away [MQTT-3.14.4-3], and the reason may
// stand alone.
func TestDisconnectReasonKeepsWill(t *testing.T) {
	b := start(t, setting{})
	watcher := b.dial(v5("watcher"))
	watcher.Subscribe("will", 1)
	for _, frame := range [][]byte{{0xE0, 0}, {0xE0, 1, 0}, {0xE0, 2, 0, 0}, {0xE0, 1, 4}, {0xE0, 2, 0x80, 0}, {0xE0, 1, 0x98},
		{0xE0, 7, 0x99, 5, 0x11, 0, 0, 0, 0}} {
		o := v5("client")
		o.Will = &mqtttest.Will{Topic: "will", Payload: string(frame), QoS: 1}
		c := b.dial(o)
		c.SendRaw(frame)
		c.WaitClosed()
		if len(frame) > 2 && frame[2] != 0 {
			if pk := watcher.NextPublish(); !bytes.Equal(pk.Payload, frame) {
				t.Errorf("will %x, want that of %x", pk.Payload, frame)
			}
		}
	}
	b.publish("will", 1, 1)
	wantPayloads(t, watcher.Payloads(1), numbers(1, 1)) // and no more wills
	if b.dial(v5("client")).SessionPresent {
		t.Error("session present, want it ended by the last DISCONNECT")
	}
}

// MQTT 3.1 has other rules for the flags of the fixed header.
func TestOldFlags(t *testing.T) {
	b := start(t, setting{})
	old := mqtttest.DialRaw(t, b.addr, mqtttest.Options{Version: 3})
	old.SendRaw([]byte("\x1F\x0F\x00\x06MQIsdp\x03\x01\x00\x00\x00\x01i"))
	if pk := old.NextOf(packets.Connack); pk.ReasonCode != 0 {
		t.Fatalf("got %s, want it accepted", mqtttest.Describe(pk))
	}
	old.SendRaw([]byte("\x8A\x06\x00\x01\x00\x01a\x01")) // sent again
	old.NextOf(packets.Suback)
	old.SendRaw([]byte("\x38\x04\x00\x01a1"))
	wantPayloads(t, old.Payloads(1), numbers(1, 1))
	old.SendRaw([]byte("\x3A\x06\x00\x01a\x00\x012"))
	wantPayloads(t, old.Payloads(1), numbers(2, 2))
	old.SendRaw([]byte("\xC9\x00"))
	old.NextOf(packets.Pingresp)
	old.SendRaw([]byte("\xE0\x00"))
	old.WaitClosed()

	// And no flag for a session that is resumed, which this one is.
	b.publish("a", 3, 3)
	old = b.dial(mqtttest.Options{ClientID: "i", Version: 3})
	if old.SessionPresent {
		t.Error("session present, which MQTT 3.1 does not have")
	}
	wantPayloads(t, old.Payloads(1), numbers(3, 3))
}

// Frames larger than the read buffer are inspected and passed on whole.
func TestLargeFrames(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v5("receiver"))
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: 1}
	for i := range 200 {
		pk.Filters = append(pk.Filters, packets.Subscription{Filter: strings.Repeat("x", 100+i), Qos: 1})
	}
	receiver.Send(pk)
	if pk := receiver.NextOf(packets.Suback); bytes.Count(pk.ReasonCodes, []byte{1}) != 200 {
		t.Errorf("SUBACK %x, want 200 times QoS 1", pk.ReasonCodes)
	}
	receiver.Ping()

	publisher := b.dial(v5("publisher"))
	message := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1},
		TopicName:   strings.Repeat("x", 150),
		Payload:     bytes.Repeat([]byte("payload"), 20_000),
	}
	for i := range 1000 {
		message.Properties.User = append(message.Properties.User, packets.UserProperty{Key: "key", Val: strings.Repeat("v", i%50)})
	}
	for id := uint16(1); id <= 2; id++ {
		message.PacketID = id
		publisher.Send(message)
		publisher.NextOf(packets.Puback)
		got := receiver.NextPublish()
		if !bytes.Equal(got.Payload, message.Payload) || len(got.Properties.User) != 1000 {
			t.Fatalf("got %s with %d user properties, want what was sent", mqtttest.Describe(got), len(got.Properties.User))
		}
	}

	// The fault is far behind the beginning.
	message.Properties.User[999].Val = "\x01"
	publisher.Send(message)
	if code := publisher.WaitDisconnect(); code != 0x81 {
		t.Errorf("DISCONNECT %#x, want 0x81", code)
	}
}

// An acknowledgement may be larger than the read buffer too.
func TestLargeAck(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(manual(v5("receiver")))
	receiver.Subscribe("a", 1)
	b.publish("a", 1, 2)
	for _, pk := range receiver.Collect(2) {
		ack := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: pk.PacketID}
		for range 1000 {
			ack.Properties.User = append(ack.Properties.User, packets.UserProperty{Key: "key", Val: "value"})
		}
		receiver.Send(ack)
	}
	receiver.Ping()
	receiver.Disconnect()
	b.awaitAway(receiver.ID)
	b.publish("a", 3, 3)
	wantPayloads(t, b.dial(v5("receiver")).Payloads(1), numbers(3, 3))
}

// A client that goes on sending can still read why its connection ends.
func TestClientThatSendsOnHearsWhy(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("client"))
	c.SendRaw([]byte{0x82, 3, 0, 1, 0})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		c.SendRaw([]byte{0xC0, 0})
		<-tick.C
	}
	if code := c.WaitDisconnect(); code != 0x82 {
		t.Errorf("DISCONNECT %#x, want 0x82", code)
	}
}
