package hooks_test

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// Field case 027: nothing is lost when a connection is taken over under load, and
// only what was not acknowledged comes twice.
func TestTakeoverUnderLoad(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	var stop atomic.Bool
	published := make(chan int, 1)
	go func() {
		publisher, err := mqtttest.Open(b.addr, clean("publisher"))
		if err != nil {
			t.Error(err)
			published <- 0
			return
		}
		defer publisher.Close()
		n := 0
		for ; !stop.Load(); n += 20 {
			if err := burst(publisher, n, 20); err != nil {
				t.Error(err)
				break
			}
		}
		published <- n
	}()

	acked, got := map[string]bool{}, map[string]bool{}
	for range 30 {
		receiver := b.conn(v3("receiver")) // the link before stays open at the client's end
		for _, pk := range receive(t, receiver, 20) {
			if acked[string(pk.Payload)] && !pk.FixedHeader.Dup {
				t.Errorf("%s comes again without DUP", mqtttest.Describe(pk))
			}
			acked[string(pk.Payload)] = true
			got[string(pk.Payload)] = true
		}
	}
	stop.Store(true)
	total := <-published
	receiver := b.conn(v3("receiver"))
	for began := time.Now(); len(got) < total && time.Since(began) < mqtttest.Deadline; {
		for _, pk := range drain(t, receiver, 50*time.Millisecond) {
			got[string(pk.Payload)] = true
		}
	}
	if len(got) != total {
		t.Errorf("received %d of %d messages", len(got), total)
	}
}

// What a receiver has acknowledged before another connection took over does not come again,
// though the broker had not got to read it, and had not for a while then.
func TestTakeoverReadsWhatHasCome(t *testing.T) {
	for i, o := range []mqtttest.Options{manual(v3("receiver")), manual(v5("receiver")), manual(v3("receiver"))} {
		for inTime := false; !inTime; { // else the machine was so busy that the broker gave up
			late := &lateReads{times: 2}
			if i == 2 {
				late = &lateReads{blind: true}
			}
			b := start(t, setting{Listen: late.listen})
			old := b.dial(o)
			old.Subscribe("a", 1)
			late.hold(old)
			b.publish("a", 1, 3)
			for _, pk := range old.Collect(3) {
				old.Ack(pk)
			}
			began := time.Now()
			receiver := b.dial(o)
			if inTime = time.Since(began) < time.Second; inTime {
				b.publish("a", 4, 4)
				wantPayloads(t, receiver.Payloads(1), []string{"4"})
			}
		}
	}
}

// burst publishes so many numbers and waits for their acknowledgements.
func burst(c *mqtttest.Conn, first, n int) error {
	for i := range n {
		err := c.Buffer(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1},
			TopicName:   "a",
			PacketID:    uint16(i + 1),
			Payload:     []byte(strconv.Itoa(first + i)),
		})
		if err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for range n {
		if _, err := c.ReadWithin(mqtttest.Deadline); err != nil {
			return err
		}
	}
	return nil
}

// Field case 029: the new connection receives what it subscribes to, whatever
// the old one had.
func TestTakeoverWithCleanStart(t *testing.T) {
	b := start(t, setting{})
	old := b.dial(v3("x"))
	old.Subscribe("a", 1)
	o := v3("x")
	o.Clean = true
	c := b.dial(o)
	c.Subscribe("a", 1)
	old.WaitClosed()
	publisher := b.dial(clean("publisher"))
	for i := range 20 {
		publisher.PublishAndWait("a", strconv.Itoa(i+1), 1)
		wantPayloads(t, c.Payloads(1), numbers(i+1, i+1))
		publisher.Publish("a", "plain", 0)
		wantPayloads(t, c.Payloads(1), []string{"plain"})
	}
}

