package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// pulling connects a receiver in pull mode.
func (tr *trial) pulling(r inbox.Receiver) *client {
	tr.Helper()
	return tr.inMode(r, inbox.ModePull)
}

func (tr *trial) inMode(r inbox.Receiver, m inbox.Mode) *client {
	tr.Helper()
	c := tr.connectWith(r, inbox.OpenOptions{Expiry: lasting, Mode: m})
	if got := c.Mode(); m != inbox.ModeKept && got != m {
		tr.Fatalf("opened in mode %d, is in mode %d", m, got)
	}
	return c
}

func modeKept(tr *trial) {
	check := func(when string, c *client, now, next inbox.Mode) {
		tr.Helper()
		if got := c.Mode(); got != now {
			tr.Fatalf("%s: mode %d, want %d", when, got, now)
		}
		if got := tr.sessions()["c"].Mode; got != next {
			tr.Fatalf("%s: the session says mode %d, want %d", when, got, next)
		}
		if got, err := tr.store.SetMode(tr.ctx, "c", inbox.ModeKept); err != nil || got != next {
			tr.Fatalf("%s: asked, the store says mode %d, %v, want %d", when, got, err, next)
		}
	}
	set := func(m inbox.Mode) {
		tr.Helper()
		if now, err := tr.store.SetMode(tr.ctx, "c", m); err != nil || m != inbox.ModeKept && now != m {
			tr.Fatalf("set mode %d: is %d, %v", m, now, err)
		}
	}
	const push, pull = inbox.ModePush, inbox.ModePull
	c := tr.connect("c", lasting)
	check("new", c, push, push)
	set(pull)
	check("set while connected", c, push, pull)
	set(inbox.ModeKept)
	check("kept", c, push, pull)
	check("again", tr.connect("c", lasting), pull, pull)
	tr.restart()
	c = tr.connect("c", lasting)
	check("after a restart", c, pull, pull)
	c.close(lasting)
	set(push)
	tr.restart()
	check("set while away", tr.connect("c", lasting), push, push)
	check("by opening", tr.pulling("c"), pull, pull)
	check("by opening, and again", tr.connect("c", lasting), pull, pull)
	check("by opening otherwise", tr.inMode("c", push), push, push)
	set(pull)
	check("fresh", tr.connectFresh("c", lasting), push, push)
	check("fresh and pulling", tr.connectWith("c", inbox.OpenOptions{Expiry: lasting, Fresh: true, Mode: pull}), pull, pull)
}

// The backlog waits, what is live is delivered, and each is acknowledged by itself.
func modePull(tr *trial) {
	tr.reader("c")
	tr.publish("a", numbers("old", 5)...)
	c := tr.pulling("c")
	tr.publish("a", numbers("live", 5)...)
	live := c.only(numbers("live", 5)...)
	all := tr.unread("c", append(numbers("old", 5), numbers("live", 5)...)...)
	c.finish(live[0], live[3])
	c.save()
	tr.acknowledges("c", 2, byIDs(all[1], all[2]))
	tr.acknowledges("c", 1, byIDs(live[1]))
	tr.unread("c", "old-0", "old-3", "old-4", "live-2", "live-4")
	c.close(lasting)
	tr.publish("a", "away")
	for range 2 {
		tr.unread("c", "old-0", "old-3", "old-4", "live-2", "live-4", "away")
		c = tr.connect("c", lasting)
		tr.publish("a", "more")
		same(tr, "to be sent again", payloads(c.read(open(c)...)), []string{"live-2", "live-4"})
		c.finish(c.only("more")...)
		c.save()
		tr.restart()
	}
	tr.acknowledges("c", 6, inbox.Acknowledgement{})
	c = tr.connect("c", lasting)
	tr.publish("a", "last")
	c.finish(c.only("last")...)
	c.save()
	tr.none("c")
}

// open returns the positions of what is on its way.
func open(c *client) (at []inbox.Position) {
	for _, d := range c.current().Open {
		at = append(at, d.Position)
	}
	return at
}

