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

const share = "$share/g/a"

// member connects a client and has it share a filter.
func (b *broker) member(o mqtttest.Options, filter string, qos byte) *mqtttest.Client {
	b.t.Helper()
	c := b.dial(o)
	if code := c.Subscribe(filter, qos); code != qos {
		b.t.Fatalf("SUBACK %#x, want %#x", code, qos)
	}
	return c
}

// withWindow is a client that takes so many messages before it acknowledges.
func withWindow(o mqtttest.Options, size uint16) mqtttest.Options {
	o.ReceiveMaximum = size
	return o
}

// Field case 074: what is published while every member is away is kept for whoever
// returns first, also over a restart, and plain subscriptions beside it are
// served as ever.
func TestGroupKeepsWhileAllAreAway(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("first"), share, 2)
	b.subscribed(v3("second"), share, 2)
	b.subscribed(v5("first"), "#", 0)
	b.subscribed(v5("plain"), "a", 1)
	b.publish("a", 1, 300)
	b.restart()
	b.publish("a", 301, 310)

	first := b.dial(v5("first"))
	all := first.Collect(310)
	wantPayloads(t, payloads(all), numbers(1, 310))
	if pk := all[0]; pk.FixedHeader.Qos != 1 || pk.FixedHeader.Dup {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
	second := b.dial(v3("second"))
	first.Disconnect()
	b.awaitAway(first.ID)
	b.publish("a", 311, 311)
	wantPayloads(t, second.Payloads(1), numbers(311, 311))
	wantPayloads(t, b.dial(v5("plain")).Payloads(311), numbers(1, 311))
}

// Field case 074, the second part: a shared and a plain subscription of one
// client each give it the message, at their own QoS and with their identifiers.
func TestGroupBesidePlainSubscription(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("c"))
	c.SubscribeAll(packets.Subscription{Filter: share, Qos: 1, Identifier: 7})
	c.SubscribeAll(packets.Subscription{Filter: "a", Qos: 1, Identifier: 8})
	c.SubscribeAll(packets.Subscription{Filter: "+", Qos: 2, Identifier: 9, RetainAsPublished: true})
	b.dial(v5("publisher")).PublishAndWait("a", "x", 2, mqtttest.Retain)
	got := map[int]packets.Packet{}
	for _, pk := range c.Collect(2) {
		got[len(pk.Properties.SubscriptionIdentifier)] = pk
	}
	plain, shared := got[2], got[1]
	if plain.FixedHeader.Qos != 2 || !plain.FixedHeader.Retain || plain.PacketID > inbox.MaxPacketID {
		t.Errorf("plain: %s", mqtttest.Describe(plain))
	}
	if shared.FixedHeader.Qos != 1 || shared.FixedHeader.Retain || shared.PacketID <= inbox.MaxPacketID ||
		!slices.Equal(shared.Properties.SubscriptionIdentifier, []int{7}) {
		t.Errorf("shared: %s", mqtttest.Describe(shared))
	}
	c.Silent(20 * time.Millisecond)
}

// What a member asks for is its own: QoS, identifier, retain flag.
func TestGroupMemberOptions(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("c"))
	publisher := b.dial(v5("publisher"))
	for _, o := range []struct {
		sub    packets.Subscription
		qos    byte
		retain bool
		ids    []int
	}{
		{packets.Subscription{Filter: share, Qos: 2, Identifier: 5, RetainAsPublished: true}, 2, true, []int{5}},
		{packets.Subscription{Filter: share, Qos: 1, Identifier: 6}, 1, false, []int{6}},
		{packets.Subscription{Filter: share, Qos: 0, RetainAsPublished: true}, 0, true, nil},
		{packets.Subscription{Filter: share, Qos: 1}, 1, false, nil},
	} {
		c.SubscribeAll(o.sub)
		publisher.PublishAndWait("a", "x", 2, mqtttest.Retain)
		pk := c.NextPublish()
		h := pk.FixedHeader
		if h.Qos != o.qos || h.Retain != o.retain || !slices.Equal(pk.Properties.SubscriptionIdentifier, o.ids) {
			t.Errorf("%+v: got %s", o.sub, mqtttest.Describe(pk))
		}
	}
	c.Ping()
	c.Silent(20 * time.Millisecond)
	c.Disconnect()
	b.dial(v5("c")).Silent(20 * time.Millisecond) // what went out at QoS 0 is finished
}