// A new connection waits until the session of the old one is given back, so that
// the end of the old one takes nothing away from it.
func TestNewConnectionWaitsForOldOne(t *testing.T) {
	ending, ended := make(chan struct{}), make(chan struct{})
	store := &faulty{close: func() error { close(ending); <-ended; return nil }}
	b := start(t, setting{Wrap: store.wrap})
	old := b.dial(clean("x"))
	old.Subscribe("a", 1)
	old.Cut()
	<-ending
	store.set(func(f *faulty) { f.close = nil })
	raw := mqtttest.DialRaw(t, b.addr, v3("x"))
	raw.SendRaw(connectFrame("x"))
	if pk, ok := raw.Next(50 * time.Millisecond); ok {
		t.Errorf("got %s while the old connection has not ended", mqtttest.Describe(pk))
	}
	close(ended)
	raw.NextOf(packets.Connack)
	raw.Subscribe("a", 1)
	b.dial(clean("publisher")).Publish("a", "plain", 0)
	wantPayloads(t, raw.Payloads(1), []string{"plain"})
}

// Field case 033: a connection whose socket is full is taken over at once.
func TestTakeoverOfStuckConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true, Options: hooks.Options{OutBytes: 8 << 10, Window: 60000}})
		// Nobody sends anything while large messages come: in memory there is no room between
		// the two ends, and either would wait for the other to read.
		for _, o := range []mqtttest.Options{v3("old"), v5("modern")} {
			setup := b.dial(o)
			setup.Subscribe("a", 1)
			setup.Subscribe("plain", 0)
			setup.Disconnect()
			o.Frozen = true
			b.dial(o)
			publisher := b.dial(clean("publisher"))
			payload := strings.Repeat("x", 64<<10)
			for range 20 { // more than its buffers hold
				publisher.Publish("plain", payload, 0)
				publisher.PublishAndWait("a", payload, 1)
			}
			before := time.Now()
			o.Frozen, o.ManualAck = false, true
			c := b.dial(o)
			if took := time.Since(before); took > 1100*time.Millisecond { // a second is for what waits to be written
				t.Errorf("takeover took %s", took)
			}
			c.NextPublish()
			c.Cut()
		}
	})
}

// Field case 034: CONNACK is the first packet, whatever is on its way to the
// client.
func TestConnackIsFirst(t *testing.T) {
	b := start(t, setting{})
	setup := b.dial(v3("x"))
	setup.SubscribeAll(packets.Subscription{Filter: "a", Qos: 1}, packets.Subscription{Filter: "plain", Qos: 0})
	setup.Disconnect()

	var wg sync.WaitGroup
	var stop atomic.Bool
	wg.Go(func() {
		publisher, err := mqtttest.Open(b.addr, clean("publisher"))
		if err != nil {
			t.Error(err)
			return
		}
		defer publisher.Close()
		for !stop.Load() {
			for _, topic := range []string{"plain", "a"} {
				pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1}, TopicName: topic, PacketID: 1}
				if err := publisher.Write(pk); err != nil {
					t.Error(err)
					return
				}
				if _, err := publisher.ReadWithin(mqtttest.Deadline); err != nil {
					t.Error(err)
					return
				}
				pk.FixedHeader.Qos, pk.PacketID = 0, 0
				if err := publisher.Write(pk); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 200 {
		c, err := mqtttest.Open(b.addr, v3("x")) // fails unless CONNACK comes first
		if err != nil {
			t.Fatal(err)
		}
		receive(t, c, 1)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	wg.Wait()
}

// Of many connections of one client that come at once, one stays.
func TestSimultaneousConnects(t *testing.T) {
	b := start(t, setting{})
	var wg sync.WaitGroup
	var ended atomic.Int32
	conns := make([]*mqtttest.Conn, 20)
	for i := range conns {
		wg.Go(func() {
			c, err := mqtttest.Open(b.addr, v3("x"))
			if err != nil {
				ended.Add(1)
				return
			}
			conns[i] = c
		})
	}
	wg.Wait()
	for _, c := range conns {
		if c == nil {
			continue
		}
		defer c.Close()
		go func() {
			for {
				if _, err := c.Read(); err != nil {
					ended.Add(1)
					return
				}
			}
		}()
	}
	mqtttest.Eventually(t, func() bool { return ended.Load() == 19 }, "19 connections have ended")
	if n := b.server.Clients.Len(); n != 1 {
		t.Errorf("%d clients known, want 1", n)
	}
	known, _ := b.server.Clients.Get("x")
	if known == nil || known.Closed() {
		t.Error("the client that is known has ended")
	}
	b.dial(v3("x")).Ping() // and it can be taken over
	mqtttest.Eventually(t, func() bool { return ended.Load() == 20 }, "all have ended")
}