// What was delivered in pull mode, and what of that was not saved, waits when the
// receiver comes again: it is unread, and not delivered.
func modePullUnsaved(tr *trial) {
	c := tr.pulling("c")
	c.subscribe("a/#", 1)
	tr.publish("a", numbers("m", 6)...)
	read := c.take(4)
	c.finish(read[0])
	c.save()
	tr.publish("a", "later")
	c.take(3)
	tr.restart()
	tr.unread("c", "m-1", "m-2", "m-3", "m-4", "m-5", "later")
	c = tr.connect("c", lasting)
	same(tr, "to be sent again", payloads(c.read(open(c)...)), []string{"m-1", "m-2", "m-3"})
	c.only()
	tr.unread("c", "m-1", "m-2", "m-3", "m-4", "m-5", "later")
}

// In push mode again, what waited is delivered, but for what was acknowledged
// meanwhile, in order and at its old places.
func modePushAgain(tr *trial) {
	tr.reader("c")
	tr.publish("a", numbers("old", 10)...)
	for round := range 2 {
		c := tr.pulling("c")
		tr.publish("a", fmt.Sprint("live-", round), fmt.Sprint("unsaved-", round))
		c.finish(c.take(1)...)
		c.close(lasting)
		tr.publish("a", fmt.Sprint("away-", round))
	}
	all := tr.unread("c", append(numbers("old", 10), "unsaved-0", "away-0", "unsaved-1", "away-1")...)
	tr.acknowledges("c", 4, byIDs(all[0], all[4], all[5], all[11]))
	want := []string{"old-1", "old-2", "old-3", "old-6", "old-7", "old-8", "old-9", "unsaved-0", "unsaved-1", "away-1"}
	tr.restart()
	c := tr.inMode("c", inbox.ModePush)
	got := c.only(want...)
	same(tr, "places", positions(got), positions(tr.unread("c", want...)))
	tr.publish("a", "new")
	got = append(got, c.only("new")...)
	c.finish(got[:4]...)
	c.finish(got[len(got)-1])
	c.save()
	tr.unread("c", want[4:]...)
	tr.restart()
	c = tr.connect("c", lasting)
	same(tr, "to be sent again", payloads(c.read(open(c)...)), want[4:])
	c.only()
}

// What was on its way in pull mode is sent again first, under its ids. Once that is
// finished, what waited is delivered, and then what came meanwhile.
func modePushFinishesFirst(tr *trial) {
	tr.reader("c")
	tr.publish("a", numbers("old", 3)...)
	c := tr.pulling("c")
	tr.publish("a", numbers("live", 3)...)
	c.finish(c.take(3)[1])
	c.close(lasting)
	tr.publish("a", numbers("away", 3)...)

	c = tr.inMode("c", inbox.ModePush)
	tr.publish("a", "live again")
	again := c.read(open(c)...)
	same(tr, "to be sent again", payloads(again), []string{"live-0", "live-2"})
	for _, e := range again {
		nothing(c)
		c.finish(e)
		c.save()
	}
	want := append(numbers("old", 3), append(numbers("away", 3), "live again")...)
	got := c.expect(want...)
	tr.unread("c", want...)
	c.finish(got[:5]...)
	c.save()
	tr.unread("c", want[5:]...)
	tr.restart()
	tr.unread("c", want[5:]...)
	c = tr.connect("c", lasting)
	c.finish(c.read(open(c)...)...)
	c.save()
	tr.none("c")
	c.only()
}

// What is finished after Next went back may end where the owner was before: it is finished
// all the same.
func modePushToWhereItWas(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	tr.publish("a", numbers("m", 4)...)
	first := c.take(1)
	c.close(lasting)
	tr.pulling("c").close(lasting)
	c = tr.inMode("c", inbox.ModePush)
	c.finish(first...)
	c.save()
	page, err := c.next(10, unlimited)
	if err != nil {
		tr.Fatalf("next: %v", err)
	}
	for len(page) < 3 {
		page = append(page, c.take(1)...)
	}
	same(tr, "what waited", payloads(page), []string{"m-1", "m-2", "m-3"})
	c.finish(page...)
	c.save()
	tr.none("c")
	c.close(lasting)
	tr.restart()
	tr.none("c")
	tr.connect("c", lasting).only()
}