func TestGroupIsAnnounced(t *testing.T) {
	b := start(t, setting{})
	c := b.dial(v5("c"))
	if p := c.Properties; p.SharedSubAvailableFlag && p.SharedSubAvailable != 1 {
		t.Errorf("CONNACK says shared subscriptions available: %d", p.SharedSubAvailable)
	}
	if codes := c.Unsubscribe(share); codes[0] != 0x11 {
		t.Errorf("UNSUBACK %#x, want 0x11", codes[0])
	}
	c.Subscribe(share, 1)
	if codes := c.Unsubscribe("$share/h/a", share, share); !slices.Equal(codes, []byte{0x11, 0, 0x11}) {
		t.Errorf("UNSUBACK %x", codes)
	}
}

// Three members with equal windows get equally much.
func TestGroupBalance(t *testing.T) {
	b := start(t, setting{})
	var members []*mqtttest.Client
	for _, id := range []string{"x", "y", "z"} {
		members = append(members, b.member(manual(withWindow(v5(id), 50)), share, 1))
	}
	b.publish("a", 1, 150)
	var got []string
	for _, m := range members {
		all := m.Collect(50)
		if s := payloads(all); !slices.IsSortedFunc(s, byNumber) {
			t.Errorf("%s: not in order: %v", m.ID, s)
		}
		for _, pk := range all {
			m.Ack(pk)
		}
		got = append(got, payloads(all)...)
	}
	slices.SortFunc(got, byNumber)
	wantPayloads(t, got, numbers(1, 150))
}

