package storetest

import (
	"fmt"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// taken returns the packet ids that a state says may be held by its receiver: each once.
func (tr *trial) taken(s inbox.State) []uint16 {
	tr.Helper()
	ids := slices.Clone(s.Releasing)
	for _, d := range s.Open {
		if d.MayBeHeld() {
			ids = append(ids, d.PacketID)
		}
	}
	slices.Sort(ids)
	if once := slices.Compact(slices.Clone(ids)); len(once) != len(ids) {
		tr.Fatalf("packet ids are taken twice: %v", s)
	}
	return ids
}

// onTheirWay has 8 messages sent to a receiver, the even ones at QoS 2, of which the
// first is released. It returns them and the packet ids that the receiver may hold.
func (tr *trial) onTheirWay(r inbox.Receiver) (c *client, sent []inbox.Entry, held []uint16) {
	tr.Helper()
	c = tr.connect(r, lasting)
	c.subscribe("a/#", 2)
	for i, payload := range numbers("m", 8) {
		e := said("ann", "a", payload)
		e.QoS = byte(2 - i%2)
		tr.append(e)
	}
	sent = c.take(8)
	c.mu.Lock()
	c.state.Open[0].Released = true
	c.mu.Unlock()
	c.save()
	return c, sent, []uint16{1, 3, 5, 7}
}

// What was on its way at QoS 2 leaves its packet id behind, whatever becomes of the message
// and whether its receiver is there: until PUBCOMP the id is open or releasing, and is
// stored as that.
func heldByWhatIsGone(tr *trial) {
	for name, take := range map[string]func(r inbox.Receiver, sent []inbox.Entry){
		"acknowledged by ids": func(r inbox.Receiver, sent []inbox.Entry) { tr.acknowledges(r, 8, byIDs(sent...)) },
		"acknowledged":        func(r inbox.Receiver, _ []inbox.Entry) { tr.acknowledges(r, 8, inbox.Acknowledgement{}) },
		"deleted": func(_ inbox.Receiver, sent []inbox.Entry) {
			for _, e := range sent {
				tr.delete(e, "ann")
			}
		},
		"erased": func(inbox.Receiver, []inbox.Entry) {
			if _, err := tr.store.Erase(tr.ctx, "ann"); err != nil {
				tr.Fatalf("erase: %v", err)
			}
		},
	} {
		for _, away := range []bool{false, true} {
			r := inbox.Receiver(fmt.Sprint(name, " away: ", away))
			c, sent, held := tr.onTheirWay(r)
			if away {
				c.close(lasting)
			}
			take(r, sent)
			tr.none(r)
			if !away {
				c.close(lasting)
			}
			for range 2 {
				c = tr.connect(r, lasting)
				same(tr, "packet ids", tr.taken(c.State()), held)
				same(tr, string(r)+": what is there of it", payloads(c.read(open(c)...)), nil)
				c.only()
				c.close(lasting)
				tr.restart()
			}

			c = tr.connect(r, lasting)
			c.mu.Lock() // as one does that sends PUBREL for all, of which one is answered
			c.state.Withdraw(func(inbox.Delivery) bool { return true })
			slices.Sort(c.state.Releasing)
			c.state.Releasing = slices.Delete(c.state.Releasing, 1, 2)
			c.mu.Unlock()
			c.save()
			tr.restart()
			c = tr.connect(r, lasting)
			same(tr, "packet ids after one PUBCOMP", tr.taken(c.State()), []uint16{1, 5, 7})
			same(tr, "releasing", c.State().Releasing, []uint16{1, 5, 7})
			tr.none(r)
			c.close(inbox.ExpiryAtOnce)
		}
	}
}

// Who starts again has everything that was on its way once more, as the first time. What it may
// hold of packet ids it is to be told.
func heldByWhoStartsAgain(tr *trial) {
	for _, mode := range []inbox.Mode{inbox.ModePush, inbox.ModePull} {
		r := inbox.Receiver(fmt.Sprint("c", mode))
		c, sent, held := tr.onTheirWay(r)
		c.close(lasting)
		c = tr.startAgain(r, inbox.Bound{}, mode)
		same(tr, "releasing", c.State().Releasing, held)
		if mode == inbox.ModePush {
			again := c.only(payloads(sent)...)
			c.finish(again...)
			c.save()
			tr.none(r)
		}
		tr.restart()
		c = tr.connect(r, lasting)
		same(tr, "releasing", c.State().Releasing, held)
		c.close(inbox.ExpiryAtOnce)
	}
}

// The packet ids that are releasing hold up nothing: what waited in pull mode is delivered.
func heldInPushMode(tr *trial) {
	c, sent, held := tr.onTheirWay("c")
	c.close(lasting)
	tr.acknowledges("c", 8, inbox.Acknowledgement{})
	tr.pulling("c").close(lasting)
	tr.append(said("ann", "a", "waits"))
	tr.pulling("c").close(lasting)

	c = tr.inMode("c", inbox.ModePush)
	c.mu.Lock()
	c.state.Withdraw(func(d inbox.Delivery) bool { return d.Position <= sent[7].Position })
	c.mu.Unlock()
	c.save()
	c.finish(c.only("waits")...)
	c.save()
	tr.none("c")
	tr.restart()
	same(tr, "packet ids", tr.taken(tr.connect("c", lasting).State()), held)
}