// What waited may be acknowledged before it is due: then there is nothing to go back to.
func modePushNothingWaits(tr *trial) {
	tr.connect("other", lasting).subscribe("b", 1)
	for _, some := range []bool{false, true} {
		r := inbox.Receiver(fmt.Sprint("c", some))
		tr.reader(r)
		tr.publish("a", numbers("old", 3)...)
		c := tr.pulling(r)
		tr.publish("a", "live")
		live := c.take(1)
		c.close(lasting)
		tr.publish("a", "away")

		c = tr.inMode(r, inbox.ModePush)
		all := tr.unread(r, "old-0", "old-1", "old-2", "live", "away")
		left := []string{"away"}
		if some {
			tr.acknowledges(r, 2, byIDs(all[0], all[2]))
			left = []string{"old-1", "away"}
		} else {
			tr.acknowledges(r, 3, through(all[2]))
		}
		for i := range 50 { // an engine does things in the background meanwhile
			tr.publish("b", fmt.Sprint(i))
		}
		c.finish(live...)
		c.save()
		c.finish(c.only(left...)...)
		c.save()
		tr.none(r)
		c.close(lasting)
		tr.connect(r, lasting).only()
	}
}

// What waited may have been acknowledged before the receiver is in push mode again: then
// Next waits for nothing, though something is open.
func modePushNothingWaitsAnyMore(tr *trial) {
	tr.reader("c")
	tr.publish("a", numbers("old", 3)...)
	c := tr.pulling("c")
	tr.publish("a", "live", "done")
	c.finish(c.take(2)[1])
	c.close(lasting)
	tr.publish("a", "away")
	c = tr.pulling("c")
	all := tr.unread("c", "old-0", "old-1", "old-2", "live", "away")
	tr.acknowledges("c", 4, byIDs(all[0], all[1], all[2], all[4]))
	c.close(lasting)

	c = tr.inMode("c", inbox.ModePush)
	tr.publish("a", "new")
	c.expect("new")
	c.save()
	tr.unread("c", "live", "new")
	tr.restart()
	tr.unread("c", "live", "new")
	c = tr.connect("c", lasting)
	same(tr, "to be sent again", payloads(c.read(open(c)...)), []string{"live", "new"})
	c.only()
}

// nothing fails if Next returns something soon.
func nothing(c *client) {
	c.tr.Helper()
	ctx, cancel := context.WithTimeout(c.tr.ctx, 20*time.Millisecond)
	defer cancel()
	if page, err := c.Next(ctx, 1, unlimited); !errors.Is(err, context.DeadlineExceeded) {
		c.tr.Fatalf("%.40q is given %v, %v", c.receiver, payloads(page), err)
	}
}

// A state in which the owner has not noted yet what Next gave it finishes nothing,
// though Next went back.
func modePushNotNoted(tr *trial) {
	for _, during := range []bool{false, true} { // whether Next goes back while the owner is there
		r := inbox.Receiver(fmt.Sprint("c", during))
		tr.reader(r)
		tr.publish("a", numbers("old", 3)...)
		c := tr.pulling(r)
		tr.publish("a", "live")
		live := c.take(1)
		if !during {
			c.finish(live...)
		}
		c.close(lasting)

		c = tr.inMode(r, inbox.ModePush)
		if during {
			c.finish(live...)
			c.save()
		}
		page, err := c.Next(tr.ctx, 2, unlimited)
		if err != nil {
			tr.Fatalf("next: %v", err)
		}
		same(tr, "what waited", payloads(page), numbers("old", len(page)))
		c.save()
		tr.unread(r, numbers("old", 3)...)
		c.close(lasting)
		tr.restart()
		tr.unread(r, numbers("old", 3)...)
		c = tr.connect(r, lasting)
		got := c.only(numbers("old", 3)...)
		c.finish(got...)
		c.save()
		tr.none(r)
		c.close(inbox.ExpiryAtOnce)
	}
}

