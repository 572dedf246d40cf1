package hooks_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Field case 014: a client's own packet ids have nothing to do with the server's.
func TestOwnPublishKeepsDeliveryOfSameID(t *testing.T) {
	for qos := byte(1); qos <= 2; qos++ {
		b := start(t, setting{})
		b.subscribed(v5("receiver"), "a", 1)
		other := b.dial(v5("other"))
		other.Subscribe("own", 2)
		b.publish("a", 1, 1)
		receiver := b.dial(manual(v5("receiver")))
		pk := receiver.NextPublish()
		receiver.PublishAndWait("own", "own", qos, mqtttest.WithID(pk.PacketID))
		wantPayloads(t, other.Payloads(1), []string{"own"})
		receiver.Cut()
		if again := b.dial(manual(v5("receiver"))).NextPublish(); again.PacketID != pk.PacketID || !again.FixedHeader.Dup {
			t.Errorf("after an own publish of QoS %d: got %s, want message 1 again", qos, mqtttest.Describe(again))
		}
		other.Silent(20 * time.Millisecond)
	}
}

// Field case 015: neither do the ids of SUBSCRIBE and UNSUBSCRIBE.
func TestSubscribeWithIDOfDelivery(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, 1)
	receiver := b.dial(manual(v3("receiver")))
	pk := receiver.NextPublish()
	codes := receiver.SubscribeWithID(pk.PacketID, packets.Subscription{Filter: "b", Qos: 2})
	if codes[0] != 2 {
		t.Errorf("SUBACK %#x, want 2", codes[0])
	}
	receiver.Cut()
	if again := b.dial(manual(v3("receiver"))).NextPublish(); again.PacketID != pk.PacketID {
		t.Errorf("got %s, want message 1 again", mqtttest.Describe(again))
	}
}

// Field case 125: an acknowledgement from an earlier connection does not count.
func TestAckOfEarlierConnection(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, 1)
	receiver := b.dial(manual(v3("receiver")))
	first := receiver.NextPublish()
	receiver.Cut()

	o := manual(clean("receiver")) // the session of the first message is over
	receiver = b.dial(o)
	receiver.Ack(first)
	receiver.Subscribe("a", 1)
	b.publish("a", 2, 2)
	if pk := receiver.NextPublish(); string(pk.Payload) != "2" || pk.PacketID != first.PacketID {
		t.Fatalf("got %s, want message 2 under id %d", mqtttest.Describe(pk), first.PacketID)
	}
	receiver.Ping()
	receiver.Cut()

	// And the same within one session: it comes again all the same.
	b.subscribed(v3("other"), "a", 1)
	b.publish("a", 3, 3)
	other := b.dial(manual(v3("other")))
	other.NextPublish()
	other.Cut()
	raw := mqtttest.DialRaw(t, b.addr, manual(v3("other")))
	raw.SendRaw(append(connectFrame("other"), 0x40, 2, 0, 1)) // PUBACK 1 with CONNECT
	if pk := raw.NextPublish(); string(pk.Payload) != "3" {
		t.Errorf("got %s, want message 3 again", mqtttest.Describe(pk))
	}
}

// connectFrame is the CONNECT of an MQTT 3.1.1 client that wants its session
// kept.
func connectFrame(id string) []byte {
	frame := []byte{0x10, byte(12 + len(id)), 0, 4, 'M', 'Q', 'T', 'T', 4, 0, 0, 0, 0, byte(len(id))}
	return append(frame, id...)
}

// Field case 030: a session that ends with its link is not handed over.
func TestSessionThatEndsIsNotHandedOver(t *testing.T) {
	for _, o := range []mqtttest.Options{{ClientID: "x", Version: 5}, clean("x")} {
		for _, cut := range []bool{false, true} {
			b := start(t, setting{})
			first := b.dial(o)
			first.Subscribe("a", 1)
			if cut {
				first.Cut()
			}
			second := b.dial(v5("x"))
			if second.SessionPresent {
				t.Errorf("%+v: session present", o)
			}
			if !cut && o.Version == 5 {
				if code := first.WaitDisconnect(); code != 0x8E {
					t.Errorf("DISCONNECT %#x, want 0x8e", code)
				}
			}
			b.publish("a", 1, 1)
			second.Silent(30 * time.Millisecond)
		}
	}
}

