package hooks_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// Field case 076: nothing is kept for a subscription of QoS 0, nor of a message
// of QoS 0. A receiver who is there gets both.
func TestQoS0IsNotKept(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v3("receiver"))
	receiver.Subscribe("zero", 0)
	receiver.Subscribe("one", 1)
	publisher := b.dial(v3("publisher"))
	publisher.PublishAndWait("zero", "1", 1)
	if pk := receiver.NextPublish(); pk.FixedHeader.Qos != 0 || pk.PacketID != 0 || string(pk.Payload) != "1" {
		t.Errorf("got %s, want it at QoS 0", mqtttest.Describe(pk))
	}
	publisher.Publish("one", "2", 0)
	if pk := receiver.NextPublish(); pk.FixedHeader.Qos != 0 || string(pk.Payload) != "2" {
		t.Errorf("got %s, want it at QoS 0", mqtttest.Describe(pk))
	}
	receiver.Disconnect()
	b.awaitAway(receiver.ID)

	publisher.PublishAndWait("zero", "3", 1)
	publisher.Publish("one", "4", 0)
	publisher.PublishAndWait("one", "5", 1)
	wantPayloads(t, b.dial(v3("receiver")).Payloads(1), []string{"5"})
}

// What a client says of its request is not the server's answer.
func TestAnswersHaveNoPropertiesOfRequests(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("client"))
	for kind, answer := range map[byte]byte{packets.Subscribe: packets.Suback, packets.Unsubscribe: packets.Unsuback} {
		pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: kind}, PacketID: 1}
		pk.Filters = packets.Subscriptions{{Filter: "a"}}
		pk.Properties.User = []packets.UserProperty{{Key: "key", Val: "value"}}
		c.Send(pk)
		if got := c.NextOf(answer); len(got.Properties.User) > 0 {
			t.Errorf("%s has %v", mqtttest.Describe(got), got.Properties.User)
		}
	}
}

// Field case 076: with the option, messages of QoS 0 are kept for subscriptions of
// QoS 1, in order with the others.
func TestKeepQoS0(t *testing.T) {
	b := &broker{t: t, store: openStore(t, badger.Options{Dir: t.TempDir(), KeepQoS0: true}), options: setting{Options: hooks.Options{KeepQoS0: true}}}
	b.serve()
	t.Cleanup(func() { b.close(); b.store.Close() })
	receiver := b.dial(v3("receiver"))
	receiver.SubscribeAll(packets.Subscription{Filter: "zero", Qos: 0}, packets.Subscription{Filter: "one", Qos: 1})
	publisher := b.dial(v3("publisher"))
	publisher.Publish("one", "there", 0)
	wantPayloads(t, receiver.Payloads(1), []string{"there"})
	receiver.Disconnect()
	b.awaitAway("receiver") // what is of QoS 0 goes with the connection

	for i := range 6 {
		publisher.PublishAndWait("one", strconv.Itoa(i+1), byte(i%2))
		publisher.PublishAndWait("zero", "never", byte(i%2))
	}
	receiver = b.dial(v3("receiver"))
	for i, pk := range receiver.Collect(6) {
		if string(pk.Payload) != strconv.Itoa(i+1) || pk.FixedHeader.Qos != byte(i%2) {
			t.Errorf("got %s, want %d at QoS %d", mqtttest.Describe(pk), i+1, i%2)
		}
	}
	receiver.Silent(10 * time.Millisecond)
}

// Field case 078: an unsubscription is kept.
func TestUnsubscribeIsKept(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v5("receiver"))
	receiver.SubscribeAll(packets.Subscription{Filter: "a", Qos: 1}, packets.Subscription{Filter: "b", Qos: 1})
	codes := receiver.Unsubscribe("a", "never", "a")
	if want := []byte{0, 0x11, 0x11}; !slices.Equal(codes, want) {
		t.Errorf("UNSUBACK %#x, want %#x", codes, want)
	}
	receiver.Disconnect()
	b.awaitAway(receiver.ID)
	b.restart()
	publisher := b.dial(v3("publisher"))
	publisher.PublishAndWait("a", "a", 1)
	publisher.PublishAndWait("b", "b", 1)
	receiver = b.dial(v5("receiver"))
	wantPayloads(t, receiver.Payloads(1), []string{"b"})
	publisher.Publish("a", "a", 0)
	receiver.Silent(20 * time.Millisecond)
}

