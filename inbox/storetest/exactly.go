package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// tryPublish publishes under a packet id and waits.
func (c *client) tryPublish(id uint16, e *inbox.Envelope) result {
	done := make(chan result, 2)
	c.Publish(c.tr.ctx, id, e, func(r inbox.Receipt, err error) { done <- result{0, r, err} })
	select {
	case r := <-done:
		return r
	case <-c.tr.ctx.Done():
		return result{err: errors.New("done of Publish was not called")}
	}
}

// tryComplete completes a packet id and waits.
func (c *client) tryComplete(id uint16) (known bool, err error) {
	done := make(chan error, 2)
	c.Complete(id, func(k bool, err error) { known = k; done <- err })
	select {
	case err := <-done:
		return known, err
	case <-c.tr.ctx.Done():
		return false, errors.New("done of Complete was not called")
	}
}

// publishes fails unless the message is stored, or, if it is a repetition, not.
func (c *client) publishes(id uint16, payload string, again bool) {
	c.tr.Helper()
	r := c.tryPublish(id, message("a", 2, payload))
	if r.err != nil || r.receipt.Duplicate != again {
		c.tr.Fatalf("publish %s under id %d: %+v, %v, want duplicate %v", payload, id, r.receipt, r.err, again)
	}
	if !again && r.receipt.ID.Sequence == 0 {
		c.tr.Fatalf("publish %s: no id", payload)
	}
}

func (c *client) completes(id uint16, want bool) {
	c.tr.Helper()
	if known, err := c.tryComplete(id); err != nil || known != want {
		c.tr.Fatalf("complete %d: known %v, %v, want %v", id, known, err, want)
	}
}

func (c *client) hasReceived(want ...uint16) {
	c.tr.Helper()
	got := slices.Clone(c.Received())
	slices.Sort(got)
	same(c.tr, "received ids", got, want)
}

func publishOnce(tr *trial) {
	reader := tr.connect("reader", lasting)
	reader.subscribe("a", 2)
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connect(inbox.Receiver(fmt.Sprint("c", expiry)), expiry)
		other := tr.connect(inbox.Receiver(fmt.Sprint("other", expiry)), expiry)
		c.completes(1, false)
		c.publishes(1, "one", false)
		c.publishes(1, "one", true)
		c.publishes(65535, "two", false)
		other.publishes(1, "other's", false)
		c.publishes(1, "one", true)
		c.publishes(65535, "two", true)
		c.completes(1, true)
		c.completes(1, false)
		c.publishes(1, "three", false)
		c.publishes(65535, "two", true)
		other.publishes(1, "other's", true)
		other.completes(1, true)
		c.hasReceived() // it was opened with none
		got := reader.only("one", "two", "other's", "three")
		sameGrant(tr, got[0], inbox.Grant{QoS: 2})
		for _, id := range []uint16{1, 65535} {
			c.completes(id, true)
		}
		reader.finish(got...)
		reader.save()
	}
}

// Whoever takes over or comes back goes on where the other link was.
func publishResumed(tr *trial) {
	tr.connect("reader", lasting).subscribe("a", 2)
	c := tr.connect("c", lasting)
	for id := range uint16(5) {
		c.publishes(id+1, fmt.Sprint("m", id+1), false)
	}
	c.completes(2, true)
	for i, again := range []func(){
		func() { c = tr.connect("c", lasting) },
		func() { c.close(lasting); c = tr.connect("c", lasting) },
		func() { tr.restart(); c = tr.connect("c", lasting) },
		func() { tr.restart(); tr.restart(); c = tr.connect("c", inbox.ExpiryNever) },
	} {
		again()
		c.hasReceived(1, 3, 4, 5)
		for _, id := range []uint16{1, 3, 4, 5} {
			c.publishes(id, fmt.Sprint("m", id), true)
		}
		id := uint16(100 + i)
		c.publishes(id, fmt.Sprint("m", id), false)
		c.completes(id, true)
		c.completes(2, false)
	}
	for _, id := range []uint16{5, 1, 4, 3} {
		c.completes(id, true)
	}
	tr.restart()
	c = tr.connect("c", lasting)
	c.hasReceived()
	c.completes(1, false)
	tr.connect("reader", lasting).only("m1", "m2", "m3", "m4", "m5", "m100", "m101", "m102", "m103")
}

