package hostiletest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// stuckClient takes over from a client that does not read [case 033]. The new
// link has all the messages.
func stuckClient(t *testing.T, p *patient) {
	const messages = 2000
	o := mqtttest.Options{ClientID: "stuck"}
	stuck := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "stuck", ManualAck: true})
	stuck.Subscribe("stuck", 1)
	stuck.Freeze()
	publisher := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "pusher", Clean: true})
	payload := strings.Repeat("x", 1<<10)
	for i := 0; i < messages; i += 100 {
		var ids []uint16
		for n := range 100 {
			ids = append(ids, publisher.Publish("stuck", fmt.Sprintf("%d %s", i+n, payload), 1))
		}
		for _, id := range ids {
			publisher.WaitAck(id)
		}
	}
	publisher.Disconnect()

	next := mqtttest.Dial(t, p.Address, o) // which the broker refuses before the time for writing to the other one is over
	for i, got := range next.Payloads(messages) {
		if want := fmt.Sprint(i); !strings.HasPrefix(got, want+" ") {
			t.Fatalf("message %d is %.10q", i, got)
		}
	}
	next.Disconnect()
	stuck.Cut()
	p.clean(t, "stuck")
}

// takeoverWar has two clients with one id that connect again as soon as they
// have lost their link, while messages come [case 032]. Each message reaches one
// of them, or whoever comes last.
func takeoverWar(t *testing.T, p *patient) {
	const messages = 1000
	o := mqtttest.Options{ClientID: "contested"}
	first := mqtttest.Dial(t, p.Address, o)
	first.Subscribe("war", 1)
	first.Disconnect()

	var got sync.Map // payloads
	var links atomic.Int64
	peace, declare := context.WithCancel(t.Context())
	defer declare()
	var fighters sync.WaitGroup
	for range 2 {
		fighters.Go(func() {
			for peace.Err() == nil {
				links.Add(1)
				fight(peace, p.Address, o, &got)
			}
		})
	}
	publisher := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "reporter", Clean: true})
	for i := range messages {
		publisher.PublishAndWait("war", fmt.Sprint(i), 1)
	}
	publisher.Disconnect()
	declare()
	fighters.Wait()

	last := mqtttest.Dial(t, p.Address, o)
	missing := func() (n int) {
		for i := range messages {
			if _, ok := got.Load(fmt.Sprint(i)); !ok {
				n++
			}
		}
		return n
	}
	for missing() > 0 {
		pk, ok := last.Next(mqtttest.Deadline)
		if !ok {
			t.Fatalf("%d of %d messages are lost", missing(), messages)
		}
		got.Store(string(pk.Payload), true)
	}
	t.Logf("%d links", links.Load())
	last.Disconnect()
	p.clean(t, "contested")
}

// fight is one link of a client in the war.
func fight(peace context.Context, address string, o mqtttest.Options, got *sync.Map) {
	c, err := mqtttest.Open(address, o)
	if err != nil {
		return // taken over before CONNACK
	}
	defer c.Close()
	stop := context.AfterFunc(peace, func() { c.Close() })
	defer stop()
	for {
		pk, err := c.Read()
		if err != nil {
			return
		}
		if pk.FixedHeader.Type != packets.Publish {
			continue
		}
		got.Store(string(pk.Payload), true)
		if c.Write(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: pk.PacketID}) != nil {
			return
		}
	}
}

// sameID connects and disconnects one id, in every way that a link can end.
func sameID(t *testing.T, p *patient) {
	const atOnce = 4
	var group sync.WaitGroup
	for n := range atOnce {
		group.Go(func() {
			for i := range *connects / atOnce {
				c, err := mqtttest.Open(p.Address, mqtttest.Options{
					ClientID: "again", Version: byte(4 + i%2), Clean: i%3 == 0, SessionExpiry: 60, //nolint:gosec // 4 or 5
					Will: &mqtttest.Will{Topic: "again", Payload: "gone", QoS: 1},
				})
				if err != nil {
					continue // another of them was faster
				}
				if (i+n)%2 == 0 {
					_ = c.Write(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect}}) // another may have taken over
				}
				_ = c.Close()
			}
		})
	}
	group.Wait()
	p.clean(t, "again")
}