// Field case 079: of what was stored before an unsubscription, what was sent is
// completed, and the rest is given up.
func TestUnsubscribeWithBacklog(t *testing.T) {
	b := start(t, setting{Options: hooks.Options{Window: 10}})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, 100)
	receiver := b.dial(manual(v3("receiver")))
	receiver.Collect(10)
	receiver.Unsubscribe("a")
	b.publish("a", 101, 110)
	receiver.Cut()
	receiver = b.dial(manual(v3("receiver")))
	open := receiver.Collect(10)
	for i, pk := range open {
		if want := fmt.Sprint(i + 1); string(pk.Payload) != want || !pk.FixedHeader.Dup {
			t.Errorf("message %d again: %s", i+1, mqtttest.Describe(pk))
		}
		receiver.Ack(pk)
	}
	receiver.Silent(20 * time.Millisecond)
	receiver.Subscribe("a", 1)
	b.publish("a", 111, 112)
	wantPayloads(t, receiver.Payloads(2), numbers(111, 112))
}

// Field case 083: wildcards leave the server's topics alone, and those are never
// kept.
func TestServerTopicsAreNotKept(t *testing.T) {
	t.Parallel()
	b := start(t, setting{})
	for id, filter := range map[string]string{"all": "#", "plus": "+/broker/#", "sys": "$SYS/#"} {
		b.subscribed(v3(id), filter, 1)
	}
	watcher := b.dial(clean("watcher"))
	watcher.Subscribe("$SYS/broker/uptime", 0)
	for range 3 { // the first is retained, the others are published while they are away
		watcher.NextPublish()
	}
	b.publish("a", 1, 1)
	wantPayloads(t, b.dial(v3("all")).Payloads(1), numbers(1, 1))
	b.dial(v3("plus")).Silent(20 * time.Millisecond)
	if pk := b.dial(v3("sys")).NextPublish(); pk.FixedHeader.Qos != 0 {
		t.Errorf("got %s, want it at QoS 0", mqtttest.Describe(pk))
	}
}

// Field case 085: a message that is published after SUBACK comes.
func TestSubackMeansSubscribed(t *testing.T) {
	b := start(t, setting{})
	publisher := b.dial(v3("publisher"))
	for i := range 100 {
		topic := "a/" + strings.Repeat("x", i)
		receiver := b.dial(v5("receiver"))
		receiver.Subscribe(topic, 1)
		publisher.PublishAndWait(topic, "x", 1)
		receiver.NextPublish()
		receiver.Disconnect()
	}
}

// The MQTT library grants filters that are none.
func TestInvalidFiltersAreRefused(t *testing.T) {
	b := start(t, setting{})
	bad := []packets.Subscription{
		{Filter: "good/+/#", Qos: 2}, {Filter: "a#", Qos: 1}, {Filter: "a/+b", Qos: 1}, {Filter: "#/a", Qos: 1},
		{Filter: strings.Repeat("/", 65535), Qos: 1}, {Filter: "$share/g+/a", Qos: 1}, {Filter: "good", Qos: 0},
	}
	if got, want := b.dial(v5("modern")).SubscribeAll(bad...), []byte{2, 0x8F, 0x8F, 0x8F, 0x8F, 0x8F, 0}; !slices.Equal(got, want) {
		t.Errorf("SUBACK %#x, want %#x", got, want)
	}
	if got, want := b.dial(v3("old")).SubscribeAll(bad...), []byte{2, 0x80, 0x80, 0x80, 0x80, 0x80, 0}; !slices.Equal(got, want) {
		t.Errorf("SUBACK %#x, want %#x", got, want)
	}
	publisher := b.dial(v5("publisher"))
	publisher.Publish(strings.Repeat("/", 60000), "x", 0, mqtttest.Retain) // takes nobody's time
	if ack := publisher.WaitAck(publisher.Publish(strings.Repeat("/", 60000), "x", 1)); ack.ReasonCode != 0x90 {
		t.Errorf("PUBACK %#x, want 0x90", ack.ReasonCode)
	}
}

// Messages of QoS 0 find the subscriptions that the MQTT library's index misses,
// also after a restart, and once each.
func TestPlainMessagesFindEveryone(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v5("receiver"))
	receiver.Subscribe("a/+/#", 1)
	other := b.dial(v3("other"))
	other.Subscribe("a/+", 0)
	publisher := b.dial(v3("publisher"))
	for _, restart := range []bool{false, true} {
		if restart {
			b.restart()
			receiver, other, publisher = b.dial(v5("receiver")), b.dial(v3("other")), b.dial(v3("publisher"))
		}
		for _, topic := range []string{"a/b", "a/b/c", "a", "b/c"} {
			publisher.Publish(topic, topic, 0)
		}
		wantPayloads(t, receiver.Payloads(2), []string{"a/b", "a/b/c"})
		wantPayloads(t, other.Payloads(1), []string{"a/b"})
		receiver.Silent(10 * time.Millisecond)
	}
	receiver.Unsubscribe("a/+/#") // and the library delivers again
	for _, payload := range numbers(1, 50) {
		publisher.Publish("a/b", payload, 0)
	}
	wantPayloads(t, other.Payloads(50), numbers(1, 50))
}

