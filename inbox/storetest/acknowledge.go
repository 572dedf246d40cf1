package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func acknowledgeIDs(tr *trial) {
	tr.reader("c")
	tr.publish("a", numbers("m", 10)...)
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	tr.acknowledges("c", 3, byIDs(all[1], all[7], all[4]))
	tr.acknowledges("c", 0, byIDs(all[1], all[7], all[4]))
	tr.acknowledges("c", 1, byIDs(all[4], all[0], all[0], all[1]))
	tr.acknowledges("c", 0, inbox.Acknowledgement{IDs: byIDs(all[0]).IDs, Selection: inbox.Selection{Sender: "nobody"}})
	for range 2 {
		tr.unread("c", "m-2", "m-3", "m-5", "m-6", "m-8", "m-9")
		tr.restart()
	}
	c := tr.connect("c", lasting)
	tr.publish("a", "later")
	c.only("m-2", "m-3", "m-5", "m-6", "m-8", "m-9", "later")
}

func acknowledgeUnknownIDs(tr *trial) {
	tr.reader("c")
	receipts := tr.publish("a", numbers("m", 3)...)
	tr.unknownIDs(receipts[0].ID, func(id inbox.MessageID) error {
		_, err := tr.store.Acknowledge(tr.ctx, "c", inbox.Acknowledgement{IDs: []inbox.MessageID{receipts[0].ID, id, receipts[1].ID}})
		tr.unread("c", "m-0", "m-1", "m-2") // all or nothing
		return err
	})
	// One that came to others only may be taken for one that was read.
	other := tr.publish("b", "other")[0].ID
	tr.neverHad("c", other)
	tr.unread("c", "m-0", "m-1", "m-2")
}

func acknowledgeBounds(tr *trial) {
	tr.reader("c")
	want := numbers("m", 20)
	tr.publish("a", want...)
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	tr.acknowledges("c", 3, inbox.Acknowledgement{After: all[4].Position, Through: all[7].Position})
	tr.acknowledges("c", 0, inbox.Acknowledgement{After: all[5].Position, Through: all[5].Position})
	tr.acknowledges("c", 0, inbox.Acknowledgement{After: all[9].Position, Through: all[3].Position})
	tr.acknowledges("c", 5, through(all[7]))
	tr.unread("c", want[8:]...)
	tr.acknowledges("c", 2, inbox.Acknowledgement{After: all[17].Position})
	tr.acknowledges("c", 5, inbox.Acknowledgement{After: all[10].Position, Through: all[15].Position})
	tr.restart()
	tr.unread("c", "m-8", "m-9", "m-10", "m-16", "m-17")
	tr.publish("a", "later")
	tr.acknowledges("c", 6, inbox.Acknowledgement{})
	tr.none("c")
	tr.publish("a", "last")
	tr.unread("c", "last")
}

// Through the id of a message is to where it is in the inbox, or was stored if it is not
// there.
func acknowledgeThroughIDs(tr *trial) {
	retained := message("r", 1, "retained")
	retained.Retain = true
	old := tr.append(retained)[0].ID
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		r := inbox.Receiver(fmt.Sprint("c", expiry))
		c := tr.connect(r, expiry)
		c.subscribe("a", 1)
		first := tr.publish("a", numbers("m", 4)...)
		c.subscribe("r", 1) // the copy is behind them
		second := tr.publish("a", numbers("n", 3)...)
		elsewhere := tr.publish("b", "elsewhere")[0].ID
		tr.publish("a", "o-0", "o-1")
		through := func(want int, id inbox.MessageID) {
			tr.Helper()
			tr.acknowledges(r, want, inbox.Acknowledgement{ThroughID: id})
		}
		tr.unknownIDs(old, func(id inbox.MessageID) error {
			_, err := tr.store.Acknowledge(tr.ctx, r, inbox.Acknowledgement{ThroughID: id})
			return err
		})
		tr.unread(r, "m-0", "m-1", "m-2", "m-3", "retained", "n-0", "n-1", "n-2", "o-0", "o-1")
		through(2, first[1].ID)
		through(0, first[0].ID)
		tr.acknowledges(r, 0, inbox.Acknowledgement{ThroughID: second[2].ID, Selection: inbox.Selection{Filter: "b"}})
		tr.acknowledges(r, 1, inbox.Acknowledgement{ThroughID: second[2].ID, Selection: inbox.Selection{Filter: "r"}})
		tr.unread(r, "m-2", "m-3", "n-0", "n-1", "n-2", "o-0", "o-1")
		c.close(inbox.ExpiryAtOnce)

		c = tr.connect(r, expiry)
		c.subscribe("a", 1)
		tr.publish("a", numbers("p", 2)...)
		c.subscribe("r", 1)
		tr.publish("a", "q")
		through(3, old)
		tr.unread(r, "q")
		through(0, elsewhere)
		tr.unread(r, "q")
		c.close(inbox.ExpiryAtOnce)
	}
}

