package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// halfway reads 10 of 20 messages, of which 3, 6 and 7 stay open, 6 released.
func (tr *trial) halfway() (c *client, open []inbox.Position, rest []string) {
	tr.Helper()
	c = tr.connect("c", lasting)
	c.subscribe("a", 2)
	payloads := numbers("m", 20)
	tr.publish("a", payloads...)
	read := c.take(10)
	c.finish(read[:3]...)
	c.finish(read[4:6]...)
	c.finish(read[8:]...)
	c.mu.Lock()
	c.state.Open[1].QoS, c.state.Open[1].Released = 2, true
	c.state.Releasing = []uint16{9, 4}
	c.state.LastID, c.state.Resting = 65000, []uint16{65535, 1, 300}
	c.mu.Unlock()
	return c, []inbox.Position{read[3].Position, read[6].Position, read[7].Position}, payloads[10:]
}

// continues opens the inbox again and fails unless it is as halfway left it.
func (tr *trial) continues(want inbox.State, open []inbox.Position, rest []string) {
	tr.Helper()
	c := tr.connect("c", lasting)
	if !c.resumed {
		tr.Fatal("the session was not resumed")
	}
	sameState(tr, c.State(), want)
	got := c.read(open...)
	same(tr, "open entries", positions(got), open)
	same(tr, "open entries", payloads(got), []string{"m-3", "m-6", "m-7"})
	c.only(rest...)
}

func resumeSaved(tr *trial) {
	c, open, rest := tr.halfway()
	c.save()
	want := c.current()
	tr.continues(want, open, rest)
	tr.restart()
	tr.continues(want, open, rest)
}

func resumeClosed(tr *trial) {
	c, open, rest := tr.halfway()
	c.Save(nil)
	want := c.current()
	c.close(lasting)
	tr.continues(want, open, rest)
	tr.restart()
	tr.continues(want, open, rest)
}

// What was to be saved lazily is stored when the store closes in good order.
func resumeLazy(tr *trial) {
	c, open, rest := tr.halfway()
	c.Save(nil)
	want := c.current()
	tr.restart()
	tr.continues(want, open, rest)
}

// Reading alone moves nothing: whoever did not save gets the entries again.
func resumeUnsaved(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	want := numbers("m", 10)
	tr.publish("a", want...)
	first := c.expect(want...)
	for range 2 {
		again := tr.connect("c", lasting)
		sameState(tr, again.State(), inbox.State{})
		same(tr, "positions", positions(again.expect(want...)), positions(first))
		tr.restart()
	}
}

func resumeLargeWindow(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	n := size(10_000, 1_000)
	for _, payload := range numbers("m", n) {
		tr.main.append(message("a", 1, payload))
	}
	tr.main.stored(0)
	read := c.take(n)
	c.save()
	want := c.current()
	tr.restart()
	c = tr.connect("c", lasting)
	sameState(tr, c.State(), want)
	same(tr, "open entries", payloads(c.read(positions(read)...)), numbers("m", n))
	c.finish(read...)
	c.save()
	c.only()
}

// Only a session that outlives its link has something to read again: what one
// that ends with it has read, its owner holds.
func resumeRead(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	want := numbers("m", 10)
	tr.publish("a", want...)
	read := c.take(5)
	at := positions(read)

	same(tr, "nothing", payloads(c.read()), nil)
	same(tr, "one", payloads(c.read(at[2])), want[2:3])
	same(tr, "some", payloads(c.read(at[0], at[3], at[4])), []string{"m-0", "m-3", "m-4"})
	unknown := at[4] + 1<<40
	same(tr, "unknown ones", payloads(c.read(0, at[1], unknown, unknown+1)), want[1:2])
	for i, e := range c.read(at...) {
		if e.Position != at[i] {
			tr.Fatalf("entry %d has position %d, want %d", i, e.Position, at[i])
		}
		sameGrant(tr, e, read[i].Grant)
	}
	c.only(want[5:]...)
}

// Acknowledgements come in any order and are saved in between; what is open
// stays readable, whatever lies around it.
func resumeOutOfOrder(tr *trial) {
	random := newRandom(tr)
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	want := numbers("m", 60)
	tr.publish("a", want...)
	read := c.take(50)
	for i, n := range random.Perm(40) {
		c.finish(read[n])
		if i%10 != 9 {
			c.Save(nil)
			continue
		}
		c.save()
		state := c.current()
		if i%20 == 19 {
			tr.restart()
		}
		c = tr.connect("c", lasting)
		sameState(tr, c.State(), state)
		isOpen(tr, c)
	}
	c.only(want[50:]...)
}

