package hostiletest

import (
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// oddNames connects clients whose ids are strange. Each is refused, or gets a
// session of its own.
func oddNames(t *testing.T, p *patient) {
	long := strings.Repeat("x", 65535)
	for _, test := range []struct {
		id   string
		must bool // accept it
	}{
		{"odd:", true},
		{"odd/", true},
		{"odd \U0001F4DA", true},
		{"odd\xef\xbf\xbf", false},
		{long, false},
		{long[:65534] + "y", false},
		{"odd\x00", false},
		{"odd\x01\x1b[2J\n", false},
		{"odd\x7f\xc2\x80", false},
		{"odd\xff\xfe", false},
		{"odd\xed\xa0\x80", false}, // half of a surrogate pair
		{"odd\xc0\x80", false},     // NUL, longer than need be
	} {
		for version := byte(3); version <= 5; version++ {
			o := mqtttest.Options{ClientID: test.id, Version: version, SessionExpiry: 60}
			first, err := mqtttest.Open(p.Address, o)
			if err != nil {
				if test.must {
					t.Errorf("version %d, id %.20q: %v", version, test.id, err)
				}
				continue
			}
			first.Close()
			c := mqtttest.Dial(t, p.Address, o)
			if version > 3 && !c.SessionPresent { // MQTT 3.1 does not tell
				t.Errorf("version %d, id %.20q: there is no session to resume", version, test.id)
			}
			c.Subscribe("odd", 1)
			c.PublishAndWait("odd", test.id[:min(len(test.id), 100)], 1)
			if got := c.NextPublish(); string(got.Payload) != test.id[:min(len(test.id), 100)] {
				t.Errorf("version %d, id %.20q: got %s", version, test.id, mqtttest.Describe(got))
			}
			c.Disconnect()
			p.clean(t, test.id)
		}
	}
}

// hugeTopics publishes and subscribes to topics that are as long and as deep as
// can be. What the broker takes it delivers; what it does not it refuses, and
// others go on.
func hugeTopics(t *testing.T, p *patient) {
	const most = 65535
	watcher := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "watcher", Version: 5, Clean: true})
	for _, topic := range []string{
		strings.Repeat("t", most),
		strings.Repeat("/", most),
		strings.Repeat("a/", most/2),
		strings.Repeat("\U0001F4DA", most/4),
	} {
		for version := byte(4); version <= 5; version++ {
			for _, filter := range []string{topic, "#"} {
				huge(t, p, version, topic, filter)
			}
		}
		watcher.Ping()
	}
	for _, filter := range []string{
		strings.Repeat("+/", most/2) + "#",
		strings.Repeat("/+", most/2),
		"$share/g/" + strings.Repeat("/", most-len("$share/g/")),
		"$share/" + strings.Repeat("g", most-len("$share//t")) + "/t",
	} {
		c := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "huge", Version: 5, Clean: true})
		c.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: 1, Filters: packets.Subscriptions{{Filter: filter, Qos: 1}}})
		c.Next(mqtttest.Deadline) // whatever the answer is
		watcher.Ping()
		c.Cut()
	}
	watcher.Disconnect()
	p.clean(t, "huge")
}

// huge subscribes and publishes, and gets the message if both were accepted.
func huge(t *testing.T, p *patient, version byte, topic, filter string) {
	t.Helper()
	o := mqtttest.Options{ClientID: "huge", Version: version, SessionExpiry: 60}
	c := mqtttest.Dial(t, p.Address, o)
	defer c.Cut()
	c.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: 1, Filters: packets.Subscriptions{{Filter: filter, Qos: 1}}})
	suback, ok := c.Next(mqtttest.Deadline)
	if !ok || suback.FixedHeader.Type != packets.Suback || suback.ReasonCodes[0] >= 0x80 {
		return // refused
	}
	c.Publish(topic, "huge", 1)
	for acknowledged, received := false, false; !acknowledged || !received; {
		pk, ok := c.Next(mqtttest.Deadline)
		switch {
		case !ok && !acknowledged, ok && pk.FixedHeader.Type == packets.Puback && pk.ReasonCode >= 0x80, ok && pk.FixedHeader.Type == packets.Disconnect:
			return // refused
		case !ok:
			t.Errorf("version %d, topic %.10q of %d bytes: acknowledged and not delivered to %.10q", version, topic, len(topic), filter)
			return
		case pk.FixedHeader.Type == packets.Puback:
			acknowledged = true
		case pk.FixedHeader.Retain: // left by noise
		case pk.FixedHeader.Type == packets.Publish:
			received = true
			if pk.TopicName != topic {
				t.Errorf("version %d: topic %.10q came as %.10q of %d bytes", version, topic, pk.TopicName, len(pk.TopicName))
			}
		}
	}
}
