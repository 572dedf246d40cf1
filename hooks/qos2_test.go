package hooks_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// exact is a receiver or publisher that does each step of QoS 2 itself.
func exact(o mqtttest.Options) mqtttest.Options {
	o.ManualAck, o.ManualRelease = true, true
	return o
}

func TestQoS2EndToEnd(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 2)
	b.subscribed(v3("lower"), "a", 1)
	publisher := b.dial(v3("publisher"))
	for _, payload := range numbers(1, 200) {
		publisher.Publish("a", payload, 2)
	}
	for id := range uint16(200) {
		publisher.WaitAck(id + 1)
	}
	for id, qos := range map[string]byte{"receiver": 2, "lower": 1} {
		receiver := b.dial(v5(id))
		all := receiver.Collect(200)
		wantPayloads(t, payloads(all), numbers(1, 200))
		if got := all[0].FixedHeader.Qos; got != qos {
			t.Errorf("%s: QoS %d, want %d", id, got, qos)
		}
		receiver.Ping()
		receiver.Disconnect()
		b.dial(v5(id)).Silent(20 * time.Millisecond)
	}
}

// Field cases 036, 037 and 039: a publisher that repeats any step is answered,
// and the message is stored once.
func TestPublisherRepeatsQoS2(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 2)
	publisher := b.dial(exact(v5("publisher")))
	publisher.Publish("a", "x", 2, mqtttest.WithID(9))
	if pk := publisher.NextOf(packets.Pubrec); pk.PacketID != 9 || pk.ReasonCode != 0 {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
	publisher.Cut()

	publisher = b.dial(exact(v5("publisher")))
	for range 3 {
		publisher.Publish("a", "x", 2, mqtttest.WithID(9), mqtttest.Dup)
		if pk := publisher.NextOf(packets.Pubrec); pk.ReasonCode != 0 {
			t.Errorf("got %s", mqtttest.Describe(pk))
		}
	}
	publisher.Release(9)
	if pk := publisher.NextOf(packets.Pubcomp); pk.ReasonCode != 0 {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
	publisher.Release(9) // as if the PUBCOMP had been lost
	if pk := publisher.NextOf(packets.Pubcomp); pk.ReasonCode != 0 {
		t.Errorf("got %s, want 0", mqtttest.Describe(pk))
	}
	publisher.Publish("a", "y", 2, mqtttest.WithID(9)) // the id is free again
	publisher.NextOf(packets.Pubrec)
	wantPayloads(t, b.dial(v3("receiver")).Payloads(2), []string{"x", "y"})

	fresh := v5("publisher") // and free after a clean start
	fresh.Clean = true
	publisher = b.dial(fresh)
	publisher.PublishAndWait("a", "z", 2, mqtttest.WithID(9))
	publisher.Release(9) // in a new session this is nobody's repeat
	if pk := publisher.NextOf(packets.Pubcomp); pk.ReasonCode != 0x92 {
		t.Errorf("got %s, want 0x92", mqtttest.Describe(pk))
	}
}

// Field cases 036 and 039: the ids of what is not completed outlive the broker,
// those of what is do not.
func TestPublisherRepeatsQoS2AfterRestart(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 2)
	publisher := b.dial(exact(v5("publisher")))
	for id := uint16(1); id <= 3; id++ {
		publisher.Publish("a", strconv.Itoa(int(id)), 2, mqtttest.WithID(id))
		publisher.NextOf(packets.Pubrec)
	}
	publisher.Release(1)
	publisher.NextOf(packets.Pubcomp)
	b.restart()

	publisher = b.dial(exact(v5("publisher")))
	for range 5 {
		publisher.Publish("a", "2", 2, mqtttest.WithID(2), mqtttest.Dup)
		if pk := publisher.NextOf(packets.Pubrec); pk.ReasonCode != 0 {
			t.Errorf("got %s", mqtttest.Describe(pk))
		}
	}
	for id := uint16(1); id <= 3; id++ { // 1 is free already, 3 is released without a repeat
		publisher.Release(id)
		if pk := publisher.NextOf(packets.Pubcomp); pk.PacketID != id || pk.ReasonCode != 0 {
			t.Errorf("got %s, want PUBCOMP %d with success", mqtttest.Describe(pk), id)
		}
	}
	b.restart()
	publisher = b.dial(v5("publisher"))
	for id := uint16(1); id <= 3; id++ { // all are free
		publisher.PublishAndWait("a", strconv.Itoa(int(id)), 2, mqtttest.WithID(id))
	}
	wantPayloads(t, b.dial(v3("receiver")).Payloads(6), []string{"1", "2", "3", "1", "2", "3"})
}

