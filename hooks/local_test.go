package hooks_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// next returns what a handler has put into a channel.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	timeout := time.NewTimer(mqtttest.Deadline)
	defer timeout.Stop()
	select {
	case v = <-from:
	case <-timeout.C:
		t.Fatal("the handler is not called")
	}
	return v
}

// A program gets messages of every QoS, wills and retained ones.
func TestSubscribe(t *testing.T) {
	b := start(t, setting{})
	publisher := b.dial(v5("publisher"))
	publisher.PublishAndWait("a", "kept", 1, mqtttest.Retain)
	handled := make(chan inbox.Entry, 10)
	stop, err := b.hook.Subscribe(t.Context(), "a/+/#", func(e inbox.Entry) { handled <- e })
	if err != nil {
		t.Fatal(err)
	}
	publisher.PublishAndWait("a/b", "before", 1, mqtttest.Retain) // which is not for "a/+/#" of the MQTT library
	if e := next(t, handled); string(e.Envelope.Payload) != "before" || e.Retain {
		t.Errorf("got %q, retain %t", e.Envelope.Payload, e.Retain)
	}
	stop()
	stop()

	stop, err = b.hook.Subscribe(t.Context(), "a/#", func(e inbox.Entry) { handled <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 2 {
		if e := next(t, handled); !e.Retain || e.Envelope.Client != "publisher" {
			t.Errorf("got %q of %s, want what is retained", e.Envelope.Payload, e.Envelope.Client)
		}
	}
	for qos := range byte(3) {
		publisher.PublishAndWait("a", strconv.Itoa(int(qos)), qos)
		if e := next(t, handled); string(e.Envelope.Payload) != strconv.Itoa(int(qos)) || e.QoS != qos {
			t.Errorf("got %q at QoS %d, want that of QoS %d", e.Envelope.Payload, e.QoS, qos)
		}
	}
	if ack := publisher.WaitAck(publisher.Publish("a", "x", 1)); ack.ReasonCode != 0 {
		t.Errorf("got %s: the program is a receiver too", mqtttest.Describe(ack))
	}
	next(t, handled)
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "a/will", Payload: "gone"}
	b.dial(o).Cut()
	if e := next(t, handled); string(e.Envelope.Payload) != "gone" {
		t.Errorf("got %q, want the will", e.Envelope.Payload)
	}
	for _, filter := range []string{"", "a#", "$share/g/a"} {
		if _, err := b.hook.Subscribe(t.Context(), filter, func(inbox.Entry) {}); !errors.Is(err, packets.ErrTopicFilterInvalid) {
			t.Errorf("filter %q: %v", filter, err)
		}
	}
}

// A handler that takes its time holds up nobody, and misses nothing that is kept.
func TestSlowHandler(t *testing.T) {
	b := start(t, setting{})
	handled, proceed := make(chan string), make(chan struct{})
	stop, err := b.hook.Subscribe(t.Context(), "#", func(e inbox.Entry) {
		<-proceed
		if e.QoS > 0 {
			handled <- string(e.Envelope.Payload)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b.publish("a", 1, 3000)
	receiver := b.dial(v3("receiver"))
	receiver.Subscribe("plain", 0)
	publisher := b.dial(v3("publisher"))
	for _, payload := range numbers(1, 500) {
		publisher.Publish("plain", payload, 0)
	}
	wantPayloads(t, receiver.Payloads(500), numbers(1, 500))
	close(proceed)
	for _, want := range numbers(1, 3000) {
		if got := next(t, handled); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	if b.hook.Counts().LiveDropped == 0 {
		t.Error("no message of QoS 0 is dropped")
	}
	stop()
}

// No client can take the place of the program.
func TestInlineClientIsTheProgram(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) { o.InlineClient = true }})
	if pk := mqtttest.Refused(t, b.addr, v5(mqtt.InlineClientId)); pk.ReasonCode != 0x85 {
		t.Errorf("got %s, want 0x85", mqtttest.Describe(pk))
	}
	if err := b.server.Publish("a", nil, false, 1); err != nil {
		t.Error(err)
	}
	if known, _ := b.server.Clients.Get(mqtt.InlineClientId); known == nil || known.Closed() {
		t.Error("the program's client is gone")
	}
}

// What is not stored is not handed over.
func TestHandlerWaitsForStore(t *testing.T) {
	store := &faulty{}
	b := start(t, setting{Wrap: store.wrap, Mochi: func(o *mqtt.Options) { o.InlineClient = true }})
	handled := make(chan string, 10)
	if err := b.server.Subscribe("a", 1, func(_ *mqtt.Client, _ packets.Subscription, pk packets.Packet) { handled <- string(pk.Payload) }); err != nil {
		t.Fatal(err)
	}
	publisher := b.dial(v5("publisher"))
	for qos := byte(1); qos <= 2; qos++ {
		store.set(func(f *faulty) { f.append = func() error { return inbox.ErrFull } })
		publisher.WaitAck(publisher.Publish("a", "refused", qos))
		store.set(func(f *faulty) { f.append = nil })
		publisher.PublishAndWait("a", "stored", qos)
		if got := next(t, handled); got != "stored" {
			t.Errorf("QoS %d: got %q", qos, got)
		}
	}
}

// The subscriptions of mqtt.Server get wills and retained messages as well, each
// once, and end with Unsubscribe.
func TestInlineSubscriptions(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) { o.InlineClient = true }})
	publisher := b.dial(v5("publisher"))
	publisher.PublishAndWait("a", "kept", 1, mqtttest.Retain)
	handled := make(chan packets.Packet, 10)
	handler := func(cl *mqtt.Client, _ packets.Subscription, pk packets.Packet) {
		if cl == nil {
			t.Error("handler called without a client")
		}
		handled <- pk
	}
	for _, filter := range []string{"a/#", "will", "$SYS/broker/version"} {
		if err := b.server.Subscribe(filter, 1, handler); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]bool{}
	for range 2 {
		pk := next(t, handled)
		got[pk.TopicName] = pk.FixedHeader.Retain
	}
	if !got["a"] || !got["$SYS/broker/version"] {
		t.Errorf("got %v, want two retained messages", got)
	}
	for qos := range byte(3) {
		publisher.PublishAndWait("a/b", "x", qos)
		if pk := next(t, handled); string(pk.Payload) != "x" || pk.FixedHeader.Qos != qos {
			t.Errorf("got %s, want that of QoS %d", mqtttest.Describe(pk), qos)
		}
	}
	publisher.PublishAndWait("a", "above", 1) // which the library misses
	next(t, handled)
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "will", Payload: "gone", QoS: 1}
	b.dial(o).Cut()
	if pk := next(t, handled); string(pk.Payload) != "gone" {
		t.Errorf("got %s, want the will", mqtttest.Describe(pk))
	}

	if err := b.server.Unsubscribe("a/#", 1); err != nil {
		t.Fatal(err)
	}
	publisher.PublishAndWait("a/b", "never", 1)
	publisher.PublishAndWait("will", "x", 1)
	if pk := next(t, handled); pk.TopicName != "will" {
		t.Errorf("got %s after the end of the subscription", mqtttest.Describe(pk))
	}
}