func publishForgotten(tr *trial) {
	tr.connect("reader", lasting).subscribe("a", 2)
	c := tr.connect("c", lasting)
	var want []string
	for i, end := range []func(){
		func() { c = tr.connectFresh("c", lasting) },
		func() { c.close(inbox.ExpiryAtOnce); c = tr.connect("c", lasting) },
		func() { c = tr.connect("c", inbox.ExpiryAtOnce) },
		func() { c = tr.connect("c", lasting) },
		func() { c = tr.connect("c", inbox.ExpiryAtOnce); tr.restart(); c = tr.connect("c", lasting) },
	} {
		payload := fmt.Sprint("m", i)
		c.publishes(1, payload, false)
		want = append(want, payload)
		if end(); c.resumed {
			c.hasReceived(1)
			c.completes(1, true)
			continue
		}
		c.hasReceived()
		c.completes(1, false)
	}
	tr.restart()
	tr.connect("reader", lasting).only(want...)
}

// Appending, publishing, repeating and completing are answered in the order of
// the calls.
func publishDoneInOrder(tr *trial) {
	reader := tr.connect("reader", lasting)
	reader.subscribe("a", 2)
	c := tr.connect("c", lasting)
	n := size(500, 100)
	answered := make(chan int, 4*n)
	answer := func(i int) func(inbox.Receipt, error) {
		return func(r inbox.Receipt, err error) {
			if err != nil || r.Duplicate != (i%4 == 2) {
				tr.Errorf("call %d: %+v, %v", i, r, err)
			}
			answered <- i
		}
	}
	var want []string
	for i := range n {
		id := uint16(i%10 + 1)
		append, publish := fmt.Sprint("append ", i), fmt.Sprint("publish ", i)
		tr.store.Append(tr.ctx, message("a", 1, append), answer(4*i))
		c.Publish(tr.ctx, id, message("a", 2, publish), answer(4*i+1))
		c.Publish(tr.ctx, id, message("a", 2, publish), answer(4*i+2))
		c.Complete(id, func(known bool, err error) {
			if !known || err != nil {
				tr.Errorf("complete %d: %v, %v", i, known, err)
			}
			answered <- 4*i + 3
		})
		want = slices.Concat(want, []string{append, publish})
	}
	for i := range 4 * n {
		select {
		case got := <-answered:
			if got != i {
				tr.Fatalf("answer %d is for call %d", i, got)
			}
		case <-tr.ctx.Done():
			tr.Fatalf("%d of %d calls were answered", i, 4*n)
		}
	}
	reader.only(want...)
	tr.restart()
	tr.connect("c", lasting).hasReceived()
}

func publishRetained(tr *trial) {
	c := tr.connect("c", lasting)
	first, again := retain("a", 2, "first"), retain("a", 2, "again")
	c.tryPublish(1, first)
	c.tryPublish(1, again)
	tr.retains("a", "first")
}

// Links come and go while a publisher repeats each message until it is answered:
// every one is stored once, and in order.
func publishStorm(tr *trial) {
	tr.connect("reader", lasting).subscribe("a", 2)
	stop, tries := make(chan struct{}), make(chan struct{}, 1)
	var others sync.WaitGroup
	others.Go(func() { // takes over while something is tried, and no more often, so that it comes to an end
		for {
			select {
			case <-stop:
				return
			case <-tries:
			}
			if _, err := tr.tryConnect("c", inbox.OpenOptions{Expiry: lasting}); err != nil {
				tr.Errorf("open: %v", err)
				return
			}
		}
	})
	n := size(100, 50)
	c := tr.connect("c", lasting)
	until := func(what string, try func() error) {
		tr.Helper()
		for {
			select {
			case tries <- struct{}{}:
			default:
			}
			err := try()
			if err == nil {
				return
			}
			if !errors.Is(err, inbox.ErrFenced) {
				tr.Fatalf("%s: %v", what, err)
			}
			c = tr.connect("c", lasting)
		}
	}
	for i := range n {
		id := uint16(i%7 + 1)
		for range 1 + i%2 { // every other one again, as if the answer had been lost
			until("publish", func() error { return c.tryPublish(id, message("a", 2, fmt.Sprint("m-", i))).err })
		}
		until("complete", func() error { _, err := c.tryComplete(id); return err })
	}
	close(stop)
	others.Wait()
	tr.restart()
	tr.connect("c", lasting).hasReceived()
	tr.connect("reader", lasting).only(numbers("m", n)...)
}