// Field case 043 and 044: a restart keeps subscriptions, and everyone's own.
func TestRestartKeepsSubscriptions(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	b.subscribed(v3("publisher"), "other", 1)
	b.restart()
	publisher := b.dial(v3("publisher"))
	publisher.PublishAndWait("a", "1", 1)
	publisher.Disconnect()
	b.restart()
	publisher, receiver := b.dial(v3("publisher")), b.dial(v3("receiver"))
	if !publisher.SessionPresent || !receiver.SessionPresent {
		t.Error("no session present after a restart")
	}
	wantPayloads(t, receiver.Payloads(1), []string{"1"})
	publisher.Silent(20 * time.Millisecond)

	// Messages of QoS 0 are found by the resumed subscriptions too.
	publisher.Publish("a", "0", 0)
	wantPayloads(t, receiver.Payloads(1), []string{"0"})
}

// Field case 057: a clean start ends the session before, with its backlog.
func TestCleanStart(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v3("receiver"), "a", 1)
	b.publish("a", 1, 100)
	b.dial(clean("receiver")).Disconnect()
	for range 2 {
		receiver := b.dial(v3("receiver"))
		receiver.Silent(20 * time.Millisecond)
		receiver.Disconnect()
		b.awaitAway(receiver.ID)
		b.restart()
	}
	b.publish("a", 1, 1)
	b.dial(v3("receiver")).Silent(20 * time.Millisecond)
}

// Field case 058: session present says whether there was a session, even one
// without subscriptions.
func TestSessionPresent(t *testing.T) {
	b := start(t, setting{})
	restarts := []bool{false, true}
	for _, restart := range restarts {
		for i, step := range []struct {
			o    mqtttest.Options
			want bool
		}{{clean("x"), false}, {v3("x"), false}, {v3("x"), true}, {clean("x"), false}, {v3("x"), false}, {v5("x"), true}} {
			c := b.dial(step.o)
			if c.SessionPresent != step.want {
				t.Errorf("restart %t, step %d: session present %t, want %t", restart, i, c.SessionPresent, step.want)
			}
			c.Disconnect()
			if restart {
				b.restart()
			}
		}
	}
}

// Field case 053, 054 and 055: DISCONNECT may change the session expiry.
func TestSessionExpiryInDisconnect(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) { o.Capabilities.MaximumSessionExpiryInterval = 7200 }})
	b.dial(v5("x")).Disconnect(mqtttest.WithSessionExpiry(0))
	c := b.dial(v5("x"))
	if c.SessionPresent {
		t.Error("session present, but it ended with DISCONNECT")
	}
	c.Disconnect(mqtttest.WithSessionExpiry(100000))
	mqtttest.Eventually(t, func() bool {
		for s, err := range b.store.Sessions(t.Context()) {
			return err == nil && !s.Connected && s.Expiry == 7200
		}
		return false
	}, "the session has the server's maximum of 7200 s")
	watcher := b.dial(v5("watcher"))
	watcher.Subscribe("will", 1)
	c = b.dial(mqtttest.Options{ClientID: "y", Version: 5, Will: &mqtttest.Will{Topic: "will", Payload: "y", Delay: 3600}})
	c.Send(packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Disconnect},
		Properties:  packets.Properties{SessionExpiryInterval: 3600, SessionExpiryIntervalFlag: true},
	})
	if code := c.WaitDisconnect(); code != 0x82 {
		t.Errorf("DISCONNECT %#x, want 0x82", code)
	}
	wantPayloads(t, watcher.Payloads(1), []string{"y"}) // its session has ended
}

// Field case 055: a client is told if its session is kept for less than it asked
// for, and if its keep alive is shorter.
func TestServerLimitsAreAnnounced(t *testing.T) {
	b := start(t, setting{
		Options: hooks.Options{MaxKeepAlive: 60},
		Mochi:   func(o *mqtt.Options) { o.Capabilities.MaximumSessionExpiryInterval = 7200 },
	})
	tests := []struct {
		expiry       uint32
		keepAlive    uint16
		announced    bool // the session expiry
		announcedAge bool // the keep alive
	}{{3600, 30, false, false}, {7201, 60, true, false}, {0xFFFFFFFF, 61, true, true}, {0, 0, false, true}}
	for _, tt := range tests {
		p := b.dial(mqtttest.Options{ClientID: "c", Version: 5, SessionExpiry: tt.expiry, KeepAlive: tt.keepAlive}).Properties
		if p.SessionExpiryIntervalFlag != tt.announced || tt.announced && p.SessionExpiryInterval != 7200 {
			t.Errorf("expiry %d: %t, %d announced", tt.expiry, p.SessionExpiryIntervalFlag, p.SessionExpiryInterval)
		}
		if p.ServerKeepAliveFlag != tt.announcedAge || tt.announcedAge && p.ServerKeepAlive != 60 {
			t.Errorf("keep alive %d: %t, %d announced", tt.keepAlive, p.ServerKeepAliveFlag, p.ServerKeepAlive)
		}
	}
}

