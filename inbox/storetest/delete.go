package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func (tr *trial) delete(e inbox.Entry, by string) {
	tr.Helper()
	if err := tr.store.Delete(tr.ctx, e.Envelope.ID, by); err != nil {
		tr.Fatalf("%q deletes %s: %v", by, e.Envelope.Payload, err)
	}
}

// isMark fails unless nothing is left of a message but that there was one.
func (tr *trial) isMark(got, was *inbox.Envelope, nameless bool) {
	tr.Helper()
	want := inbox.Envelope{ID: was.ID, Time: was.Time, Topic: was.Topic, Client: was.Client, User: was.User, Deleted: true}
	if nameless {
		want.Client, want.User = "", ""
	}
	mark := *got
	mark.QoS, mark.Retain, mark.Expiry, mark.PayloadFormat = 0, false, 0, 0 // of these nothing is said
	sameEnvelope(tr, &mark, &want)
	if !got.Deleted {
		tr.Fatalf("%v is not marked as deleted", got.ID)
	}
}

// A message is deleted by who sent it or by an operator, from history and from
// all inboxes where it is unread. What is left is a mark.
func deleteOne(tr *trial) {
	tr.reader("c")
	for i := range 40 {
		tr.reader(inbox.Receiver(fmt.Sprint("fellow ", i)))
	}
	messages := tr.talk(12, []string{"ann", "bob"}, []string{"a", "a/b"})
	rich := said("ann", "a", "rich")
	rich.ContentType, rich.ResponseTopic, rich.CorrelationData = "text", "a/answer", []byte("7")
	rich.UserProperties = []inbox.UserProperty{{Key: "k", Value: "v"}}
	tr.append(rich)
	messages = append(messages, rich)
	all := tr.walk(tr.history, inbox.Query{})
	was := make([]inbox.Envelope, len(all))
	for i, e := range all {
		was[i] = *e.Envelope
	}
	tr.acknowledges("c", 1, byIDs(all[0])) // it was read, and is deleted from history

	for _, by := range []string{"bob", "ann's phone", "nobody"} {
		if err := tr.store.Delete(tr.ctx, all[2].Envelope.ID, by); !errors.Is(err, inbox.ErrNotSender) {
			tr.Fatalf("%s deletes what ann has sent: %v, want ErrNotSender", by, err)
		}
	}
	gone := map[int]string{0: "ann", 3: "bob", 5: "", 12: "ann"}
	for i, by := range gone {
		tr.delete(all[i], by)
		tr.delete(all[i], by) // once more changes nothing
	}
	var left, withMarks []string
	for i, e := range messages {
		if _, ok := gone[i]; ok {
			withMarks = append(withMarks, "")
			continue
		}
		left, withMarks = append(left, string(e.Payload)), append(withMarks, string(e.Payload))
	}
	for range 2 {
		got := tr.remembers(inbox.Selection{}, withMarks...)
		for i, e := range got {
			if e.Envelope.ID != was[i].ID {
				tr.Fatalf("place %d has id %v, want %v", i, e.Envelope.ID, was[i].ID)
			}
			if _, ok := gone[i]; ok {
				tr.isMark(e.Envelope, &was[i], false)
			} else if e.Envelope.Deleted {
				tr.Fatalf("%s is marked as deleted", was[i].Payload)
			}
		}
		n := len(tr.walk(tr.history, inbox.Query{Selection: inbox.Selection{Sender: "ann", Filter: "a"}}))
		if want := len(which(messages, inbox.Selection{Sender: "ann", Filter: "a"})); n != want {
			tr.Fatalf("%d places of ann in a, want %d", n, want)
		}
		tr.unread("c", left...)
		tr.unread("fellow 11", left...)
		tr.restart()
	}
	tr.connect("c", lasting).only(left...)
	tr.connect("fellow 3", lasting).only(left...)
}

func deleteUnknown(tr *trial) {
	tr.reader("c")
	receipts := tr.publish("a", "not kept")
	kept := tr.publish("chat/1", "kept")
	if err := tr.store.Delete(tr.ctx, receipts[0].ID, ""); !errors.Is(err, inbox.ErrUnknownID) {
		tr.Fatalf("deleting what history does not have: %v, want ErrUnknownID", err)
	}
	tr.unknownIDs(kept[0].ID, func(id inbox.MessageID) error { return tr.store.Delete(tr.ctx, id, "") })
	tr.unread("c", "not kept")
	tr.remembers(inbox.Selection{}, "kept")
}

// What is on its way is not sent again, and what waits in whatever place is passed over.
func deleteOnItsWay(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	tr.publish("a", numbers("m", 8)...)
	read := c.take(4)
	c.save()
	all := tr.unread("c", numbers("m", 8)...)
	for _, i := range []int{1, 5} {
		tr.delete(all[i], "publisher")
	}
	same(tr, "to be sent again", payloads(c.read(positions(read)...)), []string{"m-0", "m-2", "m-3"})
	tr.unread("c", "m-0", "m-2", "m-3", "m-4", "m-6", "m-7")
	c.only("m-4", "m-6", "m-7")
	tr.publish("a", "last")
	c.only("last")
	tr.restart()
	tr.pulling("c")
	tr.delete(all[6], "")
	tr.unread("c", "m-0", "m-2", "m-3", "m-4", "m-7", "last")
	c = tr.inMode("c", inbox.ModePush)
	c.finish(c.read(open(c)...)...)
	c.finish(inbox.Entry{Position: read[1].Position}) // its PUBACK comes late
	c.save()
	c.only("m-4", "m-7", "last")
}

