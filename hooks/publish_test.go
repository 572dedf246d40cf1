package hooks_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Field case 001: no PUBACK before the store is done.
func TestPubackWaitsForStore(t *testing.T) {
	stored := make(chan struct{})
	store := &faulty{append: func() error { <-stored; return nil }}
	b := start(t, setting{Wrap: store.wrap})
	receiver := b.dial(v3("receiver"))
	receiver.Subscribe("a", 1)
	publisher := b.dial(clean("publisher"))
	id := publisher.Publish("a", "x", 1)
	if pk, ok := publisher.Next(50 * time.Millisecond); ok {
		t.Fatalf("%s while the store is not done", mqtttest.Describe(pk))
	}
	receiver.Silent(10 * time.Millisecond)
	close(stored)
	publisher.WaitAck(id)
	wantPayloads(t, receiver.Payloads(1), []string{"x"})
}

// Field case 001: an error of the store is told, or the link ends.
func TestStoreErrorsReachPublisher(t *testing.T) {
	tests := []struct {
		err  error
		code byte
	}{
		{inbox.ErrFull, 0x97},
		{inbox.ErrTooLarge, 0x83},
		{errors.New("other"), 0x80},
	}
	for _, tt := range tests {
		t.Run(tt.err.Error(), func(t *testing.T) {
			store := &faulty{append: func() error { return tt.err }}
			b := start(t, setting{Wrap: store.wrap})
			modern := b.dial(v5("modern"))
			if ack := modern.WaitAck(modern.Publish("a", "x", 1)); ack.ReasonCode != tt.code {
				t.Errorf("PUBACK %#x, want %#x", ack.ReasonCode, tt.code)
			}
			if ack := modern.WaitAck(modern.Publish("a", "x", 2)); ack.FixedHeader.Type != packets.Pubrec || ack.ReasonCode != tt.code {
				t.Errorf("%s, want PUBREC with %#x", mqtttest.Describe(ack), tt.code)
			}

			for qos := byte(1); qos <= 2; qos++ {
				old := b.dial(v3("old"))
				old.Publish("a", "x", qos)
				old.WaitClosed()
				if pk, ok := old.Next(time.Millisecond); ok {
					t.Errorf("%s, want a closed link and nothing else", mqtttest.Describe(pk))
				}
			}
			if n := b.hook.Counts().Refused; n != 4 {
				t.Errorf("%d messages counted as refused, want 4", n)
			}

			store.set(func(f *faulty) { f.append = nil }) // the store is well again
			modern.PublishAndWait("a", "x", 1)
			modern.PublishAndWait("a", "x", 2)
		})
	}
}

// A publisher whose message may be stored is not told that it is not: it sends
// it again on the next link, and of QoS 2 it is stored once.
func TestUncertainStoreEndsLink(t *testing.T) {
	store := &faulty{append: func() error { return inbox.ErrUncertain }}
	b := start(t, setting{Wrap: store.wrap})
	for qos := byte(1); qos <= 2; qos++ {
		publisher := b.dial(v5("publisher"))
		publisher.Publish("a", "x", qos)
		if pk, ok := publisher.Next(mqtttest.Deadline); !ok || pk.FixedHeader.Type != packets.Disconnect || pk.ReasonCode != 0x80 {
			t.Errorf("QoS %d: got %s, want DISCONNECT with 0x80", qos, mqtttest.Describe(pk))
		}
	}
}

func TestPubackSaysWhetherSomebodyWantsIt(t *testing.T) {
	b := start(t, setting{})
	publisher := b.dial(v5("publisher"))
	if ack := publisher.WaitAck(publisher.Publish("a", "x", 1)); ack.ReasonCode != 0x10 {
		t.Errorf("nobody subscribed: %#x, want 0x10", ack.ReasonCode)
	}
	b.subscribed(v5("receiver"), "a", 1)
	if ack := publisher.WaitAck(publisher.Publish("a", "x", 1)); ack.ReasonCode != 0 {
		t.Errorf("an absent receiver: %#x, want 0", ack.ReasonCode)
	}
}

