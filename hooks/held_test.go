package hooks_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// device is a receiver of QoS 2 that keeps what it holds over its connections, in both
// ways that the specification has for it: by method A a message is handed on when it is
// released, by method B when it comes [MQTT-4.3.3]. A broker cannot tell one from the other.
type device struct {
	b                *broker
	o                mqtttest.Options
	c                *mqtttest.Client
	held             map[uint16]string // payloads by packet id: not handed on yet by method A
	released, atOnce []string          // what was handed on
}

func (b *broker) device(o mqtttest.Options) *device {
	return &device{b: b, o: exact(o), held: map[uint16]string{}}
}

// publishTo stores a message of QoS 2 for one receiver, in a topic of its name, by a sender
// of its own.
func (b *broker) publishTo(r, payload string) {
	b.t.Helper()
	p := b.dial(clean("for " + r))
	p.PublishAndWait(r, payload, 2)
	p.Disconnect()
}

// begin subscribes, is sent the message "first", and takes its exchange as far as that.
func (d *device) begin(step int) (first packets.Packet) {
	d.b.t.Helper()
	d.connect()
	d.c.Subscribe(d.o.ClientID, 2)
	d.b.publishTo(d.o.ClientID, "first")
	first = d.c.NextPublish()
	if step >= pubrecLost {
		d.take(first)
	}
	if step >= pubrelLost {
		d.answer(first)
		pk := d.c.NextOf(packets.Pubrel)
		if step >= pubcompLost {
			d.take(pk)
		}
	}
	return first
}

// cut ends the link, and returns when the broker has noticed.
func (d *device) cut() {
	d.b.t.Helper()
	d.c.Cut()
	d.b.awaitAway(d.o.ClientID)
}

// connect connects. Without a session the device forgets what it holds [MQTT-3.2.2-5].
func (d *device) connect() {
	d.b.t.Helper()
	if d.c = d.b.dial(d.o); !d.c.SessionPresent {
		clear(d.held)
	}
}

// take is what the device does with a packet before it answers.
func (d *device) take(pk packets.Packet) {
	payload, held := d.held[pk.PacketID]
	switch pk.FixedHeader.Type {
	case packets.Publish:
		if !held { // else it is a repeat, and only acknowledged
			d.held[pk.PacketID] = string(pk.Payload)
			d.atOnce = append(d.atOnce, string(pk.Payload))
		}
	case packets.Pubrel:
		if held {
			d.released = append(d.released, payload)
			delete(d.held, pk.PacketID)
		}
	}
}

// answer acknowledges a packet: an id that is not known too [MQTT-4.3.3-11].
func (d *device) answer(pk packets.Packet) {
	d.b.t.Helper()
	switch pk.FixedHeader.Type {
	case packets.Publish:
		d.c.Ack(pk)
	case packets.Pubrel:
		d.c.Complete(pk.PacketID)
	}
}

// until takes and answers until a message was handed on by both methods, and then all
// that has come.
func (d *device) until(payload string) {
	d.b.t.Helper()
	for !slices.Contains(d.released, payload) {
		pk, ok := d.c.Next(mqtttest.Deadline)
		if !ok {
			d.b.t.Fatalf("%s: %q did not come; handed on %q and %q, held %v", d.o.ClientID, payload, d.released, d.atOnce, d.held)
		}
		d.take(pk)
		d.answer(pk)
	}
	d.c.Ping()
	for pk, ok := d.c.Next(0); ok; pk, ok = d.c.Next(0) {
		d.take(pk)
		d.answer(pk)
	}
}

// once fails if a message was handed on twice, or not at all if it must have been.
func (d *device) once(payload string, must bool) {
	d.b.t.Helper()
	for method, got := range map[string][]string{"A": d.released, "B": d.atOnce} {
		n := 0
		for _, p := range got {
			if p == payload {
				n++
			}
		}
		if n > 1 || must && n == 0 {
			d.b.t.Errorf("%s: method %s has handed on %q %d times: %q", d.o.ClientID, method, payload, n, got)
		}
	}
}