// byNumber compares payloads of numbers.
func byNumber(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// A member that stops acknowledging has its window and no more, and costs the
// others nothing. When it goes, they have the rest.
func TestGroupSilentMember(t *testing.T) {
	b := start(t, setting{})
	silent := b.member(manual(withWindow(v5("silent"), 10)), share, 1)
	other := b.member(v5("other"), share, 1)
	third := b.member(v3("third"), share, 1)
	b.publish("a", 1, 1000)
	held := silent.Collect(10)
	silent.Silent(20 * time.Millisecond)
	counts := map[string]int{}
	for i := 0; i < 990; {
		for _, c := range []*mqtttest.Client{other, third} {
			if pk, ok := c.Next(20 * time.Millisecond); ok {
				counts[string(pk.Payload)]++
				i++
			}
		}
	}
	third.Disconnect()
	silent.Cut()
	back := other.Collect(10)
	wantPayloads(t, payloads(back), payloads(held))
	wantDup(t, back, make([]bool, 10)...)
	for _, pk := range back {
		counts[string(pk.Payload)]++
	}
	for _, n := range numbers(1, 1000) {
		if counts[n] != 1 {
			t.Errorf("message %s came %d times to those who acknowledge", n, counts[n])
		}
	}
	other.Ping()
	other.Disconnect()
	b.dial(v5("silent")).Silent(20 * time.Millisecond)
}

// A client that does not read its socket costs the others nothing either.
func TestGroupFrozenMember(t *testing.T) {
	b := start(t, setting{Options: hooks.Options{OutBytes: 4 << 10}})
	frozen := v5("frozen")
	frozen.Frozen = true
	b.subscribed(v5("frozen"), share, 1)
	b.dial(frozen)
	other := b.member(v5("other"), share, 1)
	payload := strings.Repeat("x", 10_000)
	publisher := b.dial(v5("publisher"))
	for range 1500 { // more than the network's buffers hold, and a window
		publisher.PublishAndWait("a", payload, 1)
	}
	other.Collect(900)
}

// What comes back goes out before what is newer, and says that it may have come
// before only to whom it may have.
func TestGroupMemberComesBack(t *testing.T) {
	b := start(t, setting{})
	c := b.member(manual(withWindow(v5("c"), 5)), share, 1)
	b.publish("a", 1, 20)
	wantPayloads(t, c.Payloads(5), numbers(1, 5))
	other := b.member(manual(withWindow(v5("other"), 3)), share, 1)
	wantPayloads(t, other.Payloads(3), numbers(6, 8))
	c.Cut()
	all := b.dial(manual(withWindow(v5("c"), 7))).Collect(7) // perhaps a takeover
	wantPayloads(t, payloads(all), []string{"1", "2", "3", "4", "5", "9", "10"})
	wantDup(t, all, true, true, true, true, true, false, false)
	other.Cut()
	b.restart()
	all = b.dial(v5("other")).Collect(20) // who had it before a restart is not known
	wantPayloads(t, payloads(all), numbers(1, 20))
	if !all[0].FixedHeader.Dup || !all[7].FixedHeader.Dup {
		t.Error("messages that were sent before the restart have no DUP")
	}
}

// A client that connects again while it is connected has the same again.
func TestGroupTakeover(t *testing.T) {
	b := start(t, setting{})
	first := b.member(manual(v5("c")), share, 1)
	b.publish("a", 1, 3)
	all := first.Collect(3)
	first.Ack(all[1])
	first.Ping()
	second := b.dial(v5("c"))
	again := second.Collect(2)
	wantPayloads(t, payloads(again), []string{"1", "3"})
	wantDup(t, again, true, true)
	second.Ping()
	second.Disconnect()
	b.dial(v5("c")).Silent(20 * time.Millisecond)
}

// UNSUBSCRIBE ends what is new at once, and what was sent is still the client's
// to finish; what it does not finish is the others' when it goes.
func TestGroupUnsubscribe(t *testing.T) {
	b := start(t, setting{})
	c := b.member(manual(v5("c")), share, 1)
	b.publish("a", 1, 3)
	all := c.Collect(3)
	other := b.member(v5("other"), share, 1)
	c.Unsubscribe(share)
	b.publish("a", 4, 20)
	wantPayloads(t, other.Payloads(17), numbers(4, 20))
	c.Ack(all[0])
	c.Ack(all[1])
	c.Ping()
	c.Cut()
	wantPayloads(t, other.Payloads(1), []string{"3"})
	other.Silent(20 * time.Millisecond)

	// The last one that unsubscribes ends the group, and a new one is empty.
	other.Unsubscribe(share)
	b.publish("a", 21, 25)
	other.Subscribe(share, 1)
	b.publish("a", 26, 26)
	wantPayloads(t, other.Payloads(1), []string{"26"})
	other.Silent(20 * time.Millisecond)
}

// A client may subscribe again before it has finished what it had.
func TestGroupSubscribeAgain(t *testing.T) {
	b := start(t, setting{})
	c := b.member(manual(v5("c")), share, 1)
	b.publish("a", 1, 1)
	first := c.NextPublish()
	c.Unsubscribe(share)
	c.Subscribe(share, 1)
	b.publish("a", 2, 2)
	second := c.NextPublish()
	if string(second.Payload) != "2" || first.PacketID == second.PacketID {
		t.Errorf("got %s, want message 2 under another id than %d", mqtttest.Describe(second), first.PacketID)
	}
	c.Ack(first)
	c.Ack(second)
	b.publish("a", 3, 3)
	c.NextPublish()
}

// Field case 075: what a member had goes to the others, whether it is away,
// expires, or ends its session.
func TestGroupMemberExpires(t *testing.T) {
	ends := map[string]func(b *broker, a *mqtttest.Client){
		"away":   func(*broker, *mqtttest.Client) {},
		"expire": func(b *broker, _ *mqtttest.Client) { b.expires("a") },
		"clean": func(b *broker, _ *mqtttest.Client) {
			fresh := v5("a")
			fresh.Clean, fresh.SessionExpiry = true, 0
			b.dial(fresh).Disconnect()
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b := start(t, setting{})
			o := manual(v5("a"))
			o.SessionExpiry = 1
			a := b.member(o, share, 1)
			b.publish("a", 1, 10)
			a.Collect(10)
			other := b.member(v3("b"), share, 1)
			a.Cut()
			end(b, a)
			wantPayloads(t, other.Payloads(10), numbers(1, 10))
			b.publish("a", 11, 20)
			wantPayloads(t, other.Payloads(10), numbers(11, 20))
		})
	}
}

// expires waits until the session of a client has ended by itself.
func (b *broker) expires(id inbox.Receiver) {
	b.t.Helper()
	mqtttest.Eventually(b.t, func() bool {
		for s, err := range b.store.Sessions(b.t.Context()) {
			if err != nil {
				b.t.Fatal(err)
			}
			if s.Receiver == id {
				return false
			}
		}
		return true
	}, "the session ends")
}

