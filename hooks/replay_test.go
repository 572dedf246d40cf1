package hooks_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Field cases 002 and 013: a backlog comes in the order of storing, also over a
// restart.
func TestBacklogComesInOrder(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a/#", 1)
	b.publish("a/b", 1, 1000)
	b.restart()
	b.publish("a/b", 1001, 1500)

	receiver := b.conn(v3("receiver"))
	if !receiver.Connack.SessionPresent {
		t.Error("no session present")
	}
	all := receive(t, receiver, 1500)
	wantPayloads(t, payloads(all), numbers(1, 1500))
	wantDup(t, all, make([]bool, 1500)...) // field case 020: never sent before
}

// Field case 003: what is published during a replay comes after it.
func TestLiveMessagesComeAfterReplay(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, 2000)
	published := make(chan error, 1)
	go func() { published <- publishNumbers(b.addr, "live", "a", 2001, 6000) }()
	wantPayloads(t, payloads(receive(t, b.conn(v3("receiver")), 6000)), numbers(1, 6000))
	if err := <-published; err != nil {
		t.Fatal(err)
	}
}

// Field case 004: never more unacknowledged than Receive Maximum, or than the
// server's own window.
func TestReplayKeepsToWindow(t *testing.T) {
	for _, o := range []mqtttest.Options{
		{ClientID: "receiver", Version: 5, SessionExpiry: 3600, ReceiveMaximum: 5, ManualAck: true},
		{ClientID: "receiver", ManualAck: true},
	} {
		b := start(t, setting{Options: hooks.Options{Window: 5 + 2*int(o.ReceiveMaximum)}})
		b.subscribed(o, "a", 1)
		b.publish("a", 1, 50)
		receiver := b.dial(o)
		open := receiver.Collect(5)
		receiver.Silent(50 * time.Millisecond)
		var got []string
		for range 45 {
			receiver.Ack(open[0]) // each lets exactly one more through
			got = append(got, string(open[0].Payload))
			open = append(open[1:], receiver.NextPublish())
		}
		receiver.Silent(20 * time.Millisecond)
		wantPayloads(t, append(got, payloads(open)...), numbers(1, 50))
	}
}

// Field cases 005 and 006: a window of 1, and another one on the next link.
func TestWindowOfOne(t *testing.T) {
	b := start(t, setting{})
	o := v5("receiver")
	o.ReceiveMaximum, o.ManualAck = 1, true
	receiver := b.dial(o)
	receiver.Subscribe("a", 1)
	b.publish("a", 1, 4)
	receiver.Ack(receiver.NextPublish())
	second := receiver.NextPublish()
	receiver.Silent(20 * time.Millisecond)
	receiver.Cut()

	o.ReceiveMaximum = 10
	receiver = b.dial(o)
	got := receiver.Collect(3)
	wantPayloads(t, payloads(got), numbers(2, 4))
	wantDup(t, got, true, false, false)
	if got[0].PacketID != second.PacketID {
		t.Errorf("packet id %d, want %d as before", got[0].PacketID, second.PacketID)
	}
	for _, pk := range got {
		receiver.Ack(pk)
	}
	receiver.Disconnect()

	b.restart()
	receiver = b.dial(o)
	receiver.Silent(50 * time.Millisecond)
	b.publish("a", 5, 5)
	wantPayloads(t, receiver.Payloads(1), numbers(5, 5))
}

// Redelivery keeps to a Receive Maximum that is smaller than before.
func TestSmallerWindowOnNextLink(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 1)
	b.publish("a", 1, 30)
	receiver := b.dial(manual(v5("receiver")))
	receiver.Collect(30)
	receiver.Cut()

	o := manual(v5("receiver"))
	o.ReceiveMaximum = 3
	receiver = b.dial(o)
	for i := range 30 {
		if i == 27 {
			break
		}
		pk := receiver.NextPublish()
		if !pk.FixedHeader.Dup {
			t.Fatalf("%s, want it sent again", mqtttest.Describe(pk))
		}
		if i == 0 {
			receiver.Collect(2)
			receiver.Silent(20 * time.Millisecond)
		}
		receiver.Ack(pk)
	}
}