// Field case 082: No Local is a matter of one subscription, not of all that a
// client has.
func TestNoLocalOfOneSubscription(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("c"))
	c.SubscribeAll(packets.Subscription{Filter: "a/#", Qos: 1, NoLocal: true})
	c.SubscribeAll(packets.Subscription{Filter: "a/b", Qos: 1})
	for qos := range byte(3) {
		c.PublishAndWait("a/b", strconv.Itoa(int(qos)), qos)
		c.PublishAndWait("a/c", "own", qos)
		wantPayloads(t, c.Payloads(1), []string{strconv.Itoa(int(qos))})
	}
	c.Silent(10 * time.Millisecond)
}

// Field case 081: a queued message keeps the identifiers that it was matched with,
// and a new one has those of the subscriptions that are there then.
func TestSubscriptionIdentifiers(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v5("receiver"))
	publish := func() { b.dial(v5("publisher")).PublishAndWait("a/b", "x", 1) }
	subscribe := func(filter string, identifier int) {
		receiver.SubscribeAll(packets.Subscription{Filter: filter, Qos: 1, Identifier: identifier})
	}
	want := func(identifiers ...int) {
		t.Helper()
		if got := receiver.NextPublish().Properties.SubscriptionIdentifier; !slices.Equal(got, identifiers) {
			t.Errorf("identifiers %v, want %v", got, identifiers)
		}
	}
	subscribe("a/#", 7)
	subscribe("a/+", 8)
	receiver.Disconnect()
	b.awaitAway(receiver.ID)
	publish()
	b.restart()
	publish()
	receiver = b.dial(v5("receiver"))
	subscribe("a/#", 9)
	publish()
	subscribe("a/+", 0)
	publish()
	subscribe("a/#", 0)
	publish()
	want(7, 8)
	want(7, 8)
	want(8, 9)
	want(9)
	want()
}

// Field case 082: a client's own messages do not come back to it, however it
// published them.
func TestNoLocalOnQueuedMessages(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("c"))
	c.SubscribeAll(packets.Subscription{Filter: "a", Qos: 1, NoLocal: true})
	b.subscribed(v5("other"), "a", 1)
	c.PublishAndWait("a", "own", 1)
	c.Cut()
	c = b.dial(v5("c"))
	c.PublishAndWait("a", "own", 1)
	b.dial(v5("c")).PublishAndWait("a", "own", 1) // takes over
	b.restart()
	c = b.dial(v5("c"))
	c.PublishAndWait("a", "own", 2)
	c.PublishAndWait("a", "own", 0)
	b.dial(v5("publisher")).PublishAndWait("a", "theirs", 1)
	wantPayloads(t, c.Payloads(1), []string{"theirs"})
	wantPayloads(t, b.dial(v5("other")).Payloads(5), []string{"own", "own", "own", "own", "theirs"})
}

// Options of subscriptions: No Local, Retain As Published, identifiers, the
// highest QoS. Also after a restart.
func TestSubscriptionOptions(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v5("receiver"))
	receiver.SubscribeAll(packets.Subscription{Filter: "a/#", Qos: 0, Identifier: 7, RetainAsPublished: true})
	receiver.SubscribeAll(packets.Subscription{Filter: "a/+", Qos: 1, Identifier: 8})
	receiver.SubscribeAll(packets.Subscription{Filter: "own", Qos: 1, NoLocal: true})
	for _, restart := range []bool{false, true} {
		if restart {
			receiver.Disconnect()
			b.restart()
			receiver = b.dial(v5("receiver"))
		}
		receiver.PublishAndWait("own", "x", 1)
		receiver.Publish("own", "x", 0)
		b.dial(v5("publisher")).PublishAndWait("a/b", "x", 2, mqtttest.Retain)
		pk := receiver.NextPublish()
		if pk.TopicName != "a/b" || pk.FixedHeader.Qos != 1 || !pk.FixedHeader.Retain || !slices.Equal(pk.Properties.SubscriptionIdentifier, []int{7, 8}) {
			t.Errorf("restart %t: got %s with identifiers %v", restart, mqtttest.Describe(pk), pk.Properties.SubscriptionIdentifier)
		}
	}
}