// A group of clients whose sessions end with their links lives as long as one of
// them is there.
func TestGroupOfCleanSessions(t *testing.T) {
	for qos := byte(1); qos <= 2; qos++ {
		b := start(t, setting{})
		x, y := b.member(clean("x"), share, qos), b.member(manual(clean("y")), share, qos)
		publisher := b.dial(v5("publisher"))
		for _, n := range numbers(1, 10) {
			publisher.PublishAndWait("a", n, qos)
		}
		y.Collect(5)
		x.Collect(5)
		if y.Cut(); qos == 1 { // of QoS 2 its share ends with it [MQTT-4.8.2-5]
			x.Collect(5)
		}
		x.Silent(20 * time.Millisecond)
		x.Ping()
		x.Disconnect()
		b.awaitAway(x.ID)
		b.publish("a", 11, 20)
		x = b.member(clean("x"), share, qos)
		b.publish("a", 21, 21)
		wantPayloads(t, x.Payloads(1), []string{"21"})
	}
}

// Two groups on one filter, and one on another that matches too, each have
// everything.
func TestGroupsApart(t *testing.T) {
	b := start(t, setting{})
	x := b.member(v5("x"), "$share/g/a/+", 1)
	y := b.member(v5("y"), "$share/h/a/+", 1)
	z := b.member(v3("z"), "$share/g/#", 1)
	b.publish("a/b", 1, 100)
	for _, c := range []*mqtttest.Client{x, y, z} {
		wantPayloads(t, c.Payloads(100), numbers(1, 100))
	}
	x.Subscribe("$share/h/a/+", 1)
	x.Subscribe("$share/i/a/b", 1)
	b.publish("a/b", 101, 200)
	z.Collect(100)
	counts := map[string]int{}
	for _, pk := range append(x.Collect(250), y.Collect(50)...) {
		counts[string(pk.Payload)]++
	}
	for _, n := range numbers(101, 200) {
		if counts[n] != 3 {
			t.Errorf("message %s came %d times, want once from each of three groups", n, counts[n])
		}
	}
}

// A message of QoS 0 goes to one of those who are there.
func TestGroupQoS0(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("away"), share, 1)
	members := []*mqtttest.Client{b.member(v5("x"), share, 1), b.member(v3("y"), share, 2), b.member(clean("z"), share, 0)}
	publisher := b.dial(v5("publisher"))
	for _, n := range numbers(1, 50) {
		publisher.Publish("a", n, 0)
		publisher.Publish("a", "retained "+n, 0, mqtttest.Retain) // by way of the store
	}
	publisher.PublishAndWait("nobody", "x", 1)
	counts := map[string]int{}
	mqtttest.Eventually(t, func() bool {
		for _, m := range members {
			for pk, ok := m.Next(time.Millisecond); ok; pk, ok = m.Next(time.Millisecond) {
				counts[string(pk.Payload)]++
			}
		}
		return len(counts) == 100
	}, "every message comes to somebody")
	for _, m := range members {
		m.Silent(20 * time.Millisecond)
	}
	for _, n := range numbers(1, 50) {
		if counts[n] != 1 || counts["retained "+n] != 1 {
			t.Errorf("message %s came %d and %d times", n, counts[n], counts["retained "+n])
		}
	}
}

// Messages of its own inbox and of groups count together against the client's
// Receive Maximum, and neither keeps the other out.
func TestGroupSharesTheWindow(t *testing.T) {
	for qos := byte(1); qos <= 2; qos++ {
		b := start(t, setting{})
		o := manual(withWindow(v5("c"), 5))
		c := b.member(o, share, qos)
		c.Subscribe("$share/h/b", qos)
		c.Subscribe("own", qos)
		c.Cut()
		b.awaitAway(c.ID)
		publisher := b.dial(v5("publisher"))
		for _, n := range numbers(1, 20) {
			for _, topic := range []string{"own", "a", "b"} {
				publisher.PublishAndWait(topic, n, qos)
			}
		}
		c = b.dial(o)
		got := map[string][]string{}
		for open := c.Collect(5); len(open) > 0; open = open[1:] {
			c.Silent(time.Millisecond)
			got[open[0].TopicName] = append(got[open[0].TopicName], string(open[0].Payload))
			c.Ack(open[0])
			if qos == 2 {
				c.NextOf(packets.Pubrel)
				c.Complete(open[0].PacketID)
			}
			if len(got["own"])+len(got["a"])+len(got["b"])+len(open)-1 < 60 {
				open = append(open, c.NextPublish())
			}
		}
		for _, topic := range []string{"own", "a", "b"} {
			wantPayloads(t, got[topic], numbers(1, 20))
		}
	}
}

