package hooks_test

import (
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A QoS 2 message belongs to the member that it was sent to, whatever breaks,
// and is nobody else's [MQTT-4.8.2-4].
func TestGroupQoS2StaysWithItsMember(t *testing.T) {
	b := start(t, setting{})
	c := b.member(exact(v5("c")), share, 2)
	b.dial(v5("publisher")).PublishAndWait("a", "x", 2)
	first := c.NextPublish()
	if first.FixedHeader.Qos != 2 || first.PacketID > inbox.MaxPacketID {
		t.Errorf("got %s, want QoS 2 under an id of the member's own", mqtttest.Describe(first))
	}
	c.Cut()
	other := b.member(v5("other"), share, 2)
	other.Silent(30 * time.Millisecond)
	b.restart()
	other = b.dial(v5("other"))
	other.Silent(30 * time.Millisecond)

	c = b.dial(exact(v5("c")))
	again := c.NextPublish()
	if again.PacketID != first.PacketID || !again.FixedHeader.Dup || string(again.Payload) != "x" {
		t.Errorf("got %s, want %s again", mqtttest.Describe(again), mqtttest.Describe(first))
	}
	c.Ack(again)
	c.NextOf(packets.Pubrel)
	c.Cut()
	b.restart()
	c = b.dial(exact(v5("c")))
	if pk := c.NextOf(packets.Pubrel); pk.PacketID != first.PacketID {
		t.Errorf("got %s, want PUBREL %d", mqtttest.Describe(pk), first.PacketID)
	}
	c.Complete(first.PacketID)
	c.Ping()
	c.Disconnect()
	b.restart()
	for _, id := range []string{"c", "other"} {
		b.dial(v5(id)).Silent(30 * time.Millisecond)
	}
}

// It ends with its member [MQTT-4.8.2-5]. What the member was not yet sent does
// not.
func TestGroupQoS2EndsWithItsMember(t *testing.T) {
	b := start(t, setting{})
	o := exact(withWindow(v5("c"), 3))
	c := b.member(o, share, 2)
	publisher := b.dial(v5("publisher"))
	for _, n := range numbers(1, 6) {
		publisher.PublishAndWait("a", n, 2)
	}
	wantPayloads(t, c.Payloads(3), numbers(1, 3))
	other := b.member(v5("other"), share, 2)
	wantPayloads(t, other.Payloads(3), numbers(4, 6))
	fresh := v5("c")
	fresh.Clean = true
	b.dial(fresh)
	publisher.PublishAndWait("a", "7", 2)
	wantPayloads(t, other.Payloads(1), []string{"7"})
	other.Silent(30 * time.Millisecond)
}

// Each QoS 2 message of a group goes to one member, in turn, and what each has
// ascends.
func TestGroupQoS2Balance(t *testing.T) {
	b := start(t, setting{})
	var members []*mqtttest.Client
	for _, id := range []string{"x", "y", "z"} {
		members = append(members, b.member(exact(withWindow(v5(id), 20)), share, 2))
	}
	publisher := b.dial(v5("publisher"))
	for _, n := range numbers(1, 100) {
		publisher.PublishAndWait("a", n, 2)
	}
	seen := map[string]int{}
	for _, m := range members {
		last := ""
		for _, p := range m.Payloads(20) {
			if byNumber(p, last) <= 0 {
				t.Errorf("%s: %s after %s", m.ID, p, last)
			}
			last = p
			seen[p]++
		}
	}
	for _, n := range numbers(1, 60) {
		if seen[n] != 1 {
			t.Errorf("message %s came %d times", n, seen[n])
		}
	}
	for _, m := range members {
		m.Silent(10 * time.Millisecond)
	}
}

// No more belongs to a member than it has room for: the rest is for others.
func TestGroupQoS2KeepsTheRest(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("x"), share, 2)
	b.subscribed(v5("y"), share, 2)
	publisher := b.dial(v5("publisher"))
	for _, n := range numbers(1, 100) {
		publisher.PublishAndWait("a", n, 2)
	}
	x := b.dial(exact(withWindow(v5("x"), 5)))
	wantPayloads(t, x.Payloads(5), numbers(1, 5))
	wantPayloads(t, b.dial(v5("y")).Payloads(95), numbers(6, 100))
}

// A member granted QoS 1 and one granted QoS 2 share messages of QoS 2.
func TestGroupOfMixedQoS(t *testing.T) {
	b := start(t, setting{})
	one, two, none := b.member(v5("one"), share, 1), b.member(v5("two"), share, 2), b.member(v5("none"), share, 0)
	publisher := b.dial(v5("publisher"))
	for _, n := range numbers(1, 90) {
		publisher.PublishAndWait("a", n, 2)
	}
	for qos, c := range map[byte]*mqtttest.Client{0: none, 1: one, 2: two} {
		for _, pk := range c.Collect(30) {
			if pk.FixedHeader.Qos != qos {
				t.Errorf("%s: got %s", c.ID, mqtttest.Describe(pk))
			}
		}
		c.Silent(10 * time.Millisecond)
	}
}
