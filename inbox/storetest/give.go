package storetest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// tryGive gives entries away and waits for done. The client's own state keeps
// them open.
func (c *client) tryGive(to *client, entries ...inbox.Entry) error {
	given := make(chan error, 2)
	c.Give(to.Inbox, entries, func(err error) { given <- err })
	select {
	case err := <-given:
		return err
	case <-c.tr.ctx.Done():
		return errors.New("done of Give was not called")
	}
}

func (c *client) give(to *client, entries ...inbox.Entry) {
	c.tr.Helper()
	if err := c.tryGive(to, entries...); err != nil {
		c.tr.Fatalf("%.40q gives: %v", c.receiver, err)
	}
}

// A given entry stands at the end of the other inbox, and what its giver still
// believes to be open is not.
func giveMoves(tr *trial) {
	const filter = "$share/g/a"
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connectFresh("c", expiry)
		c.subscribe(filter, 2)
		c.subscribe("b", 1)
		sent := tr.publish("a", "one", "two", "three")
		tr.publish("b", "own")
		g := tr.group(filter)
		all := g.take(3)
		two := all[1]
		two.Grant = inbox.Grant{QoS: 2, Retain: true, Identifiers: []uint32{7, 9}}
		g.give(c, two)
		tr.publish("b", "later")

		got := c.take(3)
		same(tr, "inbox of the member", payloads(got), []string{"own", "two", "later"})
		sameGrant(tr, got[1], two.Grant)
		if got[1].Envelope.ID != sent[1].ID || got[1].Position == two.Position {
			tr.Fatalf("given as %v at %d, was %v at %d", got[1].Envelope.ID, got[1].Position, sent[1].ID, two.Position)
		}
		g.save()
		g.finish(all[0])
		g.save()
		g.close(inbox.ExpiryNever)
		g = tr.group(filter)
		same(tr, "open", g.State().Open, []inbox.Delivery{{Position: all[2].Position, PacketID: 3, QoS: 1}})
		g.only()
		c.only()
	}
}

func giveRestarted(tr *trial) {
	const filter = "$share/g/a"
	c := tr.member("c", lasting, filter)
	d := tr.member("d", inbox.ExpiryAtOnce, filter)
	sent := tr.publish("a", "one", "two", "three", "four")
	g := tr.group(filter)
	all := g.take(3)
	g.give(c, all[2])
	g.give(d, all[0])
	tr.restart()
	g = tr.group(filter)
	var open []inbox.Position // what was sent need not have been saved
	for _, d := range g.State().Open {
		open = append(open, d.Position)
	}
	left := append(g.read(open...), g.rest()...)
	same(tr, "left", payloads(left), []string{"two", "four"})
	c = tr.connect("c", lasting)
	got := c.only("three")
	if got[0].Envelope.ID != sent[2].ID {
		tr.Fatalf("given as %v, was %v", got[0].Envelope.ID, sent[2].ID)
	}
	c.finish(got...)
	c.save()
	tr.restart()
	tr.connect("c", lasting).only()
}

// What is refused stays where it is.
func giveRefused(tr *trial) {
	const filter = "$share/g/a"
	c, d := tr.member("c", lasting, filter), tr.member("d", lasting, filter)
	tr.publish("a", "one", "two")
	old := tr.group(filter)
	old.take(2)
	g := tr.group(filter)
	entries := g.take(2)
	for _, call := range []error{old.tryGive(c, entries[0]), g.tryGive(old, entries[0])} {
		if !errors.Is(call, inbox.ErrFenced) {
			tr.Fatalf("giving from or to an inbox that is fenced: %v, want ErrFenced", call)
		}
	}
	c.close(lasting)
	if err := g.tryGive(c, entries...); !errors.Is(err, inbox.ErrFenced) {
		tr.Fatalf("giving to an inbox that is closed: %v, want ErrFenced", err)
	}
	g.give(d, entries[1])
	g.save()
	g = tr.group(filter)
	same(tr, "open", g.State().Open, []inbox.Delivery{{Position: entries[0].Position, PacketID: 1, QoS: 1}})
	same(tr, "left", payloads(g.read(entries[0].Position)), []string{"one"})
	d.only("two")
	tr.connect("c", lasting).only()
	d.unsubscribe(filter)
	tr.connect("c", lasting).unsubscribe(filter)
	if err := g.tryGive(d, entries[0]); !errors.Is(err, inbox.ErrFenced) {
		tr.Fatalf("giving from a group that has ended: %v, want ErrFenced", err)
	}
	d.only()
}

// What was deleted since the group has read it is not moved, and gone from the group.
func giveDeleted(tr *trial) {
	const filter = "$share/g/a"
	c := tr.member("c", lasting, filter)
	tr.publish("a", "one", "two", "three")
	g := tr.group(filter)
	entries := g.take(3)
	tr.delete(entries[1], "")
	g.give(c, entries...)
	g.save()
	c.only("one", "three")
	same(tr, "open", tr.group(filter).State().Open, nil)
}

// What a group has given came by no subscription of the member's own: it is not given up with
// one, whether it was given on this connection or an earlier one.
func giveUnsubscribed(tr *trial) {
	const filter = "$share/g/a/#"
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connectFresh("c", expiry)
		c.subscribe(filter, 2)
		tr.append(retain("a/x", 1, "retained"))
		g := tr.group(filter)
		g.give(c, g.take(1)...)
		if expiry == lasting {
			tr.restart()
			c, g = tr.connect("c", lasting), tr.group(filter)
		}
		c.subscribe("a/+", 2)
		tr.publish("a/y", "two")
		g.give(c, g.take(1)...)
		c.unsubscribe("a/+")
		c.only("retained", "two")
		tr.append(retain("a/x", 1, ""))
		c.close(inbox.ExpiryAtOnce)
	}
}

// Many and large ones, to several members, while others are published.
func giveMuch(tr *trial) {
	const filter = "$share/g/a"
	members := []*client{tr.member("x", lasting, filter), tr.member("y", lasting, filter), tr.member("z", inbox.ExpiryAtOnce, filter)}
	for _, m := range members {
		m.subscribe("own", 1)
	}
	var want [3][]string
	sent := 0
	for round := range size(6, 3) {
		var page []*inbox.Envelope
		for i := range 200 {
			payload := fmt.Appendf(nil, "%d-%d", round, i)
			if i%20 == 0 {
				payload = append(payload, bytes.Repeat([]byte{'x'}, mustTake/20*(1+i%19))...)
			}
			page = append(page, message("a", 2, string(payload)))
		}
		tr.append(page...)
		sent += len(page)
	}
	g := tr.group(filter)
	for taken := 0; taken < sent; {
		page, err := g.next(200, 1<<20)
		if err != nil {
			tr.Fatal(err)
		}
		taken += len(page)
		var parts [3][]inbox.Entry
		for i, e := range page {
			to := i % len(members)
			parts[to] = append(parts[to], e)
			want[to] = append(want[to], string(e.Envelope.Payload))
		}
		for i, m := range members {
			tr.main.append(message("own", 1, "own"))
			g.give(m, parts[i]...)
		}
		g.finish(page...)
	}
	g.save()
	g.only()
	if len(g.current().Open) != 0 {
		tr.Fatalf("open: %v", g.current().Open)
	}
	for i, m := range members {
		var got []string
		for _, p := range payloads(m.rest()) {
			if p != "own" {
				got = append(got, p)
			}
		}
		same(tr, "given", got, want[i])
	}
	tr.restart()
	tr.group(filter).only()
}
