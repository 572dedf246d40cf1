package storetest

import (
	"errors"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// storm is how many connections want the same inbox at once.
const storm = 20

// startStorm publishes while the owners come, and returns once all messages are
// stored and every owner has had its turn to open. Each owner then goes on with
// what own does; wait returns when all have ended.
func (tr *trial) startStorm(payloads []string, own func(i int, c *client) error) (owners []*client, wait func()) {
	tr.Helper()
	tr.connect("c", lasting).subscribe("a", 1)
	var published, opened, ended sync.WaitGroup
	p := tr.publisher()
	published.Go(func() {
		for _, payload := range payloads {
			p.append(message("a", 1, payload))
		}
		p.wait()
	})
	owners = make([]*client, storm)
	opened.Add(storm)
	for i := range owners {
		ended.Go(func() {
			c, err := tr.tryConnect("c", inbox.OpenOptions{Expiry: lasting})
			owners[i] = c
			opened.Done()
			if err == nil {
				err = own(i, c)
			}
			if err != nil && !errors.Is(err, inbox.ErrFenced) {
				tr.Errorf("owner %d: %v", i, err)
			}
		})
	}
	published.Wait()
	opened.Wait()
	return owners, ended.Wait
}

func fenceStorm(tr *trial) {
	want := numbers("m", size(300, 100))
	owners, wait := tr.startStorm(want, func(_ int, c *client) error {
		_, err := c.next(10, 1<<20)
		return err
	})
	wait()
	if tr.Failed() {
		return
	}
	working := 0
	for _, c := range owners {
		_, err := c.Subscriptions(tr.ctx)
		if err == nil {
			working++
		} else if !errors.Is(err, inbox.ErrFenced) {
			tr.Fatalf("subscriptions: %v", err)
		}
	}
	if working != 1 {
		tr.Fatalf("%d owners of one inbox work, want 1", working)
	}
	tr.connect("c", lasting).only(want...)
}

// Each owner finishes what it reads. An entry may come twice, since an owner
// can be fenced before its save, but none may be missing.
func fenceStormSaving(tr *trial) {
	var mu sync.Mutex
	received := map[string]bool{}
	want := numbers("m", size(300, 100))
	_, wait := tr.startStorm(want, func(i int, c *client) error {
		for n := 0; ; n++ {
			page, err := c.next(5, 1<<20)
			if err != nil {
				return err
			}
			mu.Lock()
			for _, e := range page {
				received[string(e.Envelope.Payload)] = true
			}
			mu.Unlock()
			c.finish(page...)
			switch {
			case n%5 == 4:
				err = c.trySave()
			case n == 17 && i%2 == 0:
				return c.Close(tr.ctx, inbox.Ending{Expiry: lasting})
			default:
				c.Save(nil)
			}
			if err != nil {
				return err
			}
		}
	})
	last := tr.connect("c", lasting) // the owner that is left waits in Next until now
	wait()
	for _, payload := range payloads(last.rest()) {
		received[payload] = true
	}
	for _, payload := range want {
		if !received[payload] {
			tr.Errorf("%s is lost: received by no owner, and gone", payload)
		}
	}
}
