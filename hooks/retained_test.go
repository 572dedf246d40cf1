package hooks_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// Retained messages are kept with all that they were published with, at every
// QoS, over a restart.
func TestRetained(t *testing.T) {
	b := start(t, setting{})
	publisher := b.dial(v5("publisher"))
	publisher.PublishAndWait("a/0", "kept", 0, mqtttest.Retain)
	publisher.PublishAndWait("a/1", "kept", 1, mqtttest.Retain, mqtttest.WithUser("k", "v"), mqtttest.WithExpiry(600))
	publisher.PublishAndWait("a/2", "kept", 2, mqtttest.Retain)
	publisher.PublishAndWait("a/2", "", 1, mqtttest.Retain)
	publisher.PublishAndWait("a/3", "replaced", 2, mqtttest.Retain)
	publisher.PublishAndWait("a/3", "kept", 2, mqtttest.Retain)
	publisher.PublishAndWait("a/4", "kept", 2, mqtttest.Retain)
	publisher.PublishAndWait("a/4", "", 0, mqtttest.Retain)
	publisher.PublishAndWait("a", "kept", 1, mqtttest.Retain)
	for _, restart := range []bool{false, true} {
		if restart {
			b.restart()
		}
		receiver := b.dial(v5("receiver"))
		receiver.Subscribe("a/#", 1)
		qos := map[string]byte{}
		for _, pk := range receiver.Collect(4) {
			qos[pk.TopicName] = pk.FixedHeader.Qos
			if string(pk.Payload) != "kept" || !pk.FixedHeader.Retain {
				t.Errorf("got %s", mqtttest.Describe(pk))
			}
			if left := pk.Properties.MessageExpiryInterval; pk.TopicName == "a/1" && (len(pk.Properties.User) != 1 || left > 600 || left < 590) {
				t.Errorf("properties %+v", pk.Properties)
			}
		}
		for topic, want := range map[string]byte{"a": 1, "a/0": 0, "a/1": 1, "a/3": 1} {
			if got, ok := qos[topic]; !ok || got != want {
				t.Errorf("restart %t: %s came at QoS %d, %t, want %d", restart, topic, got, ok, want)
			}
		}
		receiver.Silent(20 * time.Millisecond)
		receiver.Unsubscribe("a/#")
		receiver.Disconnect()
	}

	receiver := b.dial(v5("receiver"))
	receiver.Subscribe("a/+", 1)
	receiver.Collect(3)
	b.dial(v5("publisher")).PublishAndWait("a/3", "live", 1, mqtttest.Retain)
	if pk := receiver.NextPublish(); string(pk.Payload) != "live" || pk.FixedHeader.Retain {
		t.Errorf("got %s, want the live message without retain flag", mqtttest.Describe(pk))
	}
}

// Field case 068: a resumed session gets what was queued, and a retained message
// only with SUBSCRIBE.
func TestRetainedOnResume(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	b.dial(v3("publisher")).PublishAndWait("a", "x", 1, mqtttest.Retain)
	receiver := b.dial(v3("receiver"))
	if pk := receiver.NextPublish(); pk.FixedHeader.Retain {
		t.Errorf("got %s, want it without retain flag", mqtttest.Describe(pk))
	}
	receiver.Silent(20 * time.Millisecond)
	receiver.Subscribe("a", 1)
	if pk := receiver.NextPublish(); !pk.FixedHeader.Retain {
		t.Errorf("got %s, want it with retain flag", mqtttest.Describe(pk))
	}
	receiver.Silent(20 * time.Millisecond)
}

// Field case 069: Retain Handling, on a new subscription, an old one, one after a
// restart, and one after UNSUBSCRIBE.
func TestRetainHandling(t *testing.T) {
	b := start(t, setting{})
	b.dial(v3("publisher")).PublishAndWait("a", "x", 1, mqtttest.Retain)
	receiver := b.dial(v5("receiver"))
	subscribe := func(when string, handling byte, want bool) {
		t.Helper()
		receiver.SubscribeAll(packets.Subscription{Filter: "a", Qos: 1, RetainHandling: handling})
		b.dial(clean("publisher")).PublishAndWait("a", "after", 1)
		got := string(receiver.NextPublish().Payload)
		if got == "x" {
			receiver.NextPublish()
		}
		if (got == "x") != want {
			t.Errorf("%s, handling %d: retained message %t, want %t", when, handling, got == "x", want)
		}
	}
	subscribe("new", 1, true)
	for _, when := range []string{"resumed", "restarted"} {
		receiver.Disconnect()
		if when == "restarted" {
			b.restart()
		}
		receiver = b.dial(v5("receiver"))
		subscribe(when, 1, false)
		subscribe(when, 0, true)
		subscribe(when, 2, false)
		subscribe(when, 0, true)
	}
	receiver.Unsubscribe("a")
	subscribe("unsubscribed", 1, true)
	receiver.Unsubscribe("a")
	subscribe("unsubscribed", 2, false)
}

// Field case 071: that the last message of a topic is retained takes nothing away
// from those before.
func TestRetainedMessagesAreQueued(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	publisher := b.dial(v3("publisher"))
	for _, payload := range numbers(1, 10) {
		publisher.PublishAndWait("a", payload, 1, mqtttest.Retain)
	}
	receiver := b.dial(v3("receiver"))
	for i, pk := range receiver.Collect(10) {
		if string(pk.Payload) != strconv.Itoa(i+1) || pk.FixedHeader.Retain {
			t.Errorf("got %s, want %d without retain flag", mqtttest.Describe(pk), i+1)
		}
	}
	receiver.Silent(20 * time.Millisecond)
}

