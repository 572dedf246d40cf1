package storetest

import (
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A receiver may be as far behind as it likes while its inbox is open.
func atOnceFarBehind(tr *trial) {
	c := tr.connect("c", inbox.ExpiryAtOnce)
	c.subscribe("a", 1)
	n := size(50_000, 5_000)
	payload := func(i int) string { return fmt.Sprintf("%0300d", i) }
	for i := range n {
		tr.main.append(message("a", 1, payload(i)))
	}
	tr.main.stored(0)
	got := 0
	for got < n {
		page, err := c.next(200, 16<<10)
		if err != nil {
			tr.Fatalf("next after %d of %d: %v", got, n, err)
		}
		for _, e := range page {
			if string(e.Envelope.Payload) != payload(got) {
				tr.Fatalf("entry %d is %s", got, e.Envelope.Payload)
			}
			got++
		}
		c.finish(page...)
		if got%5000 < len(page) {
			c.save()
		}
	}
	c.only()
}

func atOnceReadAndSave(tr *trial) {
	c := tr.connect("c", inbox.ExpiryAtOnce)
	c.subscribe("a", 1)
	if want := (inbox.State{}); c.resumed || len(c.State().Open) != 0 || c.State().Sent != want.Sent {
		tr.Fatalf("a new session has state %+v, resumed %v", c.State(), c.resumed)
	}
	want := numbers("m", 30)
	tr.publish("a", want...)
	read := c.take(20)
	c.finish(read[:5]...)
	c.finish(read[10:]...)
	c.save()
	tr.publish("a", "later")
	c.only(append(want[20:], "later")...)
}

func atOnceClosed(tr *trial) {
	c := tr.connect("c", inbox.ExpiryAtOnce)
	c.subscribe("a", 1)
	tr.publish("a", "one", "two")
	c.take(1)
	c.close(inbox.ExpiryAtOnce)
	matched(tr, tr.publish("a", "three")[0], 0)
	if got := tr.sessions(); len(got) != 0 {
		tr.Fatalf("sessions: %+v", got)
	}
	tr.forgotten("c", inbox.ExpiryAtOnce)
}

// forgotten opens an inbox, which must be as new.
func (tr *trial) forgotten(r inbox.Receiver, expiry inbox.Expiry) *client {
	tr.Helper()
	c := tr.connect(r, expiry)
	if c.resumed {
		tr.Fatalf("the session of %.40q was resumed", r)
	}
	sameState(tr, c.State(), inbox.State{})
	subs, err := c.Subscriptions(tr.ctx)
	if err != nil || len(subs) != 0 {
		tr.Fatalf("a new session has subscriptions %v, error %v", subs, err)
	}
	c.only()
	return c
}

func atOnceRestarted(tr *trial) {
	c := tr.connect("c", inbox.ExpiryAtOnce)
	c.subscribe("a", 1)
	tr.publish("a", "one", "two")
	c.take(1)
	c.save()
	tr.restart()
	if got := tr.sessions(); len(got) != 0 {
		tr.Fatalf("sessions after a restart: %+v", got)
	}
	matched(tr, tr.publish("a", "three")[0], 0)
	tr.forgotten("c", lasting)
}

func atOnceBesideLasting(tr *trial) {
	linked := tr.connect("linked", inbox.ExpiryAtOnce)
	linked.subscribe("#", 1)
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", "one", "two")
	tr.publish("b", "for linked")
	linked.expect("one", "two", "for linked")
	linked.close(inbox.ExpiryAtOnce)
	tr.publish("a", "three")
	tr.restart()
	c = tr.connect("c", lasting)
	c.only("one", "two", "three")
}

func atOnceClosesLasting(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", numbers("m", 10)...)
	read := c.take(5)
	c.finish(read[2:]...)
	c.save()
	c.close(inbox.ExpiryAtOnce)
	if got := tr.sessions(); len(got) != 0 {
		tr.Fatalf("sessions: %+v", got)
	}
	matched(tr, tr.publish("a", "later")[0], 0)
	tr.forgotten("c", lasting).close(inbox.ExpiryAtOnce)
	tr.restart()
	tr.forgotten("c", lasting)
}

// A client may resume a lasting session for one last time: it is still all
// there, and ends with this link, or with the process.
func atOnceOpensLasting(tr *trial) {
	for _, r := range []inbox.Receiver{"closed", "cut"} {
		c := tr.connect(r, lasting)
		c.subscribe("a", 1)
	}
	tr.publish("a", "one", "two")
	tr.restart()

	want := []string{"one", "two"}
	for _, r := range []inbox.Receiver{"closed", "cut"} {
		c := tr.connect(r, inbox.ExpiryAtOnce)
		if !c.resumed {
			tr.Fatalf("the session of %q was not resumed", r)
		}
		tr.publish("a", "with "+string(r))
		want = append(want, "with "+string(r))
		c.only(want...)
		if r == "closed" {
			c.close(inbox.ExpiryAtOnce)
			tr.forgotten(r, inbox.ExpiryAtOnce)
		}
	}
	tr.restart()
	if got := tr.sessions(); len(got) != 0 {
		tr.Fatalf("sessions after a restart: %+v", got)
	}
	tr.forgotten("cut", lasting)
	tr.forgotten("closed", lasting)
}
