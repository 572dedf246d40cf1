package storetest

import (
	"fmt"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A message that is on its way is read all the same: it is not sent again, and its
// PUBACK changes nothing.
func acknowledgeOnItsWay(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	tr.publish("a", numbers("m", 12)...)
	read := c.take(8)
	c.save()
	tr.acknowledges("c", 3, byIDs(read[1], read[2], read[6]))
	tr.acknowledges("c", 2, byIDs(read[0], read[1], read[7]))
	tr.unread("c", "m-3", "m-4", "m-5", "m-8", "m-9", "m-10", "m-11")
	same(tr, "read again", payloads(c.read(positions(read)...)), []string{"m-3", "m-4", "m-5"})
	c.finish(read[2], read[3]) // one PUBACK after the other door, one before
	c.save()
	tr.acknowledges("c", 0, byIDs(read[2], read[3]))
	for range 2 {
		tr.unread("c", "m-4", "m-5", "m-8", "m-9", "m-10", "m-11")
		tr.restart()
	}
	c = tr.connect("c", lasting)
	same(tr, "to be sent again", payloads(c.read(open(c)...)), []string{"m-4", "m-5"})
	c.finish(read...)
	c.save()
	c.only("m-8", "m-9", "m-10", "m-11")
}

// Next passes over what was acknowledged before it came to it, wherever it had
// got it from.
func acknowledgeAhead(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	tr.publish("a", numbers("m", 6)...)
	c.expect("m-0")
	tr.publish("a", numbers("n", 6)...) // it has caught up, or was about to
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	tr.acknowledges("c", 4, byIDs(all[1], all[3], all[7], all[11]))
	c.only("m-2", "m-4", "m-5", "n-0", "n-2", "n-3", "n-4")
	tr.acknowledges("c", 0, byIDs(all[1]))
	tr.acknowledges("c", 8, inbox.Acknowledgement{Selection: inbox.Selection{Filter: "a"}})
	c.save()
	tr.none("c")

	tr.publish("a", "one", "two")
	tr.acknowledges("c", 2, inbox.Acknowledgement{})
	tr.publish("a", "three")
	c.only("three")
}

// Case 141: half is acknowledged by one door and half by the other. Both have given each message
// the same id and place, and neither has it after that.
func acknowledgeBothDoors(tr *trial) {
	tr.reader("c")
	messages := tr.talk(40, []string{"ann", "bob"}, []string{"a", "a/b"})
	c := tr.connect("c", lasting)
	delivered := c.expect(which(messages, inbox.Selection{})...)
	pulled := tr.unread("c", which(messages, inbox.Selection{})...)
	same(tr, "places", positions(delivered), positions(pulled))
	for i := range delivered {
		if delivered[i].Envelope.ID != pulled[i].Envelope.ID {
			tr.Fatalf("message %d has ids %v and %v", i, delivered[i].Envelope.ID, pulled[i].Envelope.ID)
		}
	}
	for i := 0; i < 40; i += 4 {
		c.finish(delivered[i : i+2]...)
		c.Save(nil)
		tr.acknowledge("c", byIDs(pulled[i+1:i+4]...))
	}
	c.save()
	tr.none("c")
	tr.restart()
	tr.none("c")
	c = tr.connect("c", lasting)
	same(tr, "to be sent again", payloads(c.read(open(c)...)), nil)
	c.only()
}

// Messages are stored, delivered, pulled and acknowledged by both doors, all at once. In the
// end nothing is unread, and whoever read had nothing twice.
func acknowledgeUnderLoad(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	n := size(1500, 300)
	stored := tr.main.appendMeanwhile(n, n, func(i int) *inbox.Envelope {
		return said([]string{"ann", "bob"}[i%2], []string{"a", "a/b"}[i%3%2], fmt.Sprint(i))
	})
	var wg sync.WaitGroup
	delivered := map[inbox.Position]bool{}
	wg.Go(func() { // one door; the last message is its own
		for {
			page, err := c.next(20, 1<<20)
			if err != nil {
				tr.Errorf("next: %v", err)
				return
			}
			for _, e := range page {
				if delivered[e.Position] {
					tr.Errorf("%s was delivered twice", e.Envelope.Payload)
				}
				delivered[e.Position] = true
			}
			c.finish(page...)
			c.Save(nil)
			if string(page[len(page)-1].Envelope.Payload) == "the end" {
				return
			}
		}
	})
	wg.Go(func() { // the other
		q := inbox.Query{Max: 15, MaxBytes: unlimited}
		for round := 0; ; round++ {
			q.NewestFirst = round%3 == 0
			over := false
			select {
			case <-stored:
				over = true
			default:
			}
			page, err := tr.store.Pull(tr.ctx, "c", q)
			if err == nil {
				err = checkPage(q, page)
			}
			if err != nil {
				tr.Errorf("pull: %v", err)
				return
			}
			a := byIDs(page.Entries...)
			if round%2 == 0 {
				a = inbox.Acknowledgement{Selection: inbox.Selection{Sender: "ann"}}
			}
			if len(a.IDs) > 0 || round%2 == 0 {
				if got, err := tr.store.Acknowledge(tr.ctx, "c", a); err != nil || len(a.IDs) > 0 && got > len(a.IDs) {
					tr.Errorf("acknowledge: %d, %v", got, err)
					return
				}
			}
			if over && len(page.Entries) == 0 {
				break
			}
		}
		tr.main.append(message("a", 1, "the end"))
	})
	wg.Wait()
	tr.main.stored(0)
	c.save()
	tr.none("c")
	tr.restart()
	tr.none("c")
	tr.connect("c", lasting).only()
}