// isOpen fails unless everything open in the client's state can be read.
func isOpen(tr *trial, c *client) {
	tr.Helper()
	var at []inbox.Position
	for _, d := range c.current().Open {
		at = append(at, d.Position)
	}
	same(tr, "open entries", positions(c.read(at...)), at)
}

// An engine may keep a finished entry for as long as it keeps one beside it.
func resumeForgets(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connect("c", expiry)
		c.subscribe("a", 1)
		tr.publish("a", numbers("m", 30)...)
		read := c.take(30)
		rand.Shuffle(len(read), func(i, j int) { read[i], read[j] = read[j], read[i] })
		for _, e := range read {
			c.finish(e)
			c.Save(nil)
		}
		c.save()
		at := positions(read)
		slices.Sort(at)
		tr.eventually("finished entries are forgotten", func() bool { return len(c.read(at...)) == 0 })
		tr.publish("a", "later")
		c.only("later")
		c.close(inbox.ExpiryAtOnce)
	}
}

func resumeFresh(tr *trial) {
	for _, connected := range []bool{true, false} {
		c := tr.connect("c", lasting)
		c.subscribe("a", 1)
		tr.publish("a", numbers("m", 10)...)
		c.take(5)
		c.save()
		if !connected {
			c.close(lasting)
			tr.restart()
		}
		c = tr.connectFresh("c", lasting)
		if c.resumed {
			tr.Fatal("a fresh session was resumed")
		}
		sameState(tr, c.State(), inbox.State{})
		matched(tr, tr.publish("a", "not subscribed")[0], 0)
		c.subscribe("b", 1)
		tr.publish("b", "new")
		c.only("new")
		same(tr, "old subscription", c.unsubscribe("a"), []bool{false})

		tr.restart()
		c = tr.connect("c", lasting)
		if !c.resumed {
			tr.Fatal("the session was not resumed")
		}
		c.only("new")
		same(tr, "subscriptions", c.unsubscribe("a", "b"), []bool{false, true})
		c.close(inbox.ExpiryAtOnce)
	}
}

// Without a session to resume there is none, for whatever reason.
func resumeOnly(tr *trial) {
	none := func(why string, o inbox.OpenOptions) {
		tr.Helper()
		o.Resume = true
		if _, err := tr.tryConnect("c", o); !errors.Is(err, inbox.ErrNoSession) {
			tr.Fatalf("%s: %v, want ErrNoSession", why, err)
		}
		if got := tr.sessions(); len(got) != 0 {
			tr.Fatalf("%s: sessions %+v", why, got)
		}
	}
	none("never opened", inbox.OpenOptions{Expiry: lasting})
	tr.connect("c", inbox.ExpiryAtOnce)
	none("ends with its link", inbox.OpenOptions{Expiry: lasting})
	tr.connect("c", lasting)
	none("fresh", inbox.OpenOptions{Expiry: lasting, Fresh: true})
	tr.connect("c", lasting).close(inbox.ExpiryAtOnce)
	none("ended", inbox.OpenOptions{Expiry: lasting})

	tr.connect("c", lasting).subscribe("a", 1)
	tr.publish("a", "m")
	c := tr.connectWith("c", inbox.OpenOptions{Expiry: lasting, Resume: true})
	if !c.resumed {
		tr.Fatal("not resumed")
	}
	c.only("m")
}

// Whoever stops waiting may not know what happened, and nothing else goes wrong.
func resumeCancelled(tr *trial) {
	c := tr.connect("c", lasting)
	for i := range size(100, 30) {
		ctx, cancel := context.WithCancel(tr.ctx)
		go cancel()
		sub := inbox.Subscription{Filter: fmt.Sprint("f", i), QoS: 1}
		if existed, err := c.Subscribe(ctx, sub); err == nil && len(existed) != 1 {
			tr.Fatalf("subscribe: %v", existed)
		}
		if existed, err := c.Unsubscribe(ctx, sub.Filter); err == nil && len(existed) != 1 {
			tr.Fatalf("unsubscribe: %v", existed)
		}
		if _, err := c.Subscriptions(ctx); err != nil && !errors.Is(err, context.Canceled) {
			tr.Fatalf("subscriptions: %v", err)
		}
	}
	c.subscribe("a", 1)
	tr.publish("a", "m")
	c.only("m")
}
