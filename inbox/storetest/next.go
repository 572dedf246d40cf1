package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Each message is stored only after the one before was read, so that a wake-up
// lost between "empty" and "wait" stops the test.
func nextWakes(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connect(inbox.Receiver(fmt.Sprint("c", expiry)), expiry)
		c.subscribe("a", 1)
		want := numbers("m", size(200, 50))
		read := make(chan string)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(read)
			for range want {
				page, err := c.next(10, 1000)
				if err != nil || len(page) != 1 {
					tr.Errorf("a page of %d entries, error %v", len(page), err)
					return
				}
				read <- string(page[0].Envelope.Payload)
			}
		})
		for _, payload := range want {
			tr.publish("a", payload)
			if got := <-read; got != payload {
				tr.Fatalf("read %q, want %q", got, payload)
			}
		}
		wg.Wait()
	}
}

// Contexts end while messages arrive: what a cancelled Next did not return, the
// following one does.
func nextCancel(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	want := numbers("m", size(200, 50))
	var got []inbox.Entry
	for i, payload := range want {
		ctx, cancel := context.WithTimeout(tr.ctx, time.Duration(i%20)*50*time.Microsecond)
		tr.main.append(message("a", 1, payload))
		page, err := c.Next(ctx, 3, 1000)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			tr.Fatalf("next with a deadline: %v", err)
		}
		if err != nil && len(page) != 0 {
			tr.Fatalf("next returned %d entries and %v", len(page), err)
		}
		got = append(got, page...)
	}
	tr.main.stored(0)
	got = append(got, c.rest()...)
	ascending(tr, "pages", got)
	same(tr, "entries", payloads(got), want)
}

func nextMax(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connect(inbox.Receiver(fmt.Sprint("c", expiry)), expiry)
		c.subscribe("a", 1)
		want := numbers("m", 50)
		tr.publish("a", want...)
		var got []inbox.Entry
		for i := 0; len(got) < len(want); i++ {
			page, err := c.next([]int{1, 2, 7, 1000}[i%4], 1<<20) // checks the size of the page
			if err != nil {
				tr.Fatalf("next: %v", err)
			}
			got = append(got, page...)
		}
		same(tr, "entries", payloads(got), want)
		c.only()
	}
}

func nextMaxBytes(tr *trial) {
	sizes := []int{10, 10, 10, 500, 0, 0, 99, 1, 1, 1000, 100, 0, 50, 50, 1, 300 << 10, 40, 100}
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		for _, maxBytes := range []int{0, 1, 30, 100, 1 << 20} {
			c := tr.connect(inbox.Receiver(fmt.Sprint("c", expiry, "-", maxBytes)), expiry)
			c.subscribe("a", 1)
			for _, n := range sizes {
				e := message("a", 1, "")
				e.Payload = make([]byte, n)
				tr.main.append(e)
			}
			tr.main.stored(0)
			for i := 0; i < len(sizes); {
				page, err := c.next(100, maxBytes)
				if err != nil {
					tr.Fatalf("next: %v", err)
				}
				bytes := 0
				for _, e := range page {
					if n := len(e.Envelope.Payload); n != sizes[i] {
						tr.Fatalf("entry %d has %d bytes instead of %d", i, n, sizes[i])
					}
					bytes += sizes[i]
					i++
				}
				if len(page) > 1 && bytes > maxBytes {
					tr.Fatalf("a page of %d entries has %d bytes, at most %d were asked for", len(page), bytes, maxBytes)
				}
			}
			c.unsubscribe("a")
		}
	}
}

func nextLiveAfterBacklog(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connect(inbox.Receiver(fmt.Sprint("c", expiry)), expiry)
		c.subscribe("a", 1)
		want := numbers("m", size(600, 100))
		backlog := len(want) / 2
		tr.publish("a", want[:backlog]...)
		var wg sync.WaitGroup
		p := tr.publisher()
		wg.Go(func() {
			for _, payload := range want[backlog:] {
				p.append(message("a", 1, payload))
			}
			p.wait()
		})
		var got []inbox.Entry
		for len(got) < len(want) {
			page, err := c.next(10, 1<<20)
			if err != nil {
				tr.Fatalf("next after %d entries: %v", len(got), err)
			}
			got = append(got, page...)
		}
		wg.Wait()
		ascending(tr, "pages", got)
		same(tr, "entries", payloads(got), want)
		c.only()
		c.unsubscribe("a")
	}
}

// What has expired long ago may be gone.
func nextExpired(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	for i := range 10 {
		e := message("a", 1, fmt.Sprint("m-", i))
		if i%2 == 0 {
			e.Expiry = time.Now().Add(-time.Minute).UnixMilli()
		}
		tr.append(e)
	}
	c.only(numbers("m", 10)...)
	tr.restart()
	c = tr.connect("c", lasting)
	c.expect(numbers("m", 10)...)
}

func nextSlice(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", "one", "two")
	page := c.take(2)
	at := positions(page)
	clear(page)
	read := c.read(at...)
	same(tr, "read", payloads(read), []string{"one", "two"})
	clear(read)
	same(tr, "read again", payloads(c.read(at...)), []string{"one", "two"})
}

// A context that has ended keeps Next from waiting, and not from returning what there is.
func nextDoesNotWait(tr *trial) {
	ended, cancel := context.WithCancel(tr.ctx)
	cancel()
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connect(inbox.Receiver(fmt.Sprint("c", expiry)), expiry)
		c.subscribe("a", 1)
		for _, payload := range numbers("m", 20) {
			if page, err := c.nextBy(ended, 1, 1000); !errors.Is(err, context.Canceled) {
				tr.Fatalf("%d entries where there are none, %v", len(page), err)
			}
			tr.publish("a", payload)
			page, err := c.nextBy(ended, 1, 1000)
			for errors.Is(err, context.Canceled) && tr.ctx.Err() == nil { // it may be on its way
				page, err = c.nextBy(ended, 1, 1000)
			}
			if err != nil {
				tr.Fatalf("%s is there: %v", payload, err)
			}
			same(tr, "page", payloads(page), []string{payload})
		}
		c.close(inbox.ExpiryAtOnce)
	}
}