// The ids end with the session, which may end with the link.
func TestQoS2OfSessionThatEnds(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 2)
	for range 2 {
		publisher := b.dial(exact(clean("publisher")))
		publisher.Publish("a", "x", 2, mqtttest.WithID(9))
		publisher.NextOf(packets.Pubrec)
		publisher.Cut()
	}
	wantPayloads(t, b.dial(v3("receiver")).Payloads(2), []string{"x", "x"})
}

// Field case 040: what was published belongs to the message, not to the link on
// which it is released.
func TestReleaseOnLaterLink(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b := start(t, setting{})
		b.subscribed(v5("receiver"), "a", 2)
		publisher := b.dial(exact(v5("publisher")))
		publisher.Publish("a", "x", 2, mqtttest.WithID(9), mqtttest.Retain)
		publisher.NextOf(packets.Pubrec)
		publisher.Cut()
		if restart {
			b.restart()
		}
		publisher = b.dial(exact(v5("publisher")))
		publisher.Publish("other", "y", 0)
		publisher.Release(9)
		if pk := publisher.NextOf(packets.Pubcomp); pk.ReasonCode != 0 {
			t.Errorf("got %s", mqtttest.Describe(pk))
		}
		pk := b.dial(v5("receiver")).NextPublish()
		if pk.FixedHeader.Qos != 2 || pk.PacketID == 0 || pk.FixedHeader.Retain {
			t.Errorf("got %s, want QoS 2 with an id", mqtttest.Describe(pk))
		}
		later := b.dial(v5("later"))
		later.Subscribe("a", 2)
		if pk := later.NextPublish(); pk.FixedHeader.Qos != 2 || !pk.FixedHeader.Retain {
			t.Errorf("got %s, want the retained message at QoS 2", mqtttest.Describe(pk))
		}
	}
}

// PUBCOMP says that the id is forgotten.
func TestCompleteWaitsForStore(t *testing.T) {
	store := &faulty{complete: func() error { return errors.New("disk on fire") }}
	b := start(t, setting{Wrap: store.wrap})
	publisher := b.dial(exact(v5("publisher")))
	publisher.Publish("a", "x", 2, mqtttest.WithID(9))
	publisher.NextOf(packets.Pubrec)
	publisher.Release(9)
	if next, ok := publisher.Next(mqtttest.Deadline); !ok || next.FixedHeader.Type != packets.Disconnect {
		t.Errorf("got %s, want DISCONNECT", mqtttest.Describe(next))
	}
	store.set(func(f *faulty) { f.complete = nil })
	publisher = b.dial(exact(v5("publisher")))
	publisher.Release(9)
	publisher.NextOf(packets.Pubcomp)
}

// Field case 035: a PUBREL that is owed is sent on the next link, also after a
// restart.
func TestReleaseIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, restart := range []bool{false, true} {
			b := start(t, setting{Memory: true})
			b.subscribed(v5("receiver"), "a", 2)
			b.dial(v5("publisher")).PublishAndWait("a", "x", 2, mqtttest.WithExpiry(4))
			receiver := b.dial(exact(v5("receiver")))
			pk := receiver.NextPublish()
			receiver.Ack(pk)
			receiver.NextOf(packets.Pubrel)
			receiver.Cut()
			time.Sleep(4 * time.Second) // the message expires, which is nothing to an exchange under way
			if restart {
				b.restart()
			}
			receiver = b.dial(exact(v5("receiver")))
			first, ok := receiver.Next(mqtttest.Deadline)
			if !ok || first.FixedHeader.Type != packets.Pubrel || first.PacketID != pk.PacketID {
				t.Fatalf("restart %t: got %s, want PUBREL %d", restart, mqtttest.Describe(first), pk.PacketID)
			}
			receiver.Complete(pk.PacketID)
			receiver.Ping()
			receiver.Disconnect()
			receiver = b.dial(exact(v5("receiver")))
			if pk, ok := receiver.Next(30 * time.Millisecond); ok {
				t.Errorf("restart %t: got %s after PUBCOMP", restart, mqtttest.Describe(pk))
			}
		}
	})
}