// The keep alive that is announced is the one that counts; older clients keep
// theirs.
func TestMaxKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true, Options: hooks.Options{MaxKeepAlive: 1}})
		old := b.dial(v3("old"))
		b.dial(v5("modern")).WaitClosed()
		old.Ping()
	})
}

// Field cases 050 and 051: a session ends when its time is over, whether anybody
// looks before or not and whether the broker runs meanwhile or not. The time of an
// MQTT 3.1.1 session is the operator's.
func TestSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, restart := range []bool{false, true} {
			b := start(t, setting{Memory: true, Options: hooks.Options{SessionExpiryV3: 1}})
			short := mqtttest.Options{ClientID: "short", Version: 5, SessionExpiry: 1}
			endless := mqtttest.Options{ClientID: "endless", Version: 5, SessionExpiry: 0xFFFFFFFF}
			for _, o := range []mqtttest.Options{short, v3("old"), v5("long"), endless} {
				b.subscribed(o, "a", 1)
				c := b.dial(o) // again, within the time
				if !c.SessionPresent {
					t.Errorf("restart %t, %s: no session present after no time", restart, o.ClientID)
				}
				c.Cut()
				b.awaitAway(c.ID)
			}
			publisher := b.dial(clean("publisher"))
			for _, payload := range numbers(1, 3) {
				publisher.PublishAndWait("a", payload, 1)
			}
			if restart {
				b.restart()
			}
			time.Sleep(time.Second) // that of two sessions is over
			for o, want := range map[*mqtttest.Options]bool{
				&short: false, {ClientID: "old"}: false,
				{ClientID: "long", Version: 5, SessionExpiry: 3600}: true, &endless: true,
			} {
				c := b.dial(*o)
				if c.SessionPresent != want {
					t.Errorf("restart %t, %s: session present %t, want %t", restart, o.ClientID, c.SessionPresent, want)
				}
				if want {
					wantPayloads(t, c.Payloads(3), numbers(1, 3))
				} else {
					c.Silent(10 * time.Millisecond)
				}
			}
		}
	})
}

// Field case 121: client ids that look alike are different.
func TestSimilarClientIDs(t *testing.T) {
	b := start(t, setting{})
	all := []string{"a", "a:", "a:1", "a/b", "A", "ä", "a ", strings.Repeat("a", 65535)}
	for _, id := range all {
		b.subscribed(v3(id), "t", 1)
	}
	b.publish("t", 1, 3)
	b.dial(clean("a")).Disconnect()
	b.restart()
	for _, id := range all[1:] {
		c := b.dial(v3(id))
		if !c.SessionPresent {
			t.Errorf("%.10q: no session present", id)
		}
		wantPayloads(t, c.Payloads(3), numbers(1, 3))
		c.Disconnect()
	}
	if b.dial(v3("a")).SessionPresent {
		t.Error("session of a present after a clean start")
	}
	raw := mqtttest.DialRaw(t, b.addr, v3(""))
	raw.SendRaw(connectFrame("a\x00"))
	raw.WaitClosed()
}

// Field case 060: an id that the server has given can be used again.
func TestAssignedClientID(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5(""))
	id := c.Properties.AssignedClientID
	if id == "" || id == b.dial(v5("")).Properties.AssignedClientID {
		t.Fatalf("assigned id %q", id)
	}
	c.Subscribe("a", 1)
	c.Disconnect()
	b.awaitAway(c.ID)
	b.publish("a", 1, 1)
	wantPayloads(t, b.dial(v5(id)).Payloads(1), numbers(1, 1))
}

// Sessions that are away leave nothing in the MQTT library.
func TestAbsentClientsLeaveNoTrace(t *testing.T) {
	b := start(t, setting{})
	for _, o := range []mqtttest.Options{v3("a"), v5("b"), clean("c"), {ClientID: "d", Version: 5}} {
		b.subscribed(o, "t/#", 1)
	}
	mqtttest.Eventually(t, func() bool { return b.server.Clients.Len() == 0 }, "no client known")
	mqtttest.Eventually(t, func() bool {
		return len(b.server.Topics.Subscribers("t/x").Subscriptions) == 0
	}, "no subscription indexed")
	if n := b.server.Info.Subscriptions; n != 0 {
		t.Errorf("%d subscriptions counted, want 0", n)
	}
}