// Field case 072: a retained message expires, also over a restart.
func TestRetainedExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		b.dial(v5("publisher")).PublishAndWait("a", "x", 1, mqtttest.Retain, mqtttest.WithExpiry(1))
		if pk := subscribeFor(b, "a"); !pk.FixedHeader.Retain {
			t.Errorf("got %s", mqtttest.Describe(pk))
		}
		time.Sleep(time.Second) // it expires
		for _, restart := range []bool{false, true} {
			if restart {
				b.restart()
			}
			later := b.dial(clean("later"))
			later.Subscribe("#", 1)
			later.Silent(20 * time.Millisecond)
			later.Disconnect()
		}
	})
}

// Filters see the retained messages that they should, which the MQTT library gets
// wrong: the level above #, and nothing of the server's own behind a wildcard.
func TestRetainedMatching(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) { o.InlineClient = true }})
	publisher := b.dial(v3("publisher"))
	for _, topic := range []string{"a", "a/b", "a/b/c", "/a"} {
		publisher.PublishAndWait(topic, topic, 1, mqtttest.Retain)
	}
	if err := b.server.Publish("$own/a", []byte("$own/a"), true, 1); err != nil {
		t.Fatal(err)
	}
	for filter, want := range map[string][]string{
		"#":       {"/a", "a", "a/b", "a/b/c"},
		"a/#":     {"a", "a/b", "a/b/c"},
		"+/#":     {"/a", "a", "a/b", "a/b/c"},
		"a/+/#":   {"a/b", "a/b/c"},
		"+/a":     {"/a"},
		"$own/#":  {"$own/a"},
		"a/b/c/#": {"a/b/c"},
	} {
		c := b.dial(clean("receiver"))
		c.Subscribe(filter, 1)
		got := c.Payloads(len(want))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", filter, got, want)
		}
		c.Silent(10 * time.Millisecond)
		c.Disconnect()
	}
}

// What a subscription asks for holds for retained messages: the identifier, and
// that a client's own message does not come back. The retain flag stays, whatever
// Retain As Published says.
func TestRetainedSubscriptionOptions(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("c"))
	c.PublishAndWait("a", "x", 1, mqtttest.Retain)
	c.SubscribeAll(packets.Subscription{Filter: "a", Qos: 1, NoLocal: true})
	c.Silent(10 * time.Millisecond)
	c.SubscribeAll(packets.Subscription{Filter: "a", Qos: 0, Identifier: 7})
	pk := c.NextPublish()
	if !pk.FixedHeader.Retain || !slices.Equal(pk.Properties.SubscriptionIdentifier, []int{7}) {
		t.Errorf("got %s with identifiers %v", mqtttest.Describe(pk), pk.Properties.SubscriptionIdentifier)
	}
}

// SUBACK comes before the retained messages that it brings, which come all.
func TestSubackIsBeforeRetained(t *testing.T) {
	b := start(t, setting{})
	publisher := b.dial(v3("publisher"))
	for i := range 30 {
		publisher.PublishAndWait("a/"+strconv.Itoa(i), "x", byte(i%3), mqtttest.Retain)
	}
	for range 50 {
		c := b.dial(clean("receiver"))
		c.Send(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Subscribe},
			PacketID:    1,
			Filters:     packets.Subscriptions{{Filter: "#", Qos: 2}},
		})
		if pk, ok := c.Next(mqtttest.Deadline); !ok || pk.FixedHeader.Type != packets.Suback {
			t.Fatalf("got %s, want SUBACK", mqtttest.Describe(pk))
		}
		c.Collect(30)
		c.Disconnect()
	}
}

// Messages of one publisher and of QoS 0 come in order, whether they are retained
// or not.
func TestRetainedIsNotOvertaken(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v3("receiver"))
	receiver.Subscribe("a", 0)
	publisher := b.dial(v3("publisher"))
	for i := range 200 {
		publisher.Publish("a", strconv.Itoa(i), 0, func(pk *packets.Packet) { pk.FixedHeader.Retain = i%3 == 0 })
	}
	for i, got := range receiver.Payloads(200) {
		if got != strconv.Itoa(i) {
			t.Fatalf("got %s, want %d", got, i)
		}
	}
}

// A server that does not retain says so, and refuses what is to be retained.
func TestRetainNotAvailable(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) { o.Capabilities.RetainAvailable = 0 }})
	c := b.dial(v5("c"))
	if p := c.Properties; !p.RetainAvailableFlag || p.RetainAvailable != 0 {
		t.Errorf("CONNACK says %+v", p)
	}
	c.Publish("a", "x", 1, mqtttest.Retain)
	if code := c.WaitDisconnect(); code != 0x9A {
		t.Errorf("DISCONNECT %#x, want 0x9a", code)
	}
	b.dial(v3("old")).PublishAndWait("a", "x", 1, mqtttest.Retain)
	receiver := b.dial(v3("receiver"))
	receiver.Subscribe("#", 1)
	receiver.Silent(10 * time.Millisecond)
}