// Packet ids of QoS 2 are recorded before they are used.
func TestQoS2WaitsForRecord(t *testing.T) {
	store := &faulty{save: func() error { return errors.New("disk on fire") }}
	b := start(t, setting{Wrap: store.wrap})
	b.subscribed(v5("receiver"), "a", 2)
	b.dial(v3("publisher")).PublishAndWait("a", "x", 2)
	receiver := b.dial(exact(v5("receiver")))
	if next, ok := receiver.Next(mqtttest.Deadline); !ok || next.FixedHeader.Type != packets.Disconnect {
		t.Errorf("got %s, want DISCONNECT", mqtttest.Describe(next))
	}
	store.set(func(f *faulty) { f.save = nil })
	b.dial(exact(v5("receiver"))).NextPublish()
}

// A message that is repeated on another link while it is being stored is
// answered there.
func TestPublisherRepeatsQoS2Meanwhile(t *testing.T) {
	store := &delaying{}
	b := start(t, setting{Wrap: store.wrap})
	publisher := b.dial(exact(v5("publisher")))
	publisher.Publish("a", "x", 2, mqtttest.WithID(9))
	publisher.Ping()
	publisher.Cut()
	publisher = b.dial(exact(v5("publisher")))
	publisher.Publish("a", "x", 2, mqtttest.WithID(9), mqtttest.Dup)
	publisher.Ping()
	if pk, ok := publisher.Next(20 * time.Millisecond); ok {
		t.Errorf("got %s before the message is stored", mqtttest.Describe(pk))
	}
	store.release()
	publisher.NextOf(packets.Pubrec)
	publisher.Release(9)
	publisher.NextOf(packets.Pubcomp)
}

// PUBREL says that PUBREC is recorded.
func TestReleaseWaitsForStore(t *testing.T) {
	store := &faulty{}
	b := start(t, setting{Wrap: store.wrap})
	b.subscribed(v5("receiver"), "a", 2)
	b.dial(v3("publisher")).PublishAndWait("a", "x", 2)
	receiver := b.dial(exact(v5("receiver")))
	pk := receiver.NextPublish()
	store.set(func(f *faulty) { f.save = func() error { return errors.New("disk on fire") } })
	receiver.Ack(pk)
	if next, ok := receiver.Next(mqtttest.Deadline); !ok || next.FixedHeader.Type != packets.Disconnect {
		t.Errorf("got %s, want DISCONNECT", mqtttest.Describe(next))
	}
}

// A message that its receiver has not confirmed comes again under its id, also
// after a restart.
func TestQoS2IsSentAgain(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 2)
	b.dial(v3("publisher")).PublishAndWait("a", "x", 2)
	receiver := b.dial(exact(v5("receiver")))
	first := receiver.NextPublish()
	receiver.Cut()
	b.restart()
	again := b.dial(exact(v5("receiver"))).NextPublish()
	if again.PacketID != first.PacketID || !again.FixedHeader.Dup || again.FixedHeader.Qos != 2 {
		t.Errorf("got %s, want id %d with DUP", mqtttest.Describe(again), first.PacketID)
	}
}

// Field case 041: a receiver that refuses a message has had it.
func TestReceiverRefusesQoS2(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 2)
	publisher := b.dial(v3("publisher"))
	publisher.PublishAndWait("a", "1", 2)
	publisher.PublishAndWait("a", "2", 2)
	receiver := b.dial(exact(v5("receiver")))
	all := receiver.Collect(2)
	receiver.AckWith(all[0], 0x87)
	receiver.Ack(all[1])
	if pk := receiver.NextOf(packets.Pubrel); pk.PacketID != all[1].PacketID {
		t.Errorf("got %s, want PUBREL for the second alone", mqtttest.Describe(pk))
	}
	receiver.Complete(all[1].PacketID)
	receiver.Ping()
	receiver.Disconnect()
	if pk, ok := b.dial(exact(v5("receiver"))).Next(30 * time.Millisecond); ok {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
}