// Field case 008: stray and repeated acknowledgements make no room.
func TestStrayAcksMakeNoRoom(t *testing.T) {
	for _, version := range []byte{4, 5} {
		b := start(t, setting{Options: hooks.Options{Window: 5}})
		o := mqtttest.Options{ClientID: "receiver", Version: version, SessionExpiry: 60, ManualAck: true}
		b.subscribed(o, "a", 1)
		b.publish("a", 1, 60)
		receiver := b.dial(o)
		receiver.Collect(5)
		receiver.Cut()

		receiver = b.dial(o)
		for _, pk := range receiver.Collect(5) {
			receiver.Ack(pk)
			receiver.Ack(pk)
		}
		for id := range uint16(10) {
			receiver.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: 60000 + id})
		}
		wantPayloads(t, receiver.Payloads(5), numbers(6, 10))
		receiver.Silent(50 * time.Millisecond)
	}
}

// Field case 011: a backlog larger than the range of packet ids, and case 022:
// ids go on and on, also when the window empties.
func TestBacklogLargerThanPacketIDs(t *testing.T) {
	t.Parallel()
	const total = 70000
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, total)
	all := receive(t, b.conn(v3("receiver")), total)
	wantPayloads(t, payloads(all), numbers(1, total))
	for i, id := range ids(all) {
		if want := uint16(i%inbox.MaxPacketID + 1); id != want {
			t.Fatalf("message %d has id %d, want %d", i, id, want)
		}
	}
}

// Field case 012: an open packet id is not given away, however often the others
// go round. Field case 025: one message that is never acknowledged holds up
// nothing.
func TestOpenPacketIDIsKept(t *testing.T) {
	t.Parallel()
	const total = 66000
	b := start(t, setting{Options: hooks.Options{Window: 10}})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, total)
	receiver := b.conn(v3("receiver"))
	first, err := receiver.ReadWithin(mqtttest.Deadline)
	if err != nil {
		t.Fatal(err)
	}
	all := receive(t, receiver, total-1)
	wantPayloads(t, payloads(all), numbers(2, total))
	if slices.Contains(ids(all), first.PacketID) {
		t.Errorf("id %d is given to another message while it is open", first.PacketID)
	}
	if err := receiver.Close(); err != nil {
		t.Fatal(err)
	}

	got := b.dial(manual(v3("receiver"))).NextPublish()
	if string(got.Payload) != "1" || got.PacketID != first.PacketID || !got.FixedHeader.Dup {
		t.Errorf("got %s, want message 1 again under id %d", mqtttest.Describe(got), first.PacketID)
	}
}

// Field case 016: links that break do not make more of the messages.
func TestFlappingLink(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, 100)
	for range 20 {
		receiver := b.dial(manual(v3("receiver")))
		wantPayloads(t, receiver.Payloads(5), numbers(1, 5))
		receiver.Cut()
	}
	receiver := b.conn(v3("receiver"))
	wantPayloads(t, payloads(receive(t, receiver, 100)), numbers(1, 100))
	if more := drain(t, receiver, 50*time.Millisecond); len(more) > 0 {
		t.Errorf("%d messages more", len(more))
	}
	if err := receiver.Close(); err != nil {
		t.Fatal(err)
	}
	if more := drain(t, b.conn(v3("receiver")), 50*time.Millisecond); len(more) > 0 {
		t.Errorf("%d messages come after they were acknowledged", len(more))
	}
}

// Field cases 018 and 019: a receiver that comes and goes gets everything, what
// it had not acknowledged first.
func TestReceiverComesAndGoes(t *testing.T) {
	const total = 3000
	b := start(t, setting{Options: hooks.Options{Window: 20}})
	b.subscribed(v3("receiver"), "a", 1)
	published := make(chan error, 1)
	go func() { published <- publishNumbers(b.addr, "publisher", "a", 1, total) }()

	got := map[string]bool{}
	last := 0
	for len(got) < total {
		receiver := b.conn(v3("receiver"))
		for _, pk := range receive(t, receiver, min(200, total-len(got))) {
			got[string(pk.Payload)] = true
			last++
		}
		if err := receiver.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	if last > total+20*20 {
		t.Errorf("%d deliveries of %d messages: more repeats than the window explains", last, total)
	}
}

// Field case 020: DUP says that a message was sent before.
func TestDupOnRedelivery(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 1)
	b.publish("a", 1, 5)
	o := manual(v5("receiver"))
	o.ReceiveMaximum = 2
	receiver := b.dial(o)
	before := receiver.Collect(2)
	wantDup(t, before, false, false)
	receiver.Cut()

	o.ReceiveMaximum = 0
	got := b.dial(o).Collect(5)
	wantPayloads(t, payloads(got), numbers(1, 5))
	wantDup(t, got, true, true, false, false, false)
	if !slices.Equal(ids(got[:2]), ids(before)) {
		t.Errorf("ids %v, want %v as before", ids(got[:2]), ids(before))
	}
}