// The room that the pump saw before it waited for a message may be a group's when
// the message comes.
func TestGroupTakesRoomBeforeThePump(t *testing.T) {
	b := start(t, setting{})
	c := b.member(manual(withWindow(v5("c"), 3)), share, 1)
	c.Subscribe("own", 1)
	b.publish("a", 1, 3)
	all := c.Collect(3)
	b.publish("own", 11, 12)
	c.Silent(20 * time.Millisecond)
	c.Ack(all[0])
	wantPayloads(t, c.Payloads(1), []string{"11"})
	c.Silent(20 * time.Millisecond)
	c.Ack(all[1])
	wantPayloads(t, c.Payloads(1), []string{"12"})
}

// Packet ids of groups go round by themselves, and pass over those that are open.
func TestGroupPacketIDs(t *testing.T) {
	b := start(t, setting{Options: hooks.Options{Window: 10}})
	const total = 20_000
	b.subscribed(v3("c"), share, 1)
	b.publish("a", 1, total)
	c := b.conn(v3("c"))
	first, err := c.ReadWithin(mqtttest.Deadline)
	if err != nil {
		t.Fatal(err)
	}
	all := receive(t, c, total-1)
	wantPayloads(t, payloads(all), numbers(2, total))
	for _, id := range ids(all) {
		if id <= inbox.MaxPacketID || id == first.PacketID {
			t.Fatalf("id %d, with %d open", id, first.PacketID)
		}
	}
}

// A message that is too large for a member goes to one that takes it, and waits
// for one. When too many wait, the first are dropped, and counted.
func TestGroupOversize(t *testing.T) {
	for qos := byte(1); qos <= 2; qos++ {
		b := start(t, setting{Options: hooks.Options{PageMessages: 3}})
		small, large := v5("small"), v5("large")
		small.MaxPacketSize, large.MaxPacketSize = 200, 2000
		large.ReceiveMaximum = 1
		s, l := b.member(small, share, qos), b.member(exact(large), share, qos)
		publisher := b.dial(v5("publisher"))
		publish := func(payload string, size int) {
			publisher.PublishAndWait("a", payload+strings.Repeat(".", size), qos)
		}
		next := func(c *mqtttest.Client, want byte) {
			t.Helper()
			if pk := c.NextPublish(); pk.Payload[0] != want {
				t.Errorf("QoS %d: got %s, want %c", qos, mqtttest.Describe(pk), want)
			}
		}
		publish("1", 1000)
		next(l, '1')
		publish("2", 1000) // for the large one, who has no room
		publish("3", 5000) // for nobody
		publish("4", 10)
		next(s, '4')
		l.Cut()
		publish("5", 10)
		next(s, '5')

		large.ReceiveMaximum = 10
		l = b.dial(large)
		next(l, '1')
		next(l, '2')
		l.Ping()
		l.Disconnect()
		b.awaitAway(l.ID) // or the next one is given to it
		if n := b.hook.Counts().Oversize; n != 0 {
			t.Errorf("QoS %d: %d messages dropped, while they may wait", qos, n)
		}
		for _, n := range numbers(1, 4) {
			publish(n, 1000)
		}
		publish("5", 10)
		next(s, '5')
		l = b.dial(large)
		next(l, '2')
		next(l, '3')
		next(l, '4')
		if n := b.hook.Counts().Oversize; n != 2 {
			t.Errorf("QoS %d: %d messages dropped, want the one for nobody, and one more", qos, n)
		}
	}
}

// Field cases 070 to 072 for groups: what has expired is nobody's any more.
func TestGroupExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		b.subscribed(v5("c"), share, 1)
		publisher := b.dial(v5("publisher"))
		publisher.PublishAndWait("a", "short", 1, mqtttest.WithExpiry(1))
		publisher.PublishAndWait("a", "long", 1, mqtttest.WithExpiry(600))
		time.Sleep(time.Second) // the short message expires
		c := b.dial(v5("c"))
		pk := c.NextPublish()
		if left := pk.Properties.MessageExpiryInterval; string(pk.Payload) != "long" || left > 599 || left < 590 {
			t.Errorf("got %s with %d s left", mqtttest.Describe(pk), left)
		}
		if n := b.hook.Counts().Expired; n != 1 {
			t.Errorf("%d messages counted as expired, want 1", n)
		}
	})
}