// What is acknowledged is what there was: nothing that comes later, however far the
// acknowledgement said to go.
func acknowledgeBeyond(tr *trial) {
	tr.reader("c")
	tr.publish("a", "one", "two")
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	for i, far := range []inbox.Position{all[1].Position + 1, all[1].Position + 1000, 1<<63 + 5, 1<<64 - 1} {
		tr.acknowledges("c", min(2, len(all)), inbox.Acknowledgement{Through: far})
		tr.acknowledges("c", 0, inbox.Acknowledgement{After: far})
		later := fmt.Sprint("later ", i)
		tr.publish("a", later)
		tr.unread("c", later)
		if i%2 == 1 {
			tr.restart()
			tr.unread("c", later)
		}
		all = all[:1]
	}
}

func acknowledgeSelection(tr *trial) {
	tr.reader("c")
	messages := tr.talk(60, []string{"ann", "bob", "eve"}, []string{"a", "a/b", "a/c/d"})
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	for _, a := range []inbox.Acknowledgement{
		{Selection: inbox.Selection{Sender: "ann", Filter: "a/b"}},
		{Selection: inbox.Selection{Sender: "nobody"}},
		{Selection: inbox.Selection{Filter: "b/#"}},
		{Selection: inbox.Selection{Sender: "bob"}, Through: all[20].Position},
		{Selection: inbox.Selection{Filter: "a/+/#"}, After: all[30].Position, Through: all[50].Position},
		{Selection: inbox.Selection{Sender: "bob"}, Through: all[10].Position},
		{Selection: inbox.Selection{Sender: "eve"}},
		{Selection: inbox.Selection{Filter: "a/c/#"}},
	} {
		left := slices.DeleteFunc(slices.Clone(messages), func(e *inbox.Envelope) bool {
			at := all[slices.IndexFunc(all, func(other inbox.Entry) bool { return other.Envelope.ID == e.ID })].Position
			return selected(a.Selection, e) && at > a.After && (a.Through == 0 || at <= a.Through)
		})
		tr.acknowledges("c", len(messages)-len(left), a)
		tr.acknowledges("c", 0, a)
		messages = left
		tr.unread("c", which(messages, inbox.Selection{})...)
		tr.restart()
		tr.unread("c", which(messages, inbox.Selection{})...)
	}
	later := tr.talk(12, []string{"ann", "bob", "eve"}, []string{"a", "a/b", "a/c/d"})
	tr.unread("c", append(which(messages, inbox.Selection{}), which(later, inbox.Selection{})...)...)
}

// Asking for the next page acknowledges the page before: N pages are N+1 requests, and
// in the end nothing is left but what came meanwhile.
func acknowledgePageByPage(tr *trial) {
	for _, newestFirst := range []bool{false, true} {
		for _, s := range []inbox.Selection{{}, {Sender: "ann"}, {Filter: "a/b"}} {
			r := inbox.Receiver(fmt.Sprint("c", newestFirst, s))
			tr.reader(r)
			messages := tr.talk(90, []string{"ann", "bob"}, []string{"a", "a/b"})
			var got, meanwhile []string
			for page := range tr.pages(tr.inboxOf(r), inbox.Query{Selection: s, NewestFirst: newestFirst, Max: 10}) {
				if len(page.Entries) == 0 {
					break
				}
				first, last := page.Entries[0].Position, page.Entries[len(page.Entries)-1].Position
				if !newestFirst {
					first, last = last, first
				}
				tr.acknowledges(r, len(page.Entries), inbox.Acknowledgement{Selection: s, After: last - 1, Through: first})
				got = append(got, payloads(page.Entries)...)
				if newestFirst && page.More {
					meanwhile = append(meanwhile, fmt.Sprint("meanwhile ", len(got)))
					tr.append(said("ann", "a/b", meanwhile[len(meanwhile)-1]))
				}
			}
			want := which(messages, s)
			if newestFirst {
				slices.Reverse(want)
			}
			same(tr, "the pages", got, want)
			left := slices.DeleteFunc(which(messages, inbox.Selection{}), func(p string) bool { return slices.Contains(want, p) })
			tr.unread(r, append(left, meanwhile...)...)
			tr.connect(r, lasting).close(inbox.ExpiryAtOnce)
		}
	}
}

// Case 148: a mark that comes late, from before, takes nothing back.
func acknowledgeOlder(tr *trial) {
	tr.reader("c")
	want := numbers("m", 120)
	tr.publish("a", want...)
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	tr.acknowledges("c", 100, through(all[99]))
	tr.acknowledges("c", 0, through(all[59]))
	tr.acknowledges("c", 0, byIDs(all[3]))
	tr.restart()
	tr.unread("c", want[100:]...)
	tr.acknowledges("c", 0, through(all[79]))
	c := tr.connect("c", lasting)
	c.only(want[100:]...)
}

