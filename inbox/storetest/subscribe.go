package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// counter publishes 0, 1, 2, … until it is stopped.
type counter struct {
	begun atomic.Int64 // messages whose Append was called
	known atomic.Int64 // messages whose done was called
	stop  chan struct{}
	ended sync.WaitGroup
}

// startCounter keeps at most 64 messages under way, so that the counter moves
// while the test does something else.
func (tr *trial) startCounter(topic string) *counter {
	c := &counter{stop: make(chan struct{})}
	window := make(chan struct{}, 64)
	c.ended.Go(func() {
		for {
			select {
			case <-c.stop:
				return
			case window <- struct{}{}:
			}
			payload := strconv.FormatInt(c.begun.Add(1)-1, 10)
			tr.store.Append(tr.ctx, message(topic, 1, payload), func(_ inbox.Receipt, err error) {
				if err != nil {
					tr.Errorf("append of %s: %v", payload, err)
				}
				c.known.Add(1)
				<-window
			})
		}
	})
	return c
}

// further waits until the counter is n further.
func (c *counter) further(tr *trial, n int64) {
	tr.Helper()
	goal := c.known.Load() + n
	tr.eventually("the counter moves", func() bool { return c.known.Load() >= goal })
}

// end stops the counter, waits for its messages, and returns how many there were.
func (c *counter) end(tr *trial) int64 {
	tr.Helper()
	close(c.stop)
	c.ended.Wait()
	n := c.begun.Load()
	tr.eventually("done of every message", func() bool { return c.known.Load() == n })
	return n
}

func subscribeStarts(tr *trial) {
	counter := tr.startCounter("count")
	clients := make([]*client, size(20, 5))
	after := make([]int64, len(clients))
	for i := range clients {
		expiry := lasting
		if i%2 == 1 {
			expiry = inbox.ExpiryAtOnce
		}
		clients[i] = tr.connect(inbox.Receiver(fmt.Sprint("c", i)), expiry)
		counter.further(tr, int64(i%3))
		clients[i].subscribe("count", 1)
		after[i] = counter.begun.Load()
	}
	counter.further(tr, 10)
	end := counter.end(tr)

	for i, c := range clients {
		first, last := contiguous(tr, c.rest())
		if first > after[i] {
			tr.Fatalf("receiver %d: starts with %d, though Append of %d was called after Subscribe returned", i, first, after[i])
		}
		if last != end-1 {
			tr.Fatalf("receiver %d: ends with %d instead of %d", i, last, end-1)
		}
	}
}

func unsubscribeEnds(tr *trial) {
	counter := tr.startCounter("count")
	clients := make([]*client, size(10, 3))
	before := make([]int64, len(clients))
	after := make([]int64, len(clients))
	got := make([][]inbox.Entry, len(clients))
	for i := range clients {
		clients[i] = tr.connect(inbox.Receiver(fmt.Sprint("c", i)), lasting)
		clients[i].subscribe("count", 1)
		counter.further(tr, 100)
		before[i] = counter.known.Load()
		for last := int64(-1); last < before[i]-1; {
			e := clients[i].take(1)
			_, last = contiguous(tr, e)
			got[i] = append(got[i], e...)
		}
		clients[i].unsubscribe("count")
		after[i] = counter.begun.Load()
	}
	counter.further(tr, 10)
	counter.end(tr)

	for i, c := range clients {
		_, last := contiguous(tr, append(got[i], c.rest()...))
		if last < before[i]-1 || last >= after[i] {
			tr.Fatalf("receiver %d: ends with %d, but must have %d and nothing from %d on", i, last, before[i]-1, after[i])
		}
	}
}

// contiguous returns the first and the last number, and fails if there is a gap.
func contiguous(tr *trial, entries []inbox.Entry) (first, last int64) {
	tr.Helper()
	if len(entries) == 0 {
		tr.Fatal("no message came")
	}
	for i, payload := range payloads(entries) {
		n, err := strconv.ParseInt(payload, 10, 64)
		if err != nil {
			tr.Fatalf("payload %q: %v", payload, err)
		}
		if i > 0 && n != last+1 {
			tr.Fatalf("%d follows %d", n, last)
		}
		if i == 0 {
			first = n
		}
		last = n
	}
	return first, last
}

