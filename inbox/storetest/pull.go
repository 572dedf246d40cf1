package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// reader has a session with a subscription to a/#, and is away.
func (tr *trial) reader(r inbox.Receiver) {
	tr.Helper()
	c := tr.connect(r, lasting)
	c.subscribe("a/#", 1)
	c.close(lasting)
}

func pullOrders(tr *trial) {
	tr.reader("c")
	want := numbers("m", 25)
	receipts := tr.publish("a", want...)
	all := tr.unread("c", want...)
	for i, e := range all {
		if e.Envelope.ID != receipts[i].ID {
			tr.Fatalf("%s has id %v, want %v", e.Envelope.Payload, e.Envelope.ID, receipts[i].ID)
		}
		sameGrant(tr, e, inbox.Grant{QoS: 1})
	}
	tr.restart()
	same(tr, "after a restart", positions(tr.unread("c", want...)), positions(all))
	c := tr.connect("c", lasting)
	same(tr, "delivered", positions(c.only(want...)), positions(all)) // one message has one place, whichever way it goes
}

func pullSelections(tr *trial) {
	tr.reader("c")
	users, topics := []string{"ann", "bob", "eve"}, []string{"a", "a/b", "a/b/c", "a/d", "a/d/c"}
	messages := tr.talk(120, users, topics)
	tr.append(message("a/b", 1, "no user")) // whose sender is its client
	messages = append(messages, message("a/b", 1, "no user"))
	for _, sender := range []string{"", "ann", "bob", "publisher", "ann's phone", "nobody"} {
		for _, filter := range []string{"", "a", "a/b", "a/+", "a/+/c", "a/#", "#", "+/d/#", "b", "+"} {
			s := inbox.Selection{Sender: sender, Filter: filter}
			want := which(messages, s)
			for _, max := range []int{4, unlimited} {
				got := tr.walk(tr.inboxOf("c"), inbox.Query{Selection: s, Max: max})
				same(tr, fmt.Sprintf("%+v", s), payloads(got), want)
				got = tr.walk(tr.inboxOf("c"), inbox.Query{Selection: s, Max: max, NewestFirst: true})
				same(tr, fmt.Sprintf("%+v from the newest", s), payloads(got), backwards(want))
			}
		}
	}
}

func pullChangesNothing(tr *trial) {
	tr.reader("c")
	want := numbers("m", 10)
	tr.publish("a", want...)
	for range 3 {
		same(tr, "a page", payloads(tr.page(tr.inboxOf("c"), inbox.Query{Max: 4}).Entries), want[:4])
		tr.unread("c", want...)
	}
	c := tr.connect("c", lasting)
	sameState(tr, c.State(), inbox.State{})
	c.expect(want[:5]...)
	tr.unread("c", want...)
	c.expect(want[5:]...)
	tr.unread("c", want...)
}

// What is on its way is unread until the state says that it is finished.
func pullWhileConnected(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	want := numbers("m", 12)
	tr.publish("a", want...)
	tr.unread("c", want...)
	read := c.take(8)
	tr.unread("c", want...)
	c.finish(read[0], read[1], read[5])
	c.save()
	left := append(slices.Clone(want[2:5]), want[6:]...)
	tr.unread("c", left...)
	tr.restart()
	tr.unread("c", left...)
	c = tr.connect("c", lasting)
	tr.unread("c", left...)
	c.finish(read...)
	c.Save(nil)
	tr.eventually("a lazy save is stored", func() bool {
		return len(tr.page(tr.inboxOf("c"), inbox.Query{}).Entries) == 4
	})
	tr.unread("c", want[8:]...)
}

func pullNoSession(tr *trial) {
	none := func(when string) {
		tr.Helper()
		_, err := tr.store.Pull(tr.ctx, "c", inbox.Query{Max: 1, MaxBytes: 1})
		_, err2 := tr.store.Summarize(tr.ctx, "c", inbox.SummaryQuery{Max: 1})
		_, err3 := tr.store.Acknowledge(tr.ctx, "c", inbox.Acknowledgement{})
		_, err4 := tr.store.SetMode(tr.ctx, "c", inbox.ModePull)
		for i, err := range []error{err, err2, err3, err4} {
			if !errors.Is(err, inbox.ErrNoSession) {
				tr.Fatalf("%s: call %d: %v, want ErrNoSession", when, i, err)
			}
		}
	}
	none("never opened")
	tr.reader("c")
	tr.publish("a", "m")
	tr.unread("c", "m")
	tr.connect("c", lasting).close(inbox.ExpiryAtOnce)
	none("ended")
	tr.connect("c", lasting)
	tr.none("c")
}

