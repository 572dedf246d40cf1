package storetest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The last messages come first, oldest first, and then what the subscription brings.
func lastThenLive(tr *trial) {
	receipts := tr.publish("a", numbers("m", 10)...)
	c := tr.connect("c", lasting)
	c.add(inbox.Subscription{Filter: "a", QoS: 2, Identifier: 7, Last: 4})
	tr.publish("a", "live")
	all := tr.unread("c", "m-6", "m-7", "m-8", "m-9", "live")
	for i, e := range all[:4] {
		if e.Envelope.ID != receipts[6+i].ID {
			tr.Fatalf("%s has id %v, want %v", e.Envelope.Payload, e.Envelope.ID, receipts[6+i].ID)
		}
		sameGrant(tr, e, inbox.Grant{QoS: 1, Identifiers: []uint32{7}})
	}
	subs, err := c.Subscriptions(tr.ctx)
	if err != nil {
		tr.Fatalf("subscriptions: %v", err)
	}
	same(tr, "what is kept", withoutHandling(subs), []inbox.Subscription{{Filter: "a", QoS: 2, Identifier: 7}})
	tr.restart()
	c = tr.connect("c", lasting)
	same(tr, "places", positions(c.only("m-6", "m-7", "m-8", "m-9", "live")), positions(all))
	tr.acknowledges("c", 2, byIDs(all[1], all[4]))
	tr.unread("c", "m-6", "m-8", "m-9")
	tr.remembers(inbox.Selection{}, append(numbers("m", 10), "live")...)
}

func lastOfSeveral(tr *trial) {
	messages := tr.talk(60, []string{"ann", "bob"}, []string{"chat/a", "chat/b", "chat/c", "other"})
	for i, filter := range []string{"chat/a", "chat/+", "#", "+/b", "other", "none"} {
		for _, n := range []int{0, 1, 7, 100} {
			r := inbox.Receiver(fmt.Sprint("c", i, n))
			c := tr.connect(r, lasting)
			c.add(inbox.Subscription{Filter: filter, QoS: 1, Last: n})
			want := which(messages, inbox.Selection{Filter: filter})
			if filter == "other" || filter == "none" {
				want = nil // not kept
			}
			want = slices.DeleteFunc(want, func(p string) bool {
				return !slices.ContainsFunc(messages, func(e *inbox.Envelope) bool { return string(e.Payload) == p && covers("chat/#", e.Topic) })
			})
			tr.unread(r, want[max(len(want)-n, 0):]...)
			c.only(want[max(len(want)-n, 0):]...)
		}
	}
}

// A message that is unread there already does not come again.
func lastNotTwice(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", numbers("m", 6)...)
	all := tr.unread("c", numbers("m", 6)...)
	tr.acknowledges("c", 2, byIDs(all[2], all[4]))
	c.add(inbox.Subscription{Filter: "a", QoS: 1, Last: 4, RetainHandling: 2})
	tr.unread("c", "m-0", "m-1", "m-3", "m-5", "m-2", "m-4")
	c.add(inbox.Subscription{Filter: "a", QoS: 1, Last: 4, RetainHandling: 2})
	c.add(inbox.Subscription{Filter: "#", QoS: 1, Last: 3, RetainHandling: 2})
	tr.publish("a", "live")
	c.only("m-0", "m-1", "m-3", "m-5", "m-2", "m-4", "live")
}

// No message is missing between the last ones and the live ones, and none comes twice,
// while others publish.
func lastWhileOthersPublish(tr *trial) {
	for round := range size(12, 4) {
		topic := fmt.Sprint("a/", round)
		const n = 120
		publishers := []*publisher{tr.publisher(), tr.publisher()}
		var wg sync.WaitGroup
		for i, p := range publishers {
			wg.Go(func() {
				for j := range n {
					p.append(said(fmt.Sprint("user ", i), topic, fmt.Sprint(i, "-", j)))
				}
				p.wait()
			})
		}
		tr.eventually("some are stored", func() bool {
			page, err := tr.store.History(tr.ctx, inbox.Query{Selection: inbox.Selection{Filter: topic}, Max: 50, MaxBytes: unlimited})
			return err == nil && len(page.Entries) >= 5+round
		})
		r := inbox.Receiver(fmt.Sprint("c", round))
		c := tr.connect(r, lasting)
		c.add(inbox.Subscription{Filter: topic, QoS: 1, Last: 10})
		wg.Wait()
		all := tr.walk(tr.history, inbox.Query{Selection: inbox.Selection{Filter: topic}})
		got := c.rest()
		if len(got) < min(10, 5+round) {
			tr.Fatalf("%d messages came", len(got))
		}
		var have, want []inbox.MessageID
		for _, e := range got {
			have = append(have, e.Envelope.ID)
		}
		for _, e := range all[len(all)-len(got):] {
			want = append(want, e.Envelope.ID)
		}
		same(tr, "the last and the live ones", have, want)
	}
}

func lastGrants(tr *trial) {
	own := said("ann", "a", "own")
	own.Client = "c"
	flagged := message("a", 2, "flagged")
	flagged.Retain = true
	tr.append(own, message("a", 2, "m"), flagged)
	retained := message("a", 1, "")
	retained.Retain = true
	tr.append(retained) // nothing is retained any more

	c := tr.connect("c", lasting)
	c.add(inbox.Subscription{Filter: "a", QoS: 2, NoLocal: true, RetainAsPublished: true, Last: 10})
	all := tr.unread("c", "m", "flagged", "")
	sameGrant(tr, all[0], inbox.Grant{QoS: 2})
	sameGrant(tr, all[1], inbox.Grant{QoS: 2, Retain: true})
	sameGrant(tr, all[2], inbox.Grant{QoS: 1, Retain: true})

	live := tr.connect("live", lasting)
	live.add(inbox.Subscription{Filter: "a", QoS: 0, Last: 2})
	same(tr, "at QoS 0", payloads(live.heard(2)), []string{"flagged", ""})
	tr.none("live")
	atOnce := tr.connect("at once", inbox.ExpiryAtOnce)
	atOnce.add(inbox.Subscription{Filter: "a", QoS: 1, Last: 3})
	atOnce.expect("m", "flagged", "")
}

// A mark of what was deleted does not come; a member of a shared subscription gets nothing.
func lastLeavesOut(tr *trial) {
	tr.publish("a", numbers("m", 6)...)
	all := tr.walk(tr.history, inbox.Query{})
	tr.delete(all[4], "")
	c := tr.connect("c", lasting)
	c.add(inbox.Subscription{Filter: "$share/g/a", QoS: 1, Last: 3})
	tr.none("c")
	c.add(inbox.Subscription{Filter: "a", QoS: 1, Last: 3})
	tr.unread("c", "m-2", "m-3", "m-5")
	tr.delete(all[3], "")
	tr.unread("c", "m-2", "m-5")
	c.only("m-2", "m-5")
}

// Leaving gives up what Last has brought as well.
func lastGivenUp(tr *trial) {
	tr.publish("a", numbers("m", 4)...)
	c := tr.connect("c", lasting)
	c.add(inbox.Subscription{Filter: "a", QoS: 1, Last: 3})
	c.expect("m-1")
	c.save()
	c.unsubscribe("a")
	tr.unread("c", "m-1")
	c.only()
}

// In pull mode the last messages are delivered, for they were asked for now.
func lastInPullMode(tr *trial) {
	tr.publish("a", numbers("m", 4)...)
	c := tr.pulling("c")
	c.add(inbox.Subscription{Filter: "a", QoS: 1, Last: 2})
	c.finish(c.only("m-2", "m-3")...)
	c.save()
	tr.none("c")
}