// Acknowledgements go to the link that the message came on, in order.
func TestPubacksComeInOrder(t *testing.T) {
	b := start(t, setting{})
	publisher := b.dial(clean("publisher"))
	var want, got []uint16
	for range 300 {
		want = append(want, publisher.Publish("a", "x", 1))
	}
	for range want {
		got = append(got, publisher.NextOf(packets.Puback).PacketID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("acknowledged %v, want %v", got, want)
	}
}

func TestLateStoreAcknowledgesNobodyElse(t *testing.T) {
	stored, appended := make(chan struct{}), make(chan struct{}, 10)
	store := &faulty{}
	b := start(t, setting{Wrap: store.wrap})
	first := b.dial(v5("publisher"))
	store.set(func(f *faulty) {
		f.append = func() error { appended <- struct{}{}; <-stored; return nil }
	})
	first.Publish("a", "x", 1, mqtttest.WithID(9))
	<-appended
	first.Cut()

	// The read goroutine of the first link is held up by the store, so that the
	// next link waits for it.
	go func() { close(stored) }()
	second := b.dial(v5("publisher"))
	second.Ping()
	if pk, ok := second.Next(20 * time.Millisecond); ok {
		t.Errorf("%s on a link that published nothing", mqtttest.Describe(pk))
	}
}

// Topics of the server's own are refused with an answer, which before MQTT 5 can
// only be an acknowledgement.
func TestServerTopicsAreRefused(t *testing.T) {
	b := start(t, setting{})
	watcher := b.dial(v5("watcher"))
	watcher.Subscribe("$other/#", 2)
	for _, topic := range []string{"$SYS/broker/x", "$sys/x", "$other/x"} {
		modern := b.dial(v5("modern"))
		for qos := byte(1); qos <= 2; qos++ {
			if ack := modern.WaitAck(modern.Publish(topic, "x", qos)); ack.ReasonCode != 0x90 {
				t.Errorf("%s at QoS %d: %#x, want 0x90", topic, qos, ack.ReasonCode)
			}
		}
		old := b.dial(v3("old"))
		for qos := byte(1); qos <= 2; qos++ {
			old.PublishAndWait(topic, "x", qos)
		}
		old.Ping()
	}
	watcher.Ping()
	if pk, ok := watcher.Next(20 * time.Millisecond); ok {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
}

// A client that exceeds the announced Receive Maximum is disconnected; one that
// cannot know it is made to wait.
func TestReceiveMaximumOfServer(t *testing.T) {
	store := &delaying{}
	b := start(t, setting{
		Wrap:  store.wrap,
		Mochi: func(o *mqtt.Options) { o.Capabilities.ReceiveMaximum = 5 },
	})
	modern := b.dial(v5("modern"))
	if n := modern.Properties.ReceiveMaximum; n != 5 {
		t.Fatalf("Receive Maximum %d announced, want 5", n)
	}
	old := b.dial(v3("old"))
	for range 6 {
		modern.Publish("a", "x", 1)
		old.Publish("a", "x", 1)
	}
	if code := modern.WaitDisconnect(); code != 0x93 {
		t.Errorf("DISCONNECT %#x, want 0x93", code)
	}
	store.release()
	for id := range uint16(6) {
		old.WaitAck(id + 1)
	}

	// QoS 2 counts until PUBCOMP.
	exact := b.dial(mqtttest.Options{ClientID: "exact", Version: 5, Clean: true, ManualRelease: true})
	for range 5 {
		exact.Publish("a", "x", 2)
	}
	exact.Release(exact.NextOf(packets.Pubrec).PacketID)
	exact.NextOf(packets.Pubcomp)
	exact.PublishAndWait("a", "x", 1)
	exact.Publish("a", "x", 2)
	exact.Publish("a", "x", 2)
	if code := exact.WaitDisconnect(); code != 0x93 {
		t.Errorf("DISCONNECT %#x, want 0x93", code)
	}
}

// Field case 123: an unacknowledged message that is sent again on the same link.
func TestPublishAgainOnSameLink(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v3("receiver"))
	receiver.Subscribe("a", 1)
	publisher := b.dial(v3("publisher"))
	for _, p := range []struct {
		payload string
		id      uint16
		dup     bool
	}{{"1", 1, false}, {"1", 1, true}, {"2", 2, false}, {"2", 3, true}, {"3", 4, false}, {"3", 4, false}, {"4", 5, false}} {
		id := publisher.Publish("a", p.payload, 1, mqtttest.WithID(p.id), func(pk *packets.Packet) { pk.FixedHeader.Dup = p.dup })
		publisher.WaitAck(id)
	}
	got := receiver.Payloads(7)
	if !slices.IsSorted(got) || len(slices.Compact(got)) != 4 {
		t.Errorf("received %v, want 1 to 4 in order, with repeats", got)
	}
}

// Field case 124: a publisher that sends its whole window again at once.
func TestPublisherResendsWindow(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) { o.Capabilities.ReceiveMaximum = 20 }})
	b.subscribed(v3("receiver"), "a", 1)
	for range 2 {
		publisher := b.dial(v3("publisher"))
		for i := range 500 {
			publisher.Publish("a", "x", 1, mqtttest.WithID(uint16(i+1)), mqtttest.Dup)
		}
		for i := range 500 {
			publisher.WaitAck(uint16(i + 1))
		}
		publisher.Cut()
	}
	receive(t, b.conn(v3("receiver")), 1000)
}

func TestOptions(t *testing.T) {
	tests := []struct {
		name string
		o    hooks.Options
		ok   bool
	}{
		{"zero", hooks.Options{}, true},
		{"window too large", hooks.Options{Window: 65536}, false},
		{"window negative", hooks.Options{Window: -1}, false},
		{"largest window", hooks.Options{Window: 65535}, true},
		{"small buffer", hooks.Options{OutBytes: 100}, false},
		{"negative timeout", hooks.Options{WriteTimeout: -1}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := hooks.New(nil, tt.o); (err == nil) != tt.ok {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAttachRefusesUselessServer(t *testing.T) {
	hook, err := hooks.New(nil, hooks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := mqtt.New(&mqtt.Options{Capabilities: &mqtt.Capabilities{}})
	if err := hook.Attach(server); err == nil {
		t.Error("a server that refuses every publisher is accepted")
	}
}