// Field case 023: acknowledgements out of order.
func TestAcksOutOfOrder(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 1)
	b.publish("a", 1, 5)
	receiver := b.dial(manual(v5("receiver")))
	sent := receiver.Collect(5)
	for _, i := range []int{2, 0, 4} {
		receiver.Ack(sent[i])
	}
	receiver.Ping()
	receiver.Cut()

	receiver = b.dial(manual(v5("receiver")))
	got := receiver.Collect(2)
	wantPayloads(t, payloads(got), []string{"2", "4"})
	wantDup(t, got, true, true)
	receiver.Silent(20 * time.Millisecond)
}

// A refusal by the receiver ends the delivery (field case 041, QoS 1).
func TestReceiverRefuses(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 1)
	b.publish("a", 1, 1)
	receiver := b.dial(manual(v5("receiver")))
	receiver.AckWith(receiver.NextPublish(), 0x87)
	receiver.Disconnect()
	b.dial(manual(v5("receiver"))).Silent(50 * time.Millisecond)
}

// Field case 046 and 048: an expired message is not sent, and another carries
// what is left.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		b.subscribed(v5("receiver"), "a", 1)
		b.subscribed(v5("other"), "a", 1)
		publisher := b.dial(v5("publisher"))
		publisher.PublishAndWait("a", "short", 1, mqtttest.WithExpiry(1))
		publisher.PublishAndWait("a", "long", 1, mqtttest.WithExpiry(600))
		time.Sleep(time.Second) // the short message expires

		pk := b.dial(v5("receiver")).NextPublish()
		if left := pk.Properties.MessageExpiryInterval; string(pk.Payload) != "long" || left > 599 || left < 590 {
			t.Errorf("got %s with %d s left", mqtttest.Describe(pk), left)
		}
		if n := b.hook.Counts().Expired; n != 1 {
			t.Errorf("%d messages counted as expired, want 1", n)
		}
		b.restart()
		pk = b.dial(v5("other")).NextPublish()
		if left := pk.Properties.MessageExpiryInterval; string(pk.Payload) != "long" || left > 599 || left < 590 {
			t.Errorf("after a restart: got %s with %d s left", mqtttest.Describe(pk), left)
		}
	})
}

// Field case 086: a topic alias is a matter of one link.
func TestTopicAlias(t *testing.T) {
	b := start(t, setting{})
	o := v5("receiver")
	o.TopicAliasMaximum = 10
	receiver := b.dial(o)
	receiver.Subscribe("t/a", 1)
	alias := func(topic string) func(*packets.Packet) {
		return func(pk *packets.Packet) {
			pk.TopicName, pk.Properties.TopicAlias, pk.Properties.TopicAliasFlag = topic, 3, true
		}
	}
	publisher := b.dial(v5("publisher"))
	if n := publisher.Properties.TopicAliasMaximum; n != 10 {
		t.Errorf("Topic Alias Maximum %d announced, want 10", n)
	}
	publisher.PublishAndWait("t/a", "1", 1, alias("t/a"))
	publisher.PublishAndWait("t/a", "2", 1, alias(""))
	publisher.Publish("t/a", "zero", 0, alias(""))
	check := func(got []packets.Packet) {
		t.Helper()
		for _, pk := range got {
			if pk.TopicName != "t/a" || pk.Properties.TopicAliasFlag {
				t.Errorf("%s, alias %d", mqtttest.Describe(pk), pk.Properties.TopicAlias)
			}
		}
	}
	check(receiver.Collect(3))
	receiver.Disconnect()
	b.awaitAway(receiver.ID)
	for range 5 {
		publisher.PublishAndWait("t/a", "later", 1, alias(""))
	}
	for _, o := range []mqtttest.Options{manual(o), manual(v5("receiver")), v3("receiver")} {
		receiver := b.dial(o)
		check(receiver.Collect(5))
		receiver.Cut()
	}

	other := b.dial(v5("other"))
	other.Publish("", "x", 1, alias("")) // never set on this link
	if code := other.WaitDisconnect(); code != 0x82 {
		t.Errorf("DISCONNECT %#x, want 0x82", code)
	}
}

