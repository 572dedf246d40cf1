package hooks_test

import (
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// Field case 067: a will is a message like any other.
func TestWillIsStored(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "will", 1)
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "will", Payload: "gone", QoS: 1, Expiry: 600}
	b.dial(o).Cut()
	receiver := b.dial(v5("receiver"))
	pk := receiver.NextPublish()
	if string(pk.Payload) != "gone" || pk.FixedHeader.Qos != 1 || pk.Properties.MessageExpiryInterval == 0 {
		t.Errorf("got %s with %+v", mqtttest.Describe(pk), pk.Properties)
	}

	o.Will.Payload = "not sent"
	b.dial(o).Disconnect()
	o.Will.Payload, o.Will.QoS = "plain", 0
	b.dial(o).Cut()
	if pk := receiver.NextPublish(); string(pk.Payload) != "plain" {
		t.Errorf("got %s, want the will of QoS 0", mqtttest.Describe(pk))
	}
}

// Field case 062: a will does not come if its client is back in time.
func TestDelayedWillOfReturningClient(t *testing.T) {
	t.Parallel()
	b := start(t, setting{})
	watcher := b.dial(v5("watcher"))
	watcher.Subscribe("will", 1)
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "will", Payload: "gone", QoS: 1, Delay: 1}
	b.dial(o).Cut()
	old := b.dial(o)
	b.dial(o) // takes over
	old.WaitClosed()
	watcher.Silent(1200 * time.Millisecond)
}

// Field case 063: a will comes once when its delay is over or its session ends,
// whichever is first.
func TestDelayedWill(t *testing.T) {
	t.Parallel()
	b := start(t, setting{})
	watcher := b.dial(v5("watcher"))
	watcher.Subscribe("will", 1)
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "will", Payload: "delay over", QoS: 0, Delay: 1, Retain: true}
	b.dial(o).Cut()
	watcher.Silent(500 * time.Millisecond)
	wantPayloads(t, watcher.Payloads(1), []string{"delay over"})
	if pk := subscribeFor(b, "will"); string(pk.Payload) != "delay over" || !pk.FixedHeader.Retain {
		t.Errorf("got %s, want the retained will", mqtttest.Describe(pk))
	}

	o.Will = &mqtttest.Will{Topic: "will", Payload: "clean start", QoS: 1, Delay: 3600}
	b.dial(o).Cut()
	o.Clean = true
	b.dial(o).Disconnect()
	wantPayloads(t, watcher.Payloads(1), []string{"clean start"})

	o.Will.Payload, o.SessionExpiry = "session over", 1
	b.dial(o).Cut()
	wantPayloads(t, watcher.Payloads(1), []string{"session over"})

	o.Will.Payload, o.SessionExpiry = "no session", 0
	b.dial(o).Cut()
	wantPayloads(t, watcher.Payloads(1), []string{"no session"})

	o.Will.Payload, o.SessionExpiry = "never", 3600
	b.dial(o).Cut() // still waits when the server ends
	watcher.Silent(20 * time.Millisecond)
}

// subscribeFor returns the first message that a new subscription gets.
func subscribeFor(b *broker, filter string) packets.Packet {
	c := b.dial(clean("new"))
	c.Subscribe(filter, 1)
	return c.NextPublish()
}
