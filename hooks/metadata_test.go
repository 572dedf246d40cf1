package hooks_test

import (
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// metadataOf returns the user properties of the inboxes in a message, and the
// others in their order.
func metadataOf(pk packets.Packet) (metadata map[string]string, others []packets.UserProperty) {
	metadata = map[string]string{}
	for _, p := range pk.Properties.User {
		switch p.Key {
		case "inbox-id", "inbox-time", "inbox-sender":
			metadata[p.Key] += p.Val
		default:
			others = append(others, p)
		}
	}
	return metadata, others
}

func asking(o mqtttest.Options, value string) mqtttest.Options {
	o.UserProperties = append(o.UserProperties, packets.UserProperty{Key: "inbox-metadata", Val: value})
	return o
}

// A receiver that asks for it is told id, time and sender of every message of the
// store, whatever way it comes, and the same each time; the id is the one that
// the publisher was told.
func TestMetadata(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(manual(asking(v5("receiver"), "on")))
	receiver.SubscribeAll(
		packets.Subscription{Filter: "a", Qos: 1}, packets.Subscription{Filter: "live", Qos: 0},
		packets.Subscription{Filter: "$share/g/shared", Qos: 1},
	)
	sender := v5("device-7")
	sender.Username = "ann"
	publisher := b.dial(sender)
	before := time.Now().Add(-time.Millisecond)
	ids := map[string]string{}
	for _, topic := range []string{"a", "live", "shared"} {
		id := publisher.Publish(topic, topic, 1, mqtttest.WithUser("k", "v"), mqtttest.WithUser("msg-id", topic))
		told, _ := metadataOf(publisher.WaitAck(id))
		ids[topic] = told["inbox-id"]
	}
	check := func(pk packets.Packet) {
		t.Helper()
		metadata, others := metadataOf(pk)
		if metadata["inbox-id"] != ids[pk.TopicName] || len(metadata["inbox-id"]) != 25 {
			t.Errorf("%s has id %q, the publisher was told %q", pk.TopicName, metadata["inbox-id"], ids[pk.TopicName])
		}
		at, err := time.Parse(time.RFC3339, metadata["inbox-time"])
		if err != nil || at.Before(before) || at.After(time.Now()) {
			t.Errorf("%s has time %q, %v", pk.TopicName, metadata["inbox-time"], err)
		}
		if metadata["inbox-sender"] != "ann" {
			t.Errorf("%s has sender %q", pk.TopicName, metadata["inbox-sender"])
		}
		if len(others) != 2 || others[0] != (packets.UserProperty{Key: "k", Val: "v"}) {
			t.Errorf("%s has other properties %v", pk.TopicName, others)
		}
	}
	topics := map[string]bool{}
	for range 3 {
		pk := receiver.NextPublish()
		topics[pk.TopicName] = true
		check(pk)
	}
	if len(topics) != 3 {
		t.Errorf("messages on %v came", topics)
	}
	receiver.Cut()
	b.restart()
	receiver = b.dial(manual(asking(v5("receiver"), "on")))
	for range 2 { // again: the one that is shared too
		check(receiver.NextPublish())
	}
}

// Who does not ask is not told, nor who cannot be: older clients, and those whose
// largest packet has no room. The operator can turn it round.
func TestMetadataIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		name      string
		byDefault bool
		client    mqtttest.Options
		told      bool
	}{
		{"by itself", false, v5("c"), false},
		{"declined", false, asking(v5("c"), "off"), false},
		{"asked for", false, asking(v5("c"), "on"), true},
		{"the last counts", false, asking(asking(v5("c"), "off"), "on"), true},
		{"the operator's default", true, v5("c"), true},
		{"declined against it", true, asking(v5("c"), "off"), false},
		{"MQTT 3.1.1", true, v3("c"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := start(t, setting{Options: hooks.Options{Metadata: c.byDefault}})
			receiver := b.dial(c.client)
			receiver.Subscribe("a", 1)
			b.dial(v3("client")).PublishAndWait("a", "m", 1)
			metadata, _ := metadataOf(receiver.NextPublish())
			if told := len(metadata) == 3; told != c.told || !told && len(metadata) > 0 {
				t.Errorf("told %v, want it: %v", metadata, c.told)
			}
			if c.told && metadata["inbox-sender"] != "client" {
				t.Errorf("sender %q: without a user name it is the client id", metadata["inbox-sender"])
			}
		})
	}
}

// What fits without the metadata is sent without.
func TestMetadataGivesWayToTheMessage(t *testing.T) {
	b := start(t, setting{})
	o := asking(v5("receiver"), "on")
	o.MaxPacketSize = 200
	receiver := b.dial(o)
	receiver.Subscribe("a", 1)
	publisher := b.dial(v3("publisher"))
	publisher.PublishAndWait("a", string(make([]byte, 150)), 1)
	publisher.PublishAndWait("a", "short", 1)
	for _, told := range []bool{false, true} {
		if metadata, _ := metadataOf(receiver.NextPublish()); (len(metadata) == 3) != told {
			t.Errorf("metadata %v, want some: %v", metadata, told)
		}
	}
}

// The publisher of a message with a name is told its id, for a repetition that of
// the first; not if it has declined what it does not need, nor without a name.
func TestAcknowledgementTellsTheID(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 2)
	publisher := b.dial(v5("publisher"))
	told := func(c *mqtttest.Client, qos byte, changes ...func(*packets.Packet)) string {
		t.Helper()
		metadata, _ := metadataOf(c.WaitAck(c.Publish("a", "m", qos, changes...)))
		return metadata["inbox-id"]
	}
	first := told(publisher, 1, mqtttest.WithUser("msg-id", "one"))
	if len(first) != 25 {
		t.Errorf("told the id %q", first)
	}
	if again := told(publisher, 1, mqtttest.WithUser("msg-id", "one")); again != first {
		t.Errorf("told %q for the repetition of %q", again, first)
	}
	if id := told(publisher, 1); id != "" {
		t.Errorf("told %q for a message without a name", id)
	}
	tiny := v5("tiny")
	tiny.MaxPacketSize = 30
	if id := told(b.dial(tiny), 1, mqtttest.WithUser("msg-id", "two")); id != "" {
		t.Errorf("told %q in a packet that the client does not take", id)
	}
}