// A receiver that allows aliases is told a topic once on each link.
func TestTopicAliasOut(t *testing.T) {
	b := start(t, setting{})
	o := v5("receiver")
	o.TopicAliasMaximum = 1
	for range 2 {
		receiver := b.dial(o)
		receiver.Subscribe("some/topic/#", 2)
		publisher := b.dial(clean("publisher"))
		for qos := byte(0); qos <= 2; qos++ {
			publisher.Publish("some/topic/first", "x", qos)
			pk := receiver.NextPublish()
			if told := pk.TopicName == "some/topic/first"; told != (qos == 0) || pk.Properties.TopicAlias != 1 {
				t.Errorf("%s, alias %d; want the topic with the first alone", mqtttest.Describe(pk), pk.Properties.TopicAlias)
			}
		}
		publisher.Publish("some/topic/second", "x", 1)
		if pk := receiver.NextPublish(); pk.TopicName != "some/topic/second" || pk.Properties.TopicAliasFlag {
			t.Errorf("%s, alias %d; want none", mqtttest.Describe(pk), pk.Properties.TopicAlias)
		}
		receiver.Disconnect()
		b.awaitAway(receiver.ID)
		publisher.Disconnect()
	}
}

// Field case 088: a message that is too large for its receiver stands in nobody's
// way.
func TestOversizeMessage(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 1)
	publisher := b.dial(v5("publisher"))
	for _, payload := range []string{"small1", strings.Repeat("x", 2000), "small2"} {
		publisher.PublishAndWait("a", payload, 1)
	}
	o := v5("receiver")
	o.MaxPacketSize = 500
	receiver := b.dial(o)
	wantPayloads(t, receiver.Payloads(2), []string{"small1", "small2"})
	if n := b.hook.Counts().Oversize; n != 1 {
		t.Errorf("%d messages counted as oversize, want 1", n)
	}
	receiver.Disconnect()
	b.dial(v5("receiver")).Silent(50 * time.Millisecond)
}

// An open delivery can be too large for the next link.
func TestOversizeRedelivery(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 1)
	publisher := b.dial(v5("publisher"))
	publisher.PublishAndWait("a", strings.Repeat("x", 2000), 1)
	publisher.PublishAndWait("a", "small", 1)
	receiver := b.dial(manual(v5("receiver")))
	receiver.Collect(2)
	receiver.Cut()
	o := v5("receiver")
	o.MaxPacketSize = 500
	receiver = b.dial(o)
	wantPayloads(t, receiver.Payloads(1), []string{"small"})
	receiver.Disconnect()
	b.dial(v5("receiver")).Silent(20 * time.Millisecond)
}

// What was acknowledged is saved while the link goes on, so that a crash does
// not bring it back.
func TestAcksAreSaved(t *testing.T) {
	store := &faulty{}
	b := start(t, setting{Wrap: store.wrap})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, 10)
	receiver := b.dial(manual(v3("receiver")))
	all := receiver.Collect(10)
	for _, pk := range all[:9] {
		receiver.Ack(pk)
	}
	mqtttest.Eventually(t, func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		return len(store.saved.Open) == 1 && store.saved.Open[0].PacketID == all[9].PacketID
	}, "a saved state with one open delivery")
}

