package hooks_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
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
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		watcher := b.dial(v5("watcher"))
		watcher.Subscribe("will", 1)
		o := v5("device")
		o.Will = &mqtttest.Will{Topic: "will", Payload: "gone", QoS: 1, Delay: 2}
		b.dial(o).Cut()
		time.Sleep(time.Second)
		old := b.dial(o)
		b.dial(o) // takes over
		old.WaitClosed()
		watcher.Silent(time.Minute)
	})
}

// Field case 063: a will comes once when its delay is over or its session ends,
// whichever is first.
func TestDelayedWill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		watcher := b.dial(v5("watcher"))
		watcher.Subscribe("will", 1)
		o := v5("device")
		o.Will = &mqtttest.Will{Topic: "will", Payload: "delay over", QoS: 0, Delay: 1, Retain: true}
		device := b.dial(o)
		began := time.Now()
		device.Cut()
		wantPayloads(t, watcher.Payloads(1), []string{"delay over"})
		if waited := time.Since(began); waited < time.Second || waited > 1100*time.Millisecond {
			t.Errorf("the will came after %s, its delay is 1 s", waited)
		}
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
	})
}

// Field case 063: a will that waits outlives the broker, and comes when its time
// is over there.
func TestDelayedWillAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		b.subscribed(v5("receiver"), "will", 1)
		o := v5("device")
		o.Will = &mqtttest.Will{Topic: "will", Payload: "delay over", QoS: 1, Delay: 1}
		b.dial(o).Cut()
		o.ClientID, o.SessionExpiry = "other", 1
		o.Will = &mqtttest.Will{Topic: "will", Payload: "session over", QoS: 1, Delay: 3600}
		b.dial(o).Cut()
		b.restart()
		got := b.dial(v5("receiver")).Payloads(2)
		slices.Sort(got)
		wantPayloads(t, got, []string{"delay over", "session over"})
	})
}

// Field case 064: a client that comes and goes with a delayed will, and takes its
// leave each time, receives as everyone does.
func TestDelayedWillOfClientThatTakesItsLeave(t *testing.T) {
	b := start(t, setting{})
	watcher := b.dial(v5("watcher"))
	watcher.Subscribe("will", 1)
	publisher := b.dial(clean("publisher"))
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "will", Payload: "never", Delay: 10, Retain: true}
	for range 50 {
		c := b.dial(o)
		c.Subscribe("a/#", 1)
		for i, payload := range numbers(1, 3) {
			publisher.PublishAndWait("a", payload, byte(i))
		}
		got := c.Payloads(3)
		slices.Sort(got) // those of QoS 0 come another way
		wantPayloads(t, got, numbers(1, 3))
		c.Disconnect()
	}
	publisher.PublishAndWait("will", "end", 1)
	wantPayloads(t, watcher.Payloads(1), []string{"end"})
}

// Field case 065: the will that is published is that of the connection that has
// ended.
func TestWillAtTakeover(t *testing.T) {
	b := start(t, setting{})
	watcher := b.dial(v5("watcher"))
	watcher.Subscribe("will", 1)
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "will", Payload: "old", QoS: 1}
	b.dial(o)
	o.Will = &mqtttest.Will{Topic: "will", Payload: "new", QoS: 1}
	c := b.dial(o)
	wantPayloads(t, watcher.Payloads(1), []string{"old"})
	c.Disconnect()

	// A session that ends with its link ends at the takeover, whatever the delay.
	o.SessionExpiry, o.Will = 0, &mqtttest.Will{Topic: "will", Payload: "at once", QoS: 1, Delay: 3600}
	b.dial(o)
	b.dial(v5("device")).Disconnect()
	wantPayloads(t, watcher.Payloads(1), []string{"at once"})
	b.dial(clean("publisher")).PublishAndWait("will", "end", 1)
	wantPayloads(t, watcher.Payloads(1), []string{"end"})
}

// Field case 067: a will is queued once, and its retained copy is another matter.
func TestRetainedWill(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "will/#", 1)
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "will/device", Payload: "gone", QoS: 1, Retain: true}
	b.dial(o).Cut()
	receiver := b.dial(v5("receiver"))
	if pk := receiver.NextPublish(); pk.FixedHeader.Retain || pk.FixedHeader.Qos != 1 {
		t.Errorf("got %s, want QoS 1 without retain flag", mqtttest.Describe(pk))
	}
	receiver.Silent(20 * time.Millisecond)
	b.restart()
	if pk := subscribeFor(b, "will/+"); string(pk.Payload) != "gone" || !pk.FixedHeader.Retain || pk.FixedHeader.Qos != 1 {
		t.Errorf("got %s, want the retained will", mqtttest.Describe(pk))
	}
}

