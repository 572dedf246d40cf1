package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// crowd has so many members in a/# that an engine may store what they get once.
func (tr *trial) crowd() {
	tr.Helper()
	for i := range 40 {
		tr.reader(inbox.Receiver(fmt.Sprint("fellow ", i)))
	}
}

// Case 151: who joins has what comes from then on, by every way to the inbox. History has
// everything, and who may read that is for others to say.
func groupJoin(tr *trial) {
	for _, crowd := range []bool{false, true} {
		if crowd {
			tr.crowd()
		}
		r := inbox.Receiver(fmt.Sprint("c", crowd))
		before := tr.publish("a/g", numbers("before", 10)...)
		tr.reader(r)
		want := numbers("m", 10)
		tr.publish("a/g", want...)
		for range 2 {
			all := tr.unread(r, want...)
			for _, q := range []inbox.Query{
				{After: inbox.Bound{Position: 1}}, {After: inbox.Bound{ID: before[0].ID}}, {After: inbox.Bound{Time: 1}}, {Read: true},
				{Selection: inbox.Selection{Filter: "a/g"}, After: inbox.Bound{ID: before[3].ID}},
			} {
				same(tr, fmt.Sprintf("%+v", q), payloads(tr.walk(tr.inboxOf(r), q)), want)
			}
			same(tr, "before", payloads(tr.walk(tr.inboxOf(r), inbox.Query{Before: inbox.Bound{Position: all[0].Position}, NewestFirst: true})), nil)
			for _, id := range before { // guessed
				tr.neverHad(r, id.ID)
			}
			tr.restart()
		}
		c := tr.startAgain(r, inbox.Bound{}, inbox.ModeKept)
		tr.unread(r, want...)
		c.only(want...)
		c.close(inbox.ExpiryAtOnce)
	}
	if n := len(tr.walk(tr.history, inbox.Query{Selection: inbox.Selection{Filter: "a/g"}})); n != 40 {
		tr.Fatalf("%d messages in history, want 40", n)
	}
}

// neverHad acknowledges the id of a message that did not come into an inbox: an
// error, or nothing.
func (tr *trial) neverHad(r inbox.Receiver, id inbox.MessageID) {
	tr.Helper()
	n, err := tr.store.Acknowledge(tr.ctx, r, inbox.Acknowledgement{IDs: []inbox.MessageID{id}})
	if n != 0 || err != nil && !errors.Is(err, inbox.ErrUnknownID) {
		tr.Fatalf("%.40q acknowledges what it never had: %d, %v", r, n, err)
	}
}

// Case 152: who leaves loses what was not read, and keeps what was handed out; who joins again
// begins anew. Walks go over the gap.
func groupLeaveAndJoin(tr *trial) {
	for _, crowd := range []bool{false, true} {
		if crowd {
			tr.crowd()
		}
		for _, handedOut := range []bool{false, true} {
			r := inbox.Receiver(fmt.Sprint("c", crowd, handedOut))
			tr.reader(r)
			tr.publish("a/g", numbers("in", 5)...)
			want := numbers("again", 5)
			c := tr.connect(r, lasting)
			if handedOut {
				c.take(5)
				c.save()
				want = append(numbers("in", 5), want...)
			}
			c.close(lasting)
			tr.membership(r, func(in inbox.Inbox) error {
				_, err := in.Unsubscribe(tr.ctx, "a/#")
				return err
			})
			tr.publish("a/g", numbers("out", 5)...)
			tr.membership(r, func(in inbox.Inbox) error {
				_, err := in.Subscribe(tr.ctx, inbox.Subscription{Filter: "a/#", QoS: 1, RetainHandling: 2})
				return err
			})
			tr.publish("a/g", numbers("again", 5)...)
			for range 2 {
				tr.unread(r, want...)
				same(tr, "in one topic", payloads(tr.walk(tr.inboxOf(r), inbox.Query{Selection: inbox.Selection{Filter: "a/g"}, Max: 2})), want)
				tr.restart()
			}
			tr.acknowledges(r, len(want), inbox.Acknowledgement{Selection: inbox.Selection{Filter: "a/g"}})
			tr.none(r)
		}
	}
}

// membership changes what a receiver who is away is subscribed to.
func (tr *trial) membership(r inbox.Receiver, change func(inbox.Inbox) error) {
	tr.Helper()
	in, _, err := tr.store.Open(tr.ctx, r, inbox.OpenOptions{Resume: true, Expiry: lasting})
	if err == nil {
		err = change(in)
	}
	if err == nil {
		err = in.Close(tr.ctx, inbox.Ending{Expiry: lasting})
	}
	if err != nil {
		tr.Fatalf("changing the subscriptions of %s: %v", r, err)
	}
}

// Case 153: a member that is removed while away gets nothing of later, and of what
// came before what another subscription brought.
func groupRemoved(tr *trial) {
	for _, crowd := range []bool{false, true} {
		if crowd {
			tr.crowd()
		}
		r := inbox.Receiver(fmt.Sprint("c", crowd))
		tr.reader(r)
		tr.membership(r, func(in inbox.Inbox) error {
			_, err := in.Subscribe(tr.ctx, inbox.Subscription{Filter: "a/other", QoS: 1})
			return err
		})
		tr.publish("a/g", numbers("before", 10)...)
		tr.publish("a/other", "kept")
		tr.membership(r, func(in inbox.Inbox) error {
			_, err := in.Unsubscribe(tr.ctx, "a/#")
			return err
		})
		tr.publish("a/g", numbers("after", 10)...)
		tr.publish("a/other", "later")
		for range 2 {
			tr.unread(r, "kept", "later")
			tr.restart()
		}
		tr.connect(r, lasting).only("kept", "later")
	}
}

// A crowd comes and goes, so that an engine stores things now this way and now that. Each
// member has what came while it was one.
func groupGrowsAndShrinks(tr *trial) {
	tr.reader("c")
	var messages []*inbox.Envelope
	for range 2 {
		messages = append(messages, tr.talk(10, []string{"ann", "bob"}, []string{"a", "a/b"})...)
		tr.crowd()
		messages = append(messages, tr.talk(10, []string{"ann", "bob"}, []string{"a", "a/b"})...)
		for i := range 40 {
			tr.connect(inbox.Receiver(fmt.Sprint("fellow ", i)), lasting).close(inbox.ExpiryAtOnce)
		}
	}
	tr.unread("c", which(messages, inbox.Selection{})...)
	tr.restart()
	all := tr.unread("c", which(messages, inbox.Selection{})...)
	for _, s := range []inbox.Selection{{Sender: "ann"}, {Filter: "a/b"}} {
		same(tr, fmt.Sprintf("%+v", s), payloads(tr.walk(tr.inboxOf("c"), inbox.Query{Selection: s, Max: 3})), which(messages, s))
	}
	tr.acknowledges("c", 20, through(all[19]))
	tr.acknowledges("c", 10, inbox.Acknowledgement{Selection: inbox.Selection{Sender: "ann"}})
	left := slices.DeleteFunc(all[20:], func(e inbox.Entry) bool { return e.Envelope.Sender() == "ann" })
	same(tr, "delivered", positions(tr.connect("c", lasting).only(payloads(left)...)), positions(left))
}