// Field case 009 and 118: a receiver that does not read, with or without keep
// alive, holds up nobody, and loses nothing.
func TestStoppedReceiver(t *testing.T) {
	b := start(t, setting{Options: hooks.Options{OutBytes: 16 << 10, Window: 10000}})
	stopped := v3("stopped")
	stopped.Frozen = true
	c := b.dial(stopped)
	c.Send(packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Subscribe},
		PacketID:    1,
		Filters:     packets.Subscriptions{{Filter: "a", Qos: 1}},
	})
	healthy := b.dial(v3("healthy"))
	healthy.Subscribe("a", 1)
	healthy.Disconnect()
	reader := b.conn(v3("healthy"))

	const total = 5000
	payload := strings.Repeat("x", 2048)
	publisher := b.conn(clean("publisher"))
	sent := make(chan error, 1)
	go func() {
		for i := range total {
			pk := packets.Packet{
				FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1},
				TopicName:   "a", PacketID: uint16(i + 1), Payload: []byte(payload),
			}
			if err := publisher.Buffer(pk); err != nil {
				sent <- err
				return
			}
			if i%100 == 99 {
				if err := publisher.Flush(); err != nil {
					sent <- err
					return
				}
			}
		}
		sent <- nil
	}()
	for range total {
		if _, err := publisher.ReadWithin(mqtttest.Deadline); err != nil {
			t.Fatal("wait for PUBACK:", err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	receive(t, reader, total)
	c.Cut()
	receive(t, b.conn(v3("stopped")), total)
}

// Field case 097: a client that takes its time and subscribes from within.
func TestSlowClientSubscribesMeanwhile(t *testing.T) {
	b := start(t, setting{Options: hooks.Options{Window: 20}})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, 200)
	receiver := b.dial(manual(v3("receiver")))
	var got []string
	for i := range 200 {
		pk := receiver.NextPublish()
		got = append(got, string(pk.Payload))
		if i%20 == 0 {
			if code := receiver.Subscribe("b", 1); code != 1 {
				t.Fatalf("SUBACK %#x", code)
			}
			receiver.Ping()
		}
		receiver.Ack(pk)
	}
	wantPayloads(t, got, numbers(1, 200))
}

// Field case 134: payloads and properties come as they were published.
func TestEnvelopeIsUntouched(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("away"), "a/#", 1)
	here := b.dial(v5("here"))
	here.Subscribe("a/#", 1)

	publisher := b.dial(v5("publisher"))
	var want []packets.Packet
	for _, size := range []int{0, 1, 127, 128, 16383, 16384, 65536} {
		payload := make([]byte, size)
		for i := range payload {
			payload[i] = byte(i * size)
		}
		pk := packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1},
			PacketID:    publisher.NextID(),
			TopicName:   "a/b",
			Payload:     payload,
			Properties: packets.Properties{
				PayloadFormatFlag: true,
				PayloadFormat:     byte(size % 2),
				ContentType:       "text/plain",
				ResponseTopic:     "reply/here",
				CorrelationData:   []byte{0, 1, 2},
				User:              []packets.UserProperty{{Key: "b", Val: "1"}, {Key: "a", Val: "2"}, {Key: "b", Val: "1"}},
			},
		}
		publisher.Send(pk)
		publisher.WaitAck(pk.PacketID)
		want = append(want, pk)
	}
	for _, receiver := range []*mqtttest.Client{here, b.dial(v5("away"))} {
		for i, pk := range receiver.Collect(len(want)) {
			if !slices.Equal(pk.Payload, want[i].Payload) {
				t.Errorf("payload of %d bytes came as %d others", len(want[i].Payload), len(pk.Payload))
			}
			if err := sameProperties(pk.Properties, want[i].Properties); err != nil {
				t.Error(err)
			}
		}
	}
}

// Correlation data that is empty is not the same as none, at every QoS.
func TestEmptyCorrelationData(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v5("receiver"))
	receiver.Subscribe("a", 2)
	publisher := b.dial(v5("publisher"))
	for _, frame := range []string{
		"\x30\x08\x00\x01a\x03\x09\x00\x00x",
		"\x32\x0A\x00\x01a\x00\x01\x03\x09\x00\x00x",
		"\x34\x0A\x00\x01a\x00\x02\x03\x09\x00\x00x",
	} {
		publisher.SendRaw([]byte(frame))
		if pk := receiver.NextPublish(); pk.Properties.CorrelationData == nil {
			t.Errorf("%s has no correlation data", mqtttest.Describe(pk))
		}
	}
}

// An expiry interval of 0 is not the same as none: who is there gets the message,
// and for who is away it is not kept.
func TestExpiryIntervalOfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		expiries := make(chan time.Duration, 2)
		stop, err := b.hook.Subscribe(t.Context(), "a", func(e inbox.Entry) {
			expiries <- time.Duration(e.Envelope.Expiry-e.Envelope.Time) * time.Millisecond
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		receiver := b.dial(v5("receiver"))
		receiver.Subscribe("a", 2)
		publisher := b.dial(v5("publisher"))
		for _, frame := range []string{
			"\x32\x0C\x00\x01a\x00\x01\x05\x02\x00\x00\x00\x00x",
			"\x30\x0A\x00\x01a\x05\x02\x00\x00\x00\x00x",
		} {
			publisher.SendRaw([]byte(frame))
			receiver.NextPublish()
			if e := <-expiries; e <= 0 || e >= time.Second {
				t.Errorf("it expires after %v, want less than a second", e)
			}
		}
	})
}

func sameProperties(got, want packets.Properties) error {
	switch {
	case got.PayloadFormatFlag != want.PayloadFormatFlag, got.PayloadFormat != want.PayloadFormat:
		return errors.New("payload format differs")
	case got.ContentType != want.ContentType, got.ResponseTopic != want.ResponseTopic:
		return errors.New("content type or response topic differs")
	case !slices.Equal(got.CorrelationData, want.CorrelationData):
		return errors.New("correlation data differs")
	case !slices.Equal(got.User, want.User):
		return errors.New("user properties differ")
	}
	return nil
}