func TestInlineClient(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) { o.InlineClient = true }})
	handled := make(chan string, 10)
	err := b.server.Subscribe("a/#", 1, func(_ *mqtt.Client, _ packets.Subscription, pk packets.Packet) {
		handled <- string(pk.Payload)
	})
	if err != nil {
		t.Fatal(err)
	}
	b.subscribed(v3("receiver"), "a/#", 2)
	for qos := byte(1); qos <= 2; qos++ {
		if err := b.server.Publish("a/b", []byte("inline"), false, qos); err != nil {
			t.Fatal(err)
		}
	}
	b.dial(clean("publisher")).PublishAndWait("a/b", "client", 1)
	for _, want := range []string{"inline", "inline", "client"} {
		if got := <-handled; got != want {
			t.Errorf("handler got %q, want %q", got, want)
		}
	}
	wantPayloads(t, b.dial(v3("receiver")).Payloads(3), []string{"inline", "inline", "client"})
}

// Two goroutines of the program subscribe alike, at the same time: the library has one of
// them, and its handler is called once.
func TestInlineSubscriptionsAtOnce(t *testing.T) {
	store := new(faulty)
	b := start(t, setting{Wrap: store.wrap, Mochi: func(o *mqtt.Options) { o.InlineClient = true }})
	both := make(chan struct{})
	store.set(func(f *faulty) {
		f.subscribe = func() error { // neither goes on without the other
			select {
			case both <- struct{}{}:
			case <-both:
			}
			return nil
		}
	})
	handled := make(chan string, 10)
	var subscribing sync.WaitGroup
	for range 2 {
		subscribing.Go(func() {
			err := b.server.Subscribe("a", 1, func(_ *mqtt.Client, _ packets.Subscription, pk packets.Packet) {
				handled <- string(pk.Payload)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	subscribing.Wait()
	publisher := b.dial(v5("publisher"))
	for _, text := range []string{"1", "2", "3"} {
		publisher.PublishAndWait("a", text, 1)
		if got := next(t, handled); got != text {
			t.Errorf("handled %q, want %q", got, text)
		}
	}
}