func subscribeExisted(tr *trial) {
	c := tr.connect("c", lasting)
	subs := func(filters ...string) (out []inbox.Subscription) {
		for _, f := range filters {
			out = append(out, inbox.Subscription{Filter: f, QoS: 1})
		}
		return out
	}
	same(tr, "new", c.add(subs("a", "b/#")...), []bool{false, false})
	same(tr, "one is new", c.add(subs("b/#", "c")...), []bool{true, false})
	same(tr, "twice in one call", c.add(subs("d", "d")...), []bool{false, true})
	same(tr, "unsubscribed", c.unsubscribe("a", "unknown", "b", "d"), []bool{true, false, false, true})
	same(tr, "again", c.add(subs("a", "b/#")...), []bool{false, true})
	tr.restart()
	c = tr.connect("c", lasting)
	same(tr, "after a restart", c.add(subs("a", "d")...), []bool{true, false})
	same(tr, "none", c.add(), nil)
}

func subscribeKeepsOptions(tr *trial) {
	c := tr.connect("c", lasting)
	want := []inbox.Subscription{
		{Filter: "a", QoS: 0},
		{Filter: "b/+", QoS: 1, NoLocal: true, Identifier: 268435455},
		{Filter: "c/#", QoS: 2, RetainAsPublished: true, RetainHandling: 1, Identifier: 1},
		{Filter: "d", QoS: 1, NoLocal: true, RetainAsPublished: true, RetainHandling: 2, Identifier: 128},
		{Filter: "ü/€", QoS: 2},
	}
	c.add(want...)
	list := func(when string) {
		tr.Helper()
		got, err := c.Subscriptions(tr.ctx)
		if err != nil {
			tr.Fatalf("%s: subscriptions: %v", when, err)
		}
		slices.SortFunc(got, func(a, b inbox.Subscription) int { return cmp.Compare(a.Filter, b.Filter) })
		same(tr, when, withoutHandling(got), withoutHandling(want))
	}
	list("at once")
	tr.restart()
	c = tr.connect("c", lasting)
	list("after a restart")

	want[0] = inbox.Subscription{Filter: "a", QoS: 2, RetainHandling: 2, Identifier: 5}
	c.add(want[0])
	c.unsubscribe("ü/€")
	want = want[:4]
	list("replaced and removed")
	c.close(lasting)
	tr.restart()
	c = tr.connect("c", lasting)
	list("replaced, removed and restarted")
}

// withoutHandling leaves out the retain handling: it has its effect when
// subscribing, and an engine need not keep it.
func withoutHandling(subs []inbox.Subscription) []inbox.Subscription {
	out := slices.Clone(subs)
	for i := range out {
		out[i].RetainHandling = 0
	}
	return out
}

func subscribeReplaces(tr *trial) {
	c := tr.connect("c", lasting)
	versions := []inbox.Subscription{
		{Filter: "a", QoS: 1, Identifier: 7, RetainHandling: 2},
		{Filter: "a", QoS: 2, RetainAsPublished: true, RetainHandling: 2},
		{Filter: "a", QoS: 1, Identifier: 8, RetainHandling: 2},
	}
	for _, v := range versions {
		c.add(v)
		e := message("a", 2, "m")
		e.Retain = true
		tr.append(e)
	}
	c.add(inbox.Subscription{Filter: "a", QoS: 1, NoLocal: true, RetainHandling: 2})
	own := message("a", 2, "own")
	own.Client = "c"
	tr.append(own)

	for i, e := range c.only("m", "m", "m") {
		v := versions[i]
		var ids []uint32
		if v.Identifier != 0 {
			ids = []uint32{v.Identifier}
		}
		sameGrant(tr, e, inbox.Grant{QoS: v.QoS, Retain: v.RetainAsPublished, Identifiers: ids})
	}
}