func pullEnds(tr *trial) {
	tr.reader("c")
	ctx, cancel := context.WithCancel(tr.ctx)
	cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: ctx, inbox.ErrClosed: tr.ctx} {
		if want == inbox.ErrClosed { //nolint:errorlint // a key of the map above
			tr.closeStore()
		}
		_, err1 := tr.store.Pull(ctx, "c", inbox.Query{Max: 1, MaxBytes: 1})
		_, err2 := tr.store.Summarize(ctx, "c", inbox.SummaryQuery{Max: 1})
		_, err3 := tr.store.Acknowledge(ctx, "c", inbox.Acknowledgement{})
		_, err4 := tr.store.SetMode(ctx, "c", inbox.ModePull)
		_, err5 := tr.store.History(ctx, inbox.Query{Max: 1, MaxBytes: 1})
		err6 := tr.store.Delete(ctx, inbox.MessageID{Sequence: 1}, "")
		_, err7 := tr.store.Erase(ctx, "ann")
		for i, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
			if !errors.Is(err, want) {
				tr.Fatalf("call %d: %v, want %v", i, err, want)
			}
		}
	}
}

func pullEveryField(tr *trial) {
	tr.reader("c")
	want := tr.appendRandom(20)
	tr.keepsFields(tr.inboxOf("c"), want)
}

// The grant of an entry is that of delivery, and fixed when it was stored.
func pullGrants(tr *trial) {
	c := tr.connect("c", lasting)
	c.add(inbox.Subscription{Filter: "a", QoS: 1, Identifier: 3},
		inbox.Subscription{Filter: "a/#", QoS: 2, Identifier: 9, RetainAsPublished: true, RetainHandling: 2},
		inbox.Subscription{Filter: "b", QoS: 0},
		inbox.Subscription{Filter: "own", QoS: 1, NoLocal: true})
	e := message("a", 2, "both")
	e.Retain = true
	own := message("own", 1, "own")
	own.Client = "c"
	tr.append(e, message("b", 1, "not kept"), own, message("a/b", 1, "one"), message("a/b", 0, "qos 0"))
	c.add(inbox.Subscription{Filter: "a/#", QoS: 1, RetainHandling: 2})
	for range 2 {
		all := tr.unread("c", "both", "one")
		sameGrant(tr, all[0], inbox.Grant{QoS: 2, Retain: true, Identifiers: []uint32{3, 9}})
		sameGrant(tr, all[1], inbox.Grant{QoS: 1, Identifiers: []uint32{9}})
		tr.restart()
	}
}

// Copies of retained messages have a place of their own, and the id of the message.
func pullRetained(tr *trial) {
	receipts := tr.append(retain("a/1", 1, "one"), retain("a/2", 1, "two"))
	tr.reader("c")
	tr.publish("a", "later")
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	got := payloads(all[:2])
	slices.Sort(got)
	same(tr, "copies", got, []string{"one", "two"})
	tr.unread("c", payloads(all)...)
	for _, e := range all[:2] {
		if want := receipts[map[string]int{"one": 0, "two": 1}[string(e.Envelope.Payload)]].ID; e.Envelope.ID != want {
			tr.Fatalf("copy of %s has id %v, want %v", e.Envelope.Payload, e.Envelope.ID, want)
		}
		if !e.Retain {
			tr.Fatalf("copy of %s is not marked as retained", e.Envelope.Payload)
		}
	}
	behind := tr.walk(tr.inboxOf("c"), inbox.Query{After: inbox.Bound{ID: all[0].Envelope.ID}})
	same(tr, "behind the first copy", positions(behind), positions(all[1:]))
	tr.acknowledges("c", 1, byIDs(all[0]))
	tr.acknowledges("c", 0, byIDs(all[0]))
	tr.unread("c", payloads(all[1:])...)
	tr.restart()
	tr.unread("c", payloads(all[1:])...)
}

// What was given up by leaving is not unread.
func pullGivenUp(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	c.subscribe("a/b", 1)
	tr.publish("a", "one", "two")
	read := c.take(1)
	c.save()
	tr.publish("a/b", "both")
	c.unsubscribe("a/#")
	tr.publish("a", "not any more")
	for range 2 {
		tr.unread("c", "one", "both") // what was sent has to be acknowledged
		tr.restart()
	}
	tr.acknowledges("c", 1, byIDs(read...))
	tr.unread("c", "both")
}