// A session that cannot be opened is told by CONNACK, and its will is not sent.
func TestStoreRefusesSession(t *testing.T) {
	store := &faulty{open: func(r inbox.Receiver) error {
		if r == "watcher" {
			return nil
		}
		return errors.New("disk on fire")
	}}
	b := start(t, setting{Wrap: store.wrap})
	watcher := b.dial(v3("watcher"))
	watcher.Subscribe("#", 1)
	o := v5("x")
	o.Will = &mqtttest.Will{Topic: "a", Payload: "will", QoS: 1}
	if pk := mqtttest.Refused(t, b.addr, o); pk.ReasonCode != 0x88 || pk.SessionPresent {
		t.Errorf("got %s, want 0x88", mqtttest.Describe(pk))
	}
	if pk := mqtttest.Refused(t, b.addr, v3("x")); pk.ReasonCode != 3 {
		t.Errorf("got %s, want 3", mqtttest.Describe(pk))
	}
	store.set(func(f *faulty) { f.open = nil })
	b.dial(v5("x")).PublishAndWait("a", "after", 1)
	wantPayloads(t, watcher.Payloads(1), []string{"after"})
	if n := b.server.Clients.Len(); n != 2 {
		t.Errorf("%d clients known, want 2", n)
	}
}

// A subscription for which there is no room is not granted.
func TestStoreRefusesSubscription(t *testing.T) {
	store := &faulty{subscribe: func() error { return inbox.ErrFull }}
	b := start(t, setting{Wrap: store.wrap})
	old, c := b.dial(v3("old")), b.dial(v5("x"))
	if code := old.Subscribe("a", 1); code != 0x80 {
		t.Errorf("MQTT 3.1.1: SUBACK %#x, want 0x80", code)
	}
	if code := c.Subscribe("a", 1); code != 0x97 {
		t.Errorf("MQTT 5: SUBACK %#x, want 0x97", code)
	}
	b.dial(v5("publisher")).Publish("a", "x", 0)
	old.Silent(20 * time.Millisecond)
	c.Silent(20 * time.Millisecond)
}

// A subscription that is stored in part, or nobody knows, is not answered: the
// connection ends, and the client asks again.
func TestSubscriptionStoredInPartEndsItsLink(t *testing.T) {
	tests := map[string]*faulty{
		"other error":            {subscribe: func() error { return errors.New("disk on fire") }},
		"full at what it brings": {retained: func() error { return inbox.ErrFull }},
	}
	for name, store := range tests {
		t.Run(name, func(t *testing.T) {
			b := start(t, setting{Wrap: store.wrap})
			c := b.dial(v5("x"))
			c.Send(packets.Packet{
				FixedHeader: packets.FixedHeader{Type: packets.Subscribe},
				PacketID:    9,
				Filters:     packets.Subscriptions{{Filter: "a", Qos: 1}},
			})
			if pk, ok := c.Next(mqtttest.Deadline); !ok || pk.FixedHeader.Type != packets.Disconnect || pk.ReasonCode != 0x80 {
				t.Errorf("got %s, want DISCONNECT with 0x80 and no SUBACK", mqtttest.Describe(pk))
			}
			c.WaitClosed()

			store.set(func(f *faulty) { f.subscribe, f.retained = nil, nil })
			c = b.dial(v5("x"))
			if code := c.Subscribe("a", 1); code != 1 {
				t.Errorf("SUBACK %#x, want 1", code)
			}
			b.dial(v5("publisher")).PublishAndWait("a", "1", 1)
			wantPayloads(t, c.Payloads(1), []string{"1"})
		})
	}
}

// An unsubscription that is not stored is not confirmed.
func TestStoreRefusesUnsubscription(t *testing.T) {
	store := &faulty{subscribe: func() error { return errors.New("disk on fire") }}
	b := start(t, setting{Wrap: store.wrap})
	c := b.dial(v5("x"))
	c.Send(packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Unsubscribe},
		PacketID:    9,
		Filters:     packets.Subscriptions{{Filter: "a"}},
	})
	if code := c.WaitDisconnect(); code != 0x80 {
		t.Errorf("DISCONNECT %#x, want 0x80", code)
	}
}

// Another server may have opened the inbox.
func TestFencedSessionEndsItsLink(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("x"))
	if _, _, err := b.store.Open(t.Context(), "x", inbox.OpenOptions{Expiry: 60}); err != nil {
		t.Fatal(err)
	}
	if code := c.WaitDisconnect(); code != 0x8E {
		t.Errorf("DISCONNECT %#x, want 0x8e", code)
	}
}