// What the store refuses to move is moved later.
func TestGroupStoreFails(t *testing.T) {
	store := &faulty{}
	b := start(t, setting{Wrap: store.wrap})
	b.subscribed(v5("c"), share, 2)
	failures := 0
	store.set(func(f *faulty) {
		f.give = func() error {
			if failures++; failures < 3 {
				return inbox.ErrFull
			}
			return nil
		}
		f.open = func(r inbox.Receiver) error {
			if r == inbox.GroupReceiver(share) && failures == 0 {
				failures++
				return errors.New("disk on fire")
			}
			return nil
		}
	})
	c := b.dial(v5("c"))
	b.dial(v5("publisher")).PublishAndWait("a", "x", 2)
	wantPayloads(t, c.Payloads(1), []string{"x"})
	c.Silent(20 * time.Millisecond)
}

// A message that is acknowledged with an error has been had [MQTT-4.8.2-6].
func TestGroupMemberRefuses(t *testing.T) {
	for qos := byte(1); qos <= 2; qos++ {
		b := start(t, setting{})
		c := b.member(exact(v5("c")), share, qos)
		b.dial(v5("publisher")).PublishAndWait("a", "x", qos)
		c.AckWith(c.NextPublish(), 0x83)
		c.Ping()
		other := b.member(v5("other"), share, qos)
		c.Cut()
		other.Silent(50 * time.Millisecond)
		c = b.dial(v5("c"))
		c.Silent(20 * time.Millisecond)
	}
}

// Acknowledgements of the wrong kind are violations for messages of groups too.
func TestGroupWrongAcks(t *testing.T) {
	for _, kind := range []byte{packets.Pubrec, packets.Pubcomp} {
		b := start(t, setting{})
		c := b.member(exact(v5("c")), share, 1)
		b.publish("a", 1, 1)
		c.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: kind}, PacketID: c.NextPublish().PacketID})
		if code := c.WaitDisconnect(); code != 0x82 {
			t.Errorf("%s: DISCONNECT %#x, want 0x82", packets.PacketNames[kind], code)
		}
		wantPayloads(t, b.dial(v5("c")).Payloads(1), []string{"1"})
	}
}

// dialOfEarlierVersion connects a client that has some messages of its own, the first of them
// open under a packet id that is for groups now, and comes again.
func dialOfEarlierVersion(t *testing.T, window, messages int) (b *broker, c *mqtttest.Client, own packets.Packet) {
	t.Helper()
	const first = inbox.MaxPacketID + 1
	b = start(t, setting{Options: hooks.Options{Window: window}})
	b.subscribed(v5("c"), "own", 1)
	b.publish("own", 1, messages)
	b.leaveOpen("c", first)
	c = b.dial(manual(v5("c")))
	if own = c.NextPublish(); own.PacketID != first || !own.FixedHeader.Dup {
		t.Errorf("got %s, want it again under id %d", mqtttest.Describe(own), first)
	}
	return b, c, own
}

// A session of an earlier version may have messages of its own open under packet
// ids that are for groups now. They are finished first.
func TestGroupPassesOverIDsOfEarlierVersions(t *testing.T) {
	b, c, own := dialOfEarlierVersion(t, 10, 1)
	c.Subscribe(share, 1)
	b.publish("a", 1, 20_000) // each of these ids is used, but for that one
	for range 20_000 {
		pk := c.NextPublish()
		if pk.PacketID == own.PacketID {
			t.Fatalf("got %s, whose id is open", mqtttest.Describe(pk))
		}
		c.Ack(pk)
	}
	c.Ack(own)
	c.Ping()
	c.Cut()
	b.dial(v5("c")).Silent(20 * time.Millisecond)
}

// They take room in the window once, as others do: a window of one is enough for one.
func TestIDsOfEarlierVersionsTakeRoomOnce(t *testing.T) {
	b, c, own := dialOfEarlierVersion(t, 1, 2)
	c.Silent(20 * time.Millisecond)
	c.Ack(own)
	c.Ack(c.NextPublish())
	c.Subscribe(share, 1)
	b.publish("a", 1, 1)
	c.Ack(c.NextPublish())
}

// leaveOpen has the first message of a receiver be open under a packet id.
func (b *broker) leaveOpen(r inbox.Receiver, id uint16) {
	b.t.Helper()
	var open inbox.State
	in, _, err := b.store.Open(b.t.Context(), r, inbox.OpenOptions{Expiry: 3600, State: func() inbox.State { return open }})
	if err != nil {
		b.t.Fatal(err)
	}
	page, err := in.Next(b.t.Context(), 1, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	open = inbox.State{Sent: page[0].Position, LastID: id, Open: []inbox.Delivery{{Position: page[0].Position, PacketID: id}}}
	if err := in.Close(b.t.Context(), inbox.Ending{Expiry: 3600}); err != nil {
		b.t.Fatal(err)
	}
}