// An acknowledgement that is not the one of the message's QoS is a violation,
// and one for nothing is answered so that the client can finish.
func TestWrongAcks(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("one"), "a", 1)
	b.subscribed(v5("two"), "a", 2)
	b.dial(v3("publisher")).PublishAndWait("a", "x", 2)
	wrong := map[string][]byte{"one": {packets.Pubrec, packets.Pubcomp}, "two": {packets.Puback, packets.Pubcomp}}
	for id, kinds := range wrong {
		for _, kind := range kinds {
			receiver := b.dial(exact(v5(id)))
			pk := receiver.NextPublish()
			receiver.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: kind}, PacketID: pk.PacketID})
			if code := receiver.WaitDisconnect(); code != 0x82 {
				t.Errorf("%s for %s: DISCONNECT %#x, want 0x82", packets.PacketNames[kind], id, code)
			}
		}
	}
	stray := b.dial(exact(v5("stray")))
	stray.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrec}, PacketID: 77})
	if pk := stray.NextOf(packets.Pubrel); pk.PacketID != 77 || pk.ReasonCode != 0x92 {
		t.Errorf("got %s, want 0x92", mqtttest.Describe(pk))
	}
	stray.Complete(77)
	stray.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrec}, PacketID: 78, ReasonCode: 0x80})
	stray.Ping()
	if pk, ok := stray.Next(0); ok {
		t.Errorf("got %s, want no answer to a PUBREC that refuses", mqtttest.Describe(pk))
	}
}

// Field case 131: many repeats and a new one, all at once, after a restart.
func TestBridgeResendsQoS2(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 2)
	bridge := b.dial(exact(v3("bridge")))
	for i, payload := range numbers(1, 20) {
		bridge.Publish("a", payload, 2, mqtttest.WithID(uint16(i+1)))
	}
	for range 20 {
		bridge.NextOf(packets.Pubrec)
	}
	b.restart()
	bridge = b.dial(v3("bridge"))
	for i, payload := range numbers(1, 21) {
		change := mqtttest.Dup
		if i == 20 {
			change = func(*packets.Packet) {}
		}
		bridge.Publish("a", payload, 2, mqtttest.WithID(uint16(i+1)), change)
	}
	for id := range uint16(21) {
		bridge.WaitAck(id + 1)
	}
	receiver := b.dial(v3("receiver"))
	wantPayloads(t, receiver.Payloads(21), numbers(1, 21))
	receiver.Silent(20 * time.Millisecond)
}

// A PUBREC of an earlier connection, for a message that this one has not sent
// again yet, is ignored: PUBREL would make the receiver forget a packet id under
// which the message then comes.
func TestLatePubrecOfAnOwedMessage(t *testing.T) {
	b := start(t, setting{})
	o := manual(v5("r"))
	r := b.dial(o)
	r.Subscribe("a", 2)
	p := b.dial(clean("p"))
	p.PublishAndWait("a", "one", 2)
	p.PublishAndWait("a", "two", 2)
	one, two := r.NextPublish(), r.NextPublish()
	r.Cut()

	o.ReceiveMaximum = 1
	r = b.dial(o)
	if again := r.NextPublish(); again.PacketID != one.PacketID {
		t.Fatalf("packet id %d comes first, want %d", again.PacketID, one.PacketID)
	}
	pubrec := func(id uint16) {
		r.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrec}, PacketID: id})
	}
	pubrec(two.PacketID)
	pubrec(one.PacketID)
	if pk := r.NextOf(packets.Pubrel); pk.PacketID != one.PacketID {
		t.Fatalf("PUBREL %d, want %d", pk.PacketID, one.PacketID)
	}
	r.Complete(one.PacketID)
	if again := r.NextPublish(); again.PacketID != two.PacketID || !again.FixedHeader.Dup {
		t.Errorf("then %s, want message two again", mqtttest.Describe(again))
	}
}