// What was sent by one filter is unread, though another would have given it up, and
// then the one is given up too.
func pullGivenUpOneByOne(tr *trial) {
	givenUpOneByOne(tr, func(*client, []inbox.Entry) {
		tr.unread("c", "sent")
		for range 2 {
			tr.restart()
			tr.unread("c", "sent")
			tr.pulling("c")
			tr.unread("c", "sent")
		}
		c := tr.startAgain("c", inbox.Bound{}, inbox.ModePush)
		tr.unread("c", "sent")
		c.only("sent")
		c.close(inbox.ExpiryAtOnce)
	})
}

// What is expired is not unread. Whoever asks is told what he has lost.
func pullExpired(tr *trial) {
	tr.reader("c")
	now := time.Now()
	var want []string
	for i := range 20 {
		e := said([]string{"ann", "bob"}[i%2], "a", fmt.Sprint(i))
		e.Time = now.Add(time.Duration(i-20) * time.Minute).UnixMilli()
		if e.Expiry = now.Add(time.Hour).UnixMilli(); i%5 == 2 || i%5 == 3 {
			e.Expiry = now.Add(-2 * time.Minute).UnixMilli()
		} else {
			want = append(want, fmt.Sprint(i))
		}
		tr.append(e)
	}
	for range 2 {
		tr.unread("c", want...)
		same(tr, "of ann", payloads(tr.walk(tr.inboxOf("c"), inbox.Query{Selection: inbox.Selection{Sender: "ann"}})),
			slices.DeleteFunc(slices.Clone(want), func(p string) bool { return (p[len(p)-1]-'0')%2 == 1 }))
		for _, q := range []inbox.Query{{Max: 3}, {Max: 1, NewestFirst: true}, {}} {
			var lost int64
			for page := range tr.pages(tr.inboxOf("c"), q) {
				for _, gap := range page.Gaps {
					lost += gap.Messages
					if gap.Reason != inbox.GapExpired || gap.From > gap.To || gap.From < now.Add(-21*time.Minute).UnixMilli() || gap.To > now.UnixMilli() {
						tr.Fatalf("lost: %+v", gap)
					}
				}
			}
			if lost != 8 {
				tr.Fatalf("%+v: %d messages were lost, want 8", q, lost)
			}
		}
		tr.restart()
	}
	tr.acknowledges("c", 6, inbox.Acknowledgement{Selection: inbox.Selection{Sender: "ann"}})
	tr.acknowledges("c", 6, inbox.Acknowledgement{})
	tr.none("c")
}

// Several filters that match, and streams of several filters: each message once.
func pullOverlap(tr *trial) {
	for i := range 40 { // so many that an engine may store what they have in common once
		c := tr.connect(inbox.Receiver(fmt.Sprint("fellow ", i)), lasting)
		c.subscribe("a/#", 1)
		c.subscribe("a/b", 1)
		c.close(lasting)
	}
	c := tr.connect("c", lasting)
	for _, f := range []string{"a/b", "a/#", "+/b", "#"} {
		c.subscribe(f, 1)
	}
	c.close(lasting)
	messages := tr.talk(50, []string{"ann", "bob"}, []string{"a", "a/b", "b", "c/b"})
	for range 2 {
		tr.unread("c", which(messages, inbox.Selection{})...)
		tr.unread("fellow 7", which(messages, inbox.Selection{Filter: "a/#"})...)
		tr.restart()
	}
	tr.acknowledges("c", len(which(messages, inbox.Selection{Sender: "ann"})), inbox.Acknowledgement{Selection: inbox.Selection{Sender: "ann"}})
	tr.unread("c", which(messages, inbox.Selection{Sender: "bob"})...)
	tr.unread("fellow 8", which(messages, inbox.Selection{Filter: "a/#"})...)
}

// With a rewind, what was acknowledged can be asked for, by whatever way it was.
func pullRead(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	messages := tr.talk(20, []string{"ann", "bob"}, []string{"a", "a/b"})
	all := tr.unread("c", which(messages, inbox.Selection{})...)
	c.finish(c.take(10)[:5]...)
	c.save()
	tr.acknowledges("c", 5, inbox.Acknowledgement{After: all[9].Position, Through: all[14].Position})
	c.close(lasting)
	for range 2 {
		tr.unread("c", payloads(slices.Concat(all[5:10], all[15:]))...)
		for _, s := range []inbox.Selection{{}, {Sender: "ann"}, {Filter: "a/b"}} {
			got := tr.walk(tr.inboxOf("c"), inbox.Query{Selection: s, Read: true, Max: 3})
			same(tr, fmt.Sprintf("%+v", s), payloads(got), which(messages, s))
			got = tr.walk(tr.inboxOf("c"), inbox.Query{Selection: s, Read: true, Max: 3, NewestFirst: true})
			same(tr, fmt.Sprintf("%+v from the newest", s), payloads(got), backwards(which(messages, s)))
		}
		tr.restart()
	}
}