// A receiver in pull mode comes and goes many times, and is delivered something each time:
// more stretches wait than an engine may want to remember.
func modeManyStretches(tr *trial) {
	random := newRandom(tr)
	tr.reader("c")
	n := size(100, 80)
	var want []string
	for i := range n {
		away := fmt.Sprint("away-", i)
		tr.publish("a", away)
		want = append(want, away)
		c := tr.pulling("c")
		tr.publish("a", fmt.Sprint("live-", i))
		c.finish(c.take(1)...)
		c.close(lasting)
		if random.IntN(3) == 0 {
			j := random.IntN(len(want))
			e := tr.page(tr.inboxOf("c"), inbox.Query{Max: j + 1}).Entries[j]
			tr.acknowledges("c", 1, byIDs(e))
			want = slices.Delete(want, j, j+1)
		}
	}
	tr.unread("c", want...)
	tr.restart()
	all := tr.unread("c", want...)
	tr.acknowledges("c", 10, through(all[9]))
	tr.unread("c", want[10:]...)
	c := tr.inMode("c", inbox.ModePush)
	c.finish(c.only(want[10:]...)...)
	c.save()
	tr.none("c")
}

// Leaving takes away what was not read, what waits to be pulled too.
func modeGivenUp(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	c.subscribe("b", 1)
	tr.publish("a", "a-old")
	tr.publish("b", "b-old")
	c = tr.pulling("c")
	tr.publish("a", "a-live")
	tr.publish("b", "b-live")
	c.expect("a-live")
	c.save()
	c.unsubscribe("a")
	for range 2 {
		tr.unread("c", "b-old", "a-live", "b-live")
		tr.restart()
	}
	c = tr.inMode("c", inbox.ModePush)
	same(tr, "to be sent again", payloads(c.read(open(c)...)), []string{"a-live"})
	c.finish(c.read(open(c)...)...)
	c.save()
	c.only("b-old", "b-live")
}

// The two modes beside each other, in one group.
func modeInGroup(tr *trial) {
	var members []inbox.Receiver
	for i := range 40 {
		r := inbox.Receiver(fmt.Sprint("member ", i))
		tr.reader(r)
		members = append(members, r)
	}
	messages := tr.talk(40, []string{"ann", "bob"}, []string{"a", "a/b"})
	want := which(messages, inbox.Selection{})
	pull, push := tr.pulling(members[0]), tr.connect(members[1], lasting)
	tr.publish("a", "live")
	pull.finish(pull.only("live")...)
	pull.save()
	push.finish(push.only(append(slices.Clone(want), "live")...)[:30]...)
	push.save()
	tr.acknowledges(members[0], 20, inbox.Acknowledgement{Selection: inbox.Selection{Sender: "ann"}})
	tr.acknowledges(members[1], 5, inbox.Acknowledgement{Selection: inbox.Selection{Sender: "ann"}})
	for range 2 {
		tr.unread(members[0], which(messages, inbox.Selection{Sender: "bob"})...)
		tr.unread(members[1], append(which(messages[30:], inbox.Selection{Sender: "bob"}), "live")...)
		tr.unread(members[2], append(slices.Clone(want), "live")...)
		tr.restart()
	}
	push = tr.inMode(members[0], inbox.ModePush)
	push.only(which(messages, inbox.Selection{Sender: "bob"})...)
}

// However the moment at which the inbox is opened falls among those at which others
// publish, every message waits or is delivered.
func modeWhileOthersPublish(tr *trial) {
	tr.reader("c")
	want := numbers("m", size(2000, 500))
	other := tr.publisher()
	stored := other.appendMeanwhile(len(want), 10, func(i int) *inbox.Envelope { return message("a", 1, want[i]) })
	for i := range 20 {
		o := inbox.OpenOptions{Expiry: lasting, Mode: inbox.ModePull}
		if i%5 == 4 {
			o.From = &inbox.Bound{}
		}
		c := tr.connectWith("c", o)
		if i%2 == 0 {
			c.close(lasting)
		}
	}
	<-stored
	other.stored(0)
	tr.unread("c", want...)
	tr.restart()
	tr.unread("c", want...)
}