func unsubscribeGivesUp(tr *trial) {
	for _, connected := range []bool{true, false} {
		c := tr.connect("c", lasting)
		c.subscribe("a", 1)
		tr.publish("a", "one", "two")
		if !connected { // what it has to read is on disk
			c.close(lasting)
			tr.publish("a", "three")
			c = tr.connect("c", lasting)
		}
		c.unsubscribe("a")
		tr.publish("a", "four")
		c.only()
		tr.restart()
		tr.publish("a", "five")
		c = tr.connect("c", lasting)
		c.only()
		c.close(inbox.ExpiryAtOnce)
	}
}

func unsubscribeKeepsOthers(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	c.subscribe("a/#", 1)
	c.subscribe("b/+", 1)
	tr.publish("a", "both")
	tr.publish("b/c", "other")
	tr.publish("a/b", "given up")
	c.unsubscribe("a/#")
	tr.publish("a", "later")
	tr.restart()
	c = tr.connect("c", lasting)
	c.only("both", "other", "later")
}

// A message that was sent must be sent again until it is acknowledged, whatever
// became of the subscription [MQTT-3.10.4-3].
func unsubscribeKeepsRead(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 2)
	tr.publish("a", numbers("m", 10)...)
	read := c.take(4)
	c.finish(read[1])
	c.save()
	c.unsubscribe("a")
	c.only()
	tr.publish("a", "later")
	for _, again := range []bool{false, true} {
		tr.restart()
		c = tr.connect("c", lasting)
		same(tr, "open", payloads(c.read(read[0].Position, read[2].Position, read[3].Position)), []string{"m-0", "m-2", "m-3"})
		if again {
			c.only()
		}
	}
	c.finish(read[0], read[2], read[3])
	c.save()
	c.only()
}

// A message that a filter would have given up, had another not matched it, and that
// was sent by that one, is not given up when the other is.
func unsubscribeOneByOne(tr *trial) {
	givenUpOneByOne(tr, func(c *client, sent []inbox.Entry) {
		for range 2 {
			same(tr, "to be sent again", payloads(c.read(positions(sent)...)), []string{"sent"})
			c.only()
			tr.restart()
			c = tr.connect("c", lasting)
		}
		c.close(inbox.ExpiryAtOnce)
	})
}

// givenUpOneByOne has a session give up all filters that match a message, the last when
// the message is sent by it, and perhaps is all there was, and calls then, which ends the
// session.
func givenUpOneByOne(tr *trial, then func(c *client, sent []inbox.Entry)) {
	for _, filters := range [][]string{{"a", "#"}, {"#", "a"}, {"a", "+", "#"}} {
		for _, all := range [][]string{{"sent", "unread"}, {"sent"}} {
			c := tr.connect("c", lasting)
			for _, f := range filters {
				c.subscribe(f, 1)
			}
			tr.publish("a", all...)
			last := len(filters) - 1
			c.unsubscribe(filters[:last]...)
			sent := c.expect("sent")
			c.save()
			c.unsubscribe(filters[last])
			then(c, sent)
		}
	}
}

// Who subscribes again begins anew, and is still sent again what it was sent.
func unsubscribeAndAgain(tr *trial) {
	c := tr.connect("c", lasting)
	other := tr.connect("other", lasting)
	other.subscribe("a", 1)
	for round := range 3 {
		c.subscribe("a", byte(1+round%2))
		tr.publish("a", fmt.Sprint("in ", round), fmt.Sprint("unread ", round))
		c.take(1)
		c.save()
		c.unsubscribe("a")
		tr.publish("a", fmt.Sprint("out ", round))
	}
	c.subscribe("a", 1)
	tr.publish("a", "last")
	tr.restart()
	c = tr.connect("c", lasting)
	var at []inbox.Position
	for _, d := range c.State().Open {
		at = append(at, d.Position)
	}
	again := c.read(at...)
	same(tr, "open", payloads(again), []string{"in 0", "in 1", "in 2"})
	for _, e := range again {
		sameGrant(tr, e, inbox.Grant{QoS: 1})
	}
	c.only("last")
	tr.connect("other", lasting).only("in 0", "unread 0", "out 0", "in 1", "unread 1", "out 1", "in 2", "unread 2", "out 2", "last")
}
