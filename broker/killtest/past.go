package killtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// past has clients that change what they are to be sent of what was stored before, and whose
// links break as soon as the broker has confirmed it: by the last messages in history that come
// with a subscription, by going back to what they had acknowledged, by giving up a
// subscription and making it again. One of the messages is deleted by who sent it. After
// the kill all that holds.
type past struct{ *run }

// The messages of a round are numbered. The first is deleted where there is history.
const (
	pastMessages = 6 // and one more when all is set up
	pastLast     = 3 // come by SUBSCRIBE
)

func (x *past) before(t testing.TB, round int) {
	filter := topicFor(round, "past")
	author := x.dial(t, name("author", round), nil)
	defer author.Disconnect()
	reader := x.dial(t, name("reader", round), nil)
	reader.Subscribe(filter, x.QoS)
	for _, kind := range []string{"waits", "anew"} {
		c := x.dial(t, name(kind, round), nil)
		c.Subscribe(filter, x.QoS)
		c.Disconnect()
	}
	for i := range pastMessages {
		author.Publish(filter, fmt.Sprint(i), x.QoS)
	}
	reader.Collect(pastMessages)
	reader.Disconnect()
	if x.History {
		x.deleteFirst(t, author, filter)
		last := x.dialSaying(t, name("last", round))
		x.subscribeLast(t, last, filter)
		defer last.Cut()
	}
	anew := x.dialSaying(t, name("anew", round), "inbox-mode", "pull") // so that nothing is sent
	anew.Unsubscribe(filter)
	anew.Subscribe(filter, x.QoS)
	defer anew.Cut()
	author.PublishAndWait(filter, fmt.Sprint(pastMessages), x.QoS)
	if x.Rewind {
		x.dialSaying(t, reader.ID, "inbox-from", "0").Cut()
	}
}

// dialSaying connects a client that acknowledges nothing, with user properties.
func (x *past) dialSaying(t testing.TB, id string, words ...string) *mqtttest.Client {
	t.Helper()
	o := mqtttest.Options{ClientID: id, Version: 5, SessionExpiry: sessionExpiry, ManualAck: true}
	for i := 0; i < len(words); i += 2 {
		o.UserProperties = append(o.UserProperties, packets.UserProperty{Key: words[i], Val: words[i+1]})
	}
	return mqtttest.Dial(t, x.Address, o)
}

func (x *past) subscribeLast(t testing.TB, c *mqtttest.Client, filter string) {
	t.Helper()
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: c.NextID(),
		Filters: packets.Subscriptions{{Filter: filter, Qos: x.QoS}},
	}
	pk.Properties.User = []packets.UserProperty{{Key: "inbox-last", Val: fmt.Sprint(pastLast)}}
	c.Send(pk)
	if suback := c.NextOf(packets.Suback); suback.ReasonCodes[0] != x.QoS {
		t.Errorf("%s: SUBACK %#x", c.ID, suback.ReasonCodes)
	}
}

// deleteFirst has the sender delete its first message.
func (x *past) deleteFirst(t testing.TB, author *mqtttest.Client, filter string) {
	t.Helper()
	var first page
	askFor(t, author, "history", question{Topic: filter, Order: "asc", Limit: 1}, &first)
	if len(first.Messages) != 1 || first.Messages[0].Payload != "0" {
		t.Errorf("the first message in history: %+v", first.Messages)
		return
	}
	var n struct{ Deleted int }
	askFor(t, author, "delete", question{ID: first.Messages[0].ID}, &n)
	if n.Deleted != 1 {
		t.Errorf("%d deleted", n.Deleted)
	}
}

func (x *past) after(t testing.TB, round int) {
	filter := topicFor(round, "past")
	author := x.dial(t, name("author", round), nil)
	defer author.Disconnect()
	author.PublishAndWait(filter, "end", x.QoS)
	all := make([]string, pastMessages+1)
	for i := range all {
		all[i] = fmt.Sprint(i)
	}
	kept := all
	if x.History {
		kept = all[1:]
		x.get(t, name("last", round), all[pastMessages-pastLast:])
		x.history(t, author, filter, all)
	}
	x.get(t, name("waits", round), kept)
	x.get(t, name("anew", round), all[pastMessages:])
	if x.Rewind {
		x.get(t, name("reader", round), kept)
	} else {
		x.get(t, name("reader", round), all[pastMessages:])
	}
}

// history compares what history has with what must be there, with a mark in the place of the
// first.
func (x *past) history(t testing.TB, c *mqtttest.Client, filter string, all []string) {
	t.Helper()
	var p page
	askFor(t, c, "history", question{Topic: filter, Order: "asc", Limit: 100}, &p)
	var got []string
	for i, m := range p.Messages {
		if m.Deleted != (i == 0) {
			x.ledger.Violate("history: %+v is in place %d", m, i)
		}
		got = append(got, m.Payload)
	}
	want := append(append([]string{""}, all[1:]...), "end")
	if !slices.Equal(got, want) {
		x.ledger.Violate("history of %s: %q, want %q", filter, got, want)
	}
}

func (*past) finally(testing.TB) {}