// Case 146: unread is what was stored less what is read, recalled or expired, whatever
// order and however often anything is said.
func acknowledgeAnyOrder(tr *trial) {
	random := newRandom(tr)
	var soon time.Time
	var all []inbox.Entry
	for wait := 300 * time.Millisecond; len(all) < 100; wait *= 3 { // on a busy machine they may expire too soon
		c := tr.connectFresh("c", lasting)
		c.subscribe("a", 1)
		messages := talk(100, []string{"ann", "bob"}, []string{"a"})
		soon = time.Now().Add(wait)
		for i := 7; i < 100; i += 20 {
			messages[i].Expiry = soon.UnixMilli()
		}
		tr.append(messages...)
		all = c.takeUntil(soon, 100)
	}
	gone := map[inbox.Position]bool{}
	left := func() (out []string) {
		for _, e := range all {
			if !gone[e.Position] {
				out = append(out, string(e.Envelope.Payload))
			}
		}
		return out
	}
	read := func(a inbox.Acknowledgement) {
		tr.Helper()
		n := 0
		for _, e := range all {
			meant := e.Position <= a.Through && selected(a.Selection, e.Envelope)
			if len(a.IDs) > 0 {
				meant = slices.Contains(a.IDs, e.Envelope.ID)
			}
			if meant && !gone[e.Position] {
				gone[e.Position] = true
				n++
			}
		}
		for _, want := range []int{n, 0} { // the same mark comes twice
			tr.acknowledges("c", want, a)
		}
	}
	tr.eventually("some expire", func() bool { return time.Now().After(soon) })
	for i := range all {
		if i%20 == 7 {
			gone[all[i].Position] = true
		}
	}
	tr.unread("c", left()...)
	for _, e := range all[40:50] {
		if !gone[e.Position] && e.Envelope.Sender() == "bob" {
			if err := tr.store.Delete(tr.ctx, e.Envelope.ID, "bob"); err != nil {
				tr.Fatalf("delete: %v", err)
			}
			gone[e.Position] = true
		}
	}
	tr.unread("c", left()...)
	for round := range 12 {
		e := all[random.IntN(len(all))]
		switch round % 4 {
		case 0:
			read(byIDs(e, all[random.IntN(len(all))]))
		case 1:
			read(inbox.Acknowledgement{Through: e.Position, Selection: inbox.Selection{Sender: "bob"}})
		case 2:
			read(through(all[random.IntN(20)+round*4]))
		case 3:
			tr.restart()
		}
		tr.unread("c", left()...)
	}
	read(inbox.Acknowledgement{Through: all[99].Position + 1<<30})
	tr.none("c")
}

// Case 149: what one device has read, the others still have.
func acknowledgeApart(tr *trial) {
	devices := []inbox.Receiver{"phone", "web", "tablet"}
	for i := range 40 {
		devices = append(devices, inbox.Receiver(fmt.Sprint("device ", i)))
	}
	for _, r := range devices {
		tr.reader(r)
	}
	want := numbers("m", 50)
	tr.publish("a", want...)
	all := tr.walk(tr.inboxOf("phone"), inbox.Query{})
	tr.acknowledges("phone", 50, through(all[49]))
	web := tr.walk(tr.inboxOf("web"), inbox.Query{})
	tr.acknowledges("web", 20, through(web[19]))
	for i, r := range devices[3:] {
		e := tr.walk(tr.inboxOf(r), inbox.Query{})[i]
		tr.acknowledges(r, 1, byIDs(e))
	}
	for range 2 {
		tr.none("phone")
		tr.unread("web", want[20:]...)
		tr.unread("tablet", want...)
		for i, r := range devices[3:13] {
			tr.unread(r, slices.Delete(slices.Clone(want), i, i+1)...)
		}
		tr.restart()
	}
	tr.connect("web", lasting).only(want[20:]...)
	tr.connect("tablet", lasting).only(want...)
}

// An acknowledgement is of one life of a session.
func acknowledgeThenFresh(tr *trial) {
	tr.reader("c")
	tr.publish("a", numbers("m", 5)...)
	tr.acknowledges("c", 5, inbox.Acknowledgement{})
	tr.connectFresh("c", lasting).subscribe("a/#", 1)
	tr.publish("a", "new")
	tr.unread("c", "new")
	tr.restart()
	tr.unread("c", "new")
	tr.connect("c", lasting).only("new")
}

// Many holes, from both doors, over restarts.
func acknowledgeHoles(tr *trial) {
	random := newRandom(tr)
	tr.reader("c")
	n := size(160, 80)
	tr.publish("a", numbers("m", n)...)
	left := tr.walk(tr.inboxOf("c"), inbox.Query{})
	for len(left) > 10 {
		for range 20 {
			i := random.IntN(len(left))
			tr.acknowledges("c", 1, byIDs(left[i]))
			left = slices.Delete(left, i, i+1)
			if len(left) == 10 {
				break
			}
		}
		tr.unread("c", payloads(left)...)
		if random.IntN(4) == 0 {
			tr.restart()
		}
		if random.IntN(3) == 0 {
			c := tr.connect("c", lasting)
			read := c.take(5)
			same(tr, "delivered", positions(read), positions(left[:5]))
			c.finish(read[1:4]...)
			c.close(lasting)
			left = slices.Delete(left, 1, 4)
			c = tr.connect("c", lasting) // who comes again finishes what it was sent
			c.finish(left[0], left[1])
			c.close(lasting)
			left = left[2:]
		}
	}
	tr.connect("c", lasting).only(payloads(left)...)
}