// turn has the packet ids of a receiver that is away go round, up to the one in front
// of id, as many messages would.
func (b *broker) turn(r string, id uint16) {
	b.t.Helper()
	var state inbox.State
	in, _, err := b.store.Open(b.t.Context(), inbox.Receiver(r), inbox.OpenOptions{
		Resume: true, Expiry: 3600, State: func() inbox.State { return state },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	state = in.State()
	state.LastID, state.Resting = id-1, nil
	if err := in.Close(b.t.Context(), inbox.Ending{Expiry: 3600}); err != nil {
		b.t.Fatal(err)
	}
}

// How far the exchange of a message has come, for the broker and for its receiver.
const (
	publishLost = iota // sent and never seen
	pubrecLost         // taken
	pubrelLost         // PUBREC has arrived
	pubcompLost        // released
)

var exchanges = []string{"PUBLISH lost", "PUBREC lost", "PUBREL lost", "PUBCOMP lost"}

// A message of QoS 2 that is on its way is taken away by another door, or deleted,
// at each point of its exchange. Its receiver is not left with the packet id: whichever method it
// follows, no later message under the same id is lost or comes twice.
func TestHeldPacketIDIsReleased(t *testing.T) {
	t.Parallel()
	b := start(t, setting{Keep: keeping{History: []inbox.Kept{{Filter: "#"}}}})
	ways := []string{"acknowledged", "deleted", "erased"}
	takeAway := func(way string, r string, id inbox.MessageID) {
		t.Helper()
		var err error
		switch way {
		case "acknowledged":
			_, err = b.store.Acknowledge(t.Context(), inbox.Receiver(r), inbox.Acknowledgement{IDs: []inbox.MessageID{id}})
		case "deleted":
			err = b.store.Delete(t.Context(), id, "for "+r)
		case "erased":
			_, err = b.store.Erase(t.Context(), "for "+r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type exchange struct {
		*device
		step  int
		first packets.Packet
	}
	var all []*exchange
	for step := range exchanges {
		for i, way := range ways {
			for _, away := range []bool{false, true} {
				o := v5("")
				if away == ((step+i)%2 == 0) {
					o = v3("")
				}
				o.ClientID = fmt.Sprintf("%s, %s, away %t", exchanges[step], way, away)
				x := &exchange{device: b.device(o), step: step}
				all = append(all, x)
				x.first = x.begin(step)
				page, err := b.store.Pull(t.Context(), inbox.Receiver(o.ClientID), inbox.Query{Max: 1, MaxBytes: 1})
				if err != nil || len(page.Entries) != 1 {
					t.Fatal(page, err)
				}
				if !away {
					takeAway(way, o.ClientID, page.Entries[0].Envelope.ID)
				}
				x.cut()
				if away {
					takeAway(way, o.ClientID, page.Entries[0].Envelope.ID)
				}
			}
		}
	}
	b.restart()
	for i, x := range all {
		r := x.o.ClientID
		if i%4 < 2 { // else the exchange is finished first
			b.turn(r, x.first.PacketID)
		}
		b.publishTo(r, "second")
		b.publishTo(r, "third")
		x.connect()
		x.until("third")
		if i%4 >= 2 {
			x.cut()
			b.turn(r, x.first.PacketID)
			b.publishTo(r, "fourth")
			x.connect()
			x.until("fourth")
			x.once("fourth", true)
		}
		x.once("first", x.step >= pubrecLost)
		x.once("second", true)
		x.once("third", true)
		if len(x.held) > 0 {
			t.Errorf("%s: still held: %v", r, x.held)
		}
		x.c.Disconnect()

		x.connect() // nothing is left to be done
		x.c.Ping()
		if pk, ok := x.c.Next(0); ok {
			t.Errorf("%s: %s on the next connection", r, mqtttest.Describe(pk))
		}
		x.c.Disconnect()
	}
}

// A clean start ends the exchange for both: the same packet id is of another message.
func TestHeldPacketIDEndsWithTheSession(t *testing.T) {
	b := start(t, setting{})
	for _, o := range []mqtttest.Options{v3("3.1.1"), v5("5")} {
		d := b.device(o)
		first := d.begin(pubrecLost)
		if _, err := b.store.Acknowledge(t.Context(), inbox.Receiver(o.ClientID), inbox.Acknowledgement{}); err != nil {
			t.Fatal(err)
		}
		d.cut()
		d.o.Clean = true
		d.connect()
		d.c.Subscribe(o.ClientID, 2)
		b.publishTo(o.ClientID, "second")
		pk := d.c.NextPublish()
		if pk.PacketID != first.PacketID {
			t.Fatalf("%s has id %d, want %d as before", mqtttest.Describe(pk), pk.PacketID, first.PacketID)
		}
		d.take(pk)
		d.answer(pk)
		d.until("second")
		d.once("second", true)
	}
}

// Whatever keeps a message from being sent again, its packet id is released: it does not
// fit any more, everything is to come again, or what waits is to be delivered.
func TestHeldPacketIDOfWhatIsNotSentAgain(t *testing.T) {
	acknowledge := func(d *device) {
		if _, err := d.b.store.Acknowledge(t.Context(), inbox.Receiver(d.o.ClientID), inbox.Acknowledgement{}); err != nil {
			t.Fatal(err)
		}
	}
	between := func(d *device) uint32 { return uint32(len("first") + len(d.o.ClientID) + 6) } // what is longer is too large
	b := start(t, setting{Keep: keeping{Rewind: time.Hour}})
	for name, then := range map[string]func(d *device){
		"too large": func(d *device) { d.o.MaxPacketSize = between(d) },
		"too large for once": func(d *device) {
			d.o.MaxPacketSize = between(d)
			d.connect()
			d.take(d.c.NextOf(packets.Pubrel)) // PUBCOMP is lost
			d.cut()
			d.o.MaxPacketSize = 0 // no PUBLISH follows PUBREL all the same
		},
		"again": func(d *device) {
			d.o.UserProperties = []packets.UserProperty{{Key: "inbox-from", Val: "0"}}
			d.released, d.atOnce = nil, nil // which is why it asks
		},
		"to push mode": func(d *device) {
			acknowledge(d)
			d.o.UserProperties = []packets.UserProperty{{Key: "inbox-mode", Val: "pull"}}
			d.connect()
			d.cut()
			b.publishTo(d.o.ClientID, "waited")
			d.o.UserProperties = []packets.UserProperty{{Key: "inbox-mode", Val: "push"}}
		},
		"taken over": func(d *device) {
			acknowledge(d)
			d.connect()
			d.c.Ping() // PUBREL has been sent, and is lost
		},
		"narrow": func(d *device) {
			d.o.ReceiveMaximum = 1
			acknowledge(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := b.device(v5(name))
			first := d.begin(pubrecLost)
			if name != "taken over" {
				d.cut()
			}
			then(d)
			b.publishTo(name, "x") // fits
			d.connect()
			d.o.UserProperties = nil
			d.until("x")
			d.once("x", true)
			if name != "again" {
				d.once("first", true)
			}
			if name == "to push mode" {
				d.once("waited", true)
			}
			if len(d.held) > 0 {
				t.Errorf("still held: %v", d.held)
			}
			d.cut()
			b.turn(name, first.PacketID)
			b.publishTo(name, "y")
			d.connect()
			d.until("y")
			d.once("y", true)
			d.c.Disconnect()
		})
	}
}

// What a receiver gives up is completed if it was sent.
func TestHeldPacketIDOfWhatWasGivenUp(t *testing.T) {
	b := start(t, setting{})
	d := b.device(v5("device"))
	first := d.begin(pubrecLost)
	d.c.Unsubscribe("device")
	d.cut()
	b.restart()
	d.connect()
	if pk := d.c.NextPublish(); pk.PacketID != first.PacketID || !pk.FixedHeader.Dup {
		t.Errorf("%s, want it again under id %d", mqtttest.Describe(pk), first.PacketID)
	} else {
		d.take(pk)
		d.answer(pk)
	}
	d.until("first")
	d.once("first", true)
}

// At QoS 1 nothing is held: the packet id is free, and a late PUBACK, on the same
// connection or the next, acknowledges nothing else.
func TestLatePubackOfWhatWasAcknowledged(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("phone"), "a", 1)
	publisher := b.dial(clean("publisher"))
	publisher.PublishAndWait("a", "one", 1)
	publisher.PublishAndWait("a", "two", 1)
	acknowledge := func() {
		t.Helper()
		if _, err := b.store.Acknowledge(t.Context(), "phone", inbox.Acknowledgement{}); err != nil {
			t.Fatal(err)
		}
	}
	o := manual(v5("phone"))
	o.ReceiveMaximum = 2
	phone := b.dial(o)
	sent := phone.Collect(2)
	acknowledge()
	publisher.PublishAndWait("a", "three", 1)
	phone.Ack(sent[0]) // makes room, and is of nothing else
	three := phone.NextPublish()
	if string(three.Payload) != "three" || three.PacketID == sent[0].PacketID || three.PacketID == sent[1].PacketID {
		t.Errorf("got %s after ids %d and %d", mqtttest.Describe(three), sent[0].PacketID, sent[1].PacketID)
	}
	phone.Ack(sent[0])
	unread(t, phone, 1)
	acknowledge()
	phone.Cut()
	b.awaitAway(phone.ID)
	b.awaitAway("phone")

	publisher.PublishAndWait("a", "four", 1)
	phone = b.dial(o)
	if pk := phone.NextPublish(); string(pk.Payload) != "four" || pk.FixedHeader.Dup {
		t.Errorf("got %s, want message four", mqtttest.Describe(pk))
	}
	phone.Ack(sent[1])
	phone.Ack(three)
	unread(t, phone, 1)
}