// What was read, and deleted then, does not come back to who starts again.
func deleteThenFrom(tr *trial) {
	tr.reader("c")
	tr.publish("a", numbers("m", 4)...)
	tr.acknowledges("c", 4, inbox.Acknowledgement{})
	all := tr.walk(tr.history, inbox.Query{})
	tr.delete(all[2], "")
	c := tr.startAgain("c", inbox.Bound{}, inbox.ModeKept)
	tr.unread("c", "m-0", "m-1", "m-3")
	c.only("m-0", "m-1", "m-3")
}

// Everything that one user has sent is erased, the name too. The messages of others stay.
func deleteErase(tr *trial) {
	tr.reader("c")
	tr.reader("other")
	messages := tr.talk(40, []string{"ann", "bob"}, []string{"a", "a/b", "a/c"})
	all := tr.walk(tr.history, inbox.Query{})
	was := make([]inbox.Envelope, len(all))
	for i, e := range all {
		was[i] = *e.Envelope
	}
	tr.acknowledges("other", 40, inbox.Acknowledgement{})
	erase := func(sender string, want int) {
		tr.Helper()
		n, err := tr.store.Erase(tr.ctx, sender)
		if err != nil {
			tr.Fatalf("erase: %v", err)
		}
		if n != want {
			tr.Fatalf("%d messages of %s were erased, want %d", n, sender, want)
		}
	}
	erase("nobody", 0)
	erase("ann's phone", 0)
	erase("ann", 20)
	erase("ann", 0)
	bobs := which(messages, inbox.Selection{Sender: "bob"})
	for range 2 {
		got := tr.walk(tr.history, inbox.Query{Max: 7})
		same(tr, "places", positions(got), positions(all))
		for i, e := range got {
			if was[i].User == "ann" {
				tr.isMark(e.Envelope, &was[i], true)
			} else {
				sameEnvelope(tr, e.Envelope, &was[i])
			}
		}
		tr.remembers(inbox.Selection{Sender: "ann"})
		tr.remembers(inbox.Selection{Sender: "bob"}, bobs...)
		tr.unread("c", bobs...)
		tr.none("other")
		tr.restart()
	}
	tr.append(said("ann", "a", "back"))
	tr.unread("c", append(slices.Clone(bobs), "back")...)
	tr.remembers(inbox.Selection{Sender: "ann"}, "back")
}

// Of a sender who is erased nothing is sent again, not even what has expired on its way: a
// delivery of QoS 2 that has begun would have it.
func deleteEraseExpired(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 2)
	over := time.Now().Add(200 * time.Millisecond)
	for i, sender := range []string{"ann", "bob", "ann", "bob", "ann"} {
		e := said(sender, "a", fmt.Sprint(i))
		if e.QoS = 2; i < 4 {
			e.Expiry = over.UnixMilli()
		}
		tr.append(e)
	}
	sent := c.take(5)
	c.save()
	tr.eventually("they expire", func() bool { return time.Now().After(over) })
	if n, err := tr.store.Erase(tr.ctx, "ann"); n != 1 || err != nil {
		tr.Fatalf("erased %d: %v, want the 1 that history has", n, err)
	}
	for range 2 {
		for _, e := range c.read(positions(sent)...) {
			if e.Envelope.Sender() == "ann" {
				tr.Fatalf("%s is sent again", e.Envelope.Payload)
			}
		}
		tr.restart()
		c = tr.connect("c", lasting)
	}
}

// Marks that were left before lose the name too.
func deleteThenErase(tr *trial) {
	tr.talk(10, []string{"ann", "bob"}, []string{"a"})
	all := tr.walk(tr.history, inbox.Query{})
	was := *all[4].Envelope
	tr.delete(all[4], "ann")
	if _, err := tr.store.Erase(tr.ctx, "ann"); err != nil {
		tr.Fatalf("erase: %v", err)
	}
	for range 2 {
		tr.isMark(tr.walk(tr.history, inbox.Query{})[4].Envelope, &was, true)
		tr.remembers(inbox.Selection{Sender: "ann"})
		tr.restart()
	}
	if err := tr.store.Delete(tr.ctx, was.ID, "bob"); !errors.Is(err, inbox.ErrNotSender) {
		tr.Fatalf("bob deletes what somebody had sent: %v, want ErrNotSender", err)
	}
}

// Case 138: messages are recalled between two pages. The walk ends, and has each
// of the others once.
func deleteBetweenPages(tr *trial) {
	tr.reader("c")
	tr.talk(100, []string{"ann"}, []string{"a"})
	all := tr.walk(tr.history, inbox.Query{})
	for _, ask := range []asking{tr.history, tr.inboxOf("c")} {
		var got []inbox.Entry
		n := 0
		for page := range tr.pages(ask, inbox.Query{Max: 10, NewestFirst: true}) {
			got = append(got, page.Entries...)
			n = len(all) - 1 - slices.IndexFunc(all, func(e inbox.Entry) bool { return e.Position == end(page) })
			for _, i := range []int{n, n + 3} { // one that was had, one that comes
				if i < len(all) {
					tr.delete(all[len(all)-1-i], "ann")
				}
			}
		}
		seen := map[inbox.MessageID]bool{}
		for _, e := range got {
			if seen[e.Envelope.ID] {
				tr.Fatalf("%v came twice", e.Envelope.ID)
			}
			seen[e.Envelope.ID] = true
		}
		for _, e := range tr.walk(ask, inbox.Query{}) {
			if !seen[e.Envelope.ID] {
				tr.Fatalf("%v was passed over", e.Envelope.ID)
			}
		}
	}
}