// All of a will arrives, and its expiry counts from when it was published.
func TestWillProperties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		watcher := b.dial(v5("watcher"))
		watcher.Subscribe("will", 2)
		o := v5("device")
		o.Will = &mqtttest.Will{Topic: "will", QoS: 2, Expiry: 60, Properties: packets.Properties{
			ContentType: "text/plain", ResponseTopic: "answer", CorrelationData: []byte{0, 1},
			PayloadFormat: 1, PayloadFormatFlag: true,
			User: []packets.UserProperty{{Key: "k", Val: "1"}, {Key: "k", Val: "2"}},
		}}
		b.dial(o).Cut()
		pk := watcher.NextPublish()
		p := pk.Properties
		if len(pk.Payload) != 0 || pk.FixedHeader.Qos != 2 || p.MessageExpiryInterval < 55 || p.MessageExpiryInterval > 60 {
			t.Errorf("got %s, expiry %d", mqtttest.Describe(pk), p.MessageExpiryInterval)
		}
		p.MessageExpiryInterval = 0
		if want := o.Will.Properties; !reflect.DeepEqual(p, want) {
			t.Errorf("properties %+v, want %+v", p, want)
		}

		old := v3("old")
		old.Will = &mqtttest.Will{Topic: "will"} // an empty one, too, before MQTT 5
		b.dial(old).Cut()
		if pk := watcher.NextPublish(); len(pk.Payload) != 0 {
			t.Errorf("got %s, want an empty will", mqtttest.Describe(pk))
		}
	})
}

// Whoever may not publish to a topic may not have it as will; a connection of the
// same client is not touched by the attempt.
func TestWillObeysAccessRules(t *testing.T) {
	var o setting
	o.MayPublish = func(cl *mqtt.Client, topic string) bool {
		return string(cl.Properties.Username) == "admin" || topic == "mine"
	}
	b := start(t, o)
	there := b.dial(v5("device"))
	tests := []struct {
		topic       string
		user        string
		code, code3 byte
	}{
		{"mine", "", 0, 0},
		{"theirs", "admin", 0, 0},
		{"theirs", "", 0x87, 5},
		{"$SYS/broker/uptime", "admin", 0x90, 5},
		{strings.Repeat("/", 300), "admin", 0x90, 5},
	}
	for _, tt := range tests {
		for version, code := range map[byte]byte{4: tt.code3, 5: tt.code} {
			c := mqtttest.Options{ClientID: "device", Version: version, Username: tt.user, Will: &mqtttest.Will{Topic: tt.topic}}
			if code == 0 {
				c.ClientID = "other"
				b.dial(c).Disconnect()
				continue
			}
			if pk := mqtttest.Refused(t, b.addr, c); pk.ReasonCode != code {
				t.Errorf("version %d, will %.20q of %q: %s, want %#x", version, tt.topic, tt.user, mqtttest.Describe(pk), code)
			}
		}
	}
	there.Ping()
}

// Server capabilities hold for wills.
func TestWillObeysCapabilities(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) {
		o.Capabilities.RetainAvailable, o.Capabilities.MaximumQos = 0, 1
	}})
	for code, will := range map[byte]mqtttest.Will{0x9A: {Topic: "a", Retain: true}, 0x9B: {Topic: "a", QoS: 2}} {
		o := v5("device")
		o.Will = &will
		if pk := mqtttest.Refused(t, b.addr, o); pk.ReasonCode != code {
			t.Errorf("got %s, want %#x", mqtttest.Describe(pk), code)
		}
	}
}

// A connection that the broker ends as it stops has not taken its leave.
func TestWillOfConnectionThatBrokerEnds(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "will", 1)
	o := v5("device")
	o.Will = &mqtttest.Will{Topic: "will", Payload: "gone", QoS: 1}
	b.dial(o)
	b.restart()
	wantPayloads(t, b.dial(v5("receiver")).Payloads(1), []string{"gone"})
}

// subscribeFor returns the first message that a new subscription gets.
func subscribeFor(b *broker, filter string) packets.Packet {
	c := b.dial(clean("new"))
	c.Subscribe(filter, 1)
	return c.NextPublish()
}
