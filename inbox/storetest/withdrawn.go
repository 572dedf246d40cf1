package storetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Whatever takes away what Next has returned, the owner is told before the call returns, and
// Read has the rest, saved or not.
func withdrawnIsTold(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 2)
	tr.talk(12, []string{"ann", "bob"}, []string{"a", "a/b"})
	read := c.take(6)
	c.save()
	read = append(read, c.take(6)...)
	all := slices.Clone(read)
	by := func(sender string) func(inbox.Entry) bool {
		return func(e inbox.Entry) bool { return e.Envelope.Sender() == sender }
	}
	these := func(some ...inbox.Entry) func(inbox.Entry) bool {
		return func(e inbox.Entry) bool { return slices.Contains(positions(some), e.Position) }
	}
	for _, step := range []struct {
		what string
		gone func(inbox.Entry) bool
		take func()
	}{
		{"by id", these(all[1]), func() { tr.acknowledges("c", 1, byIDs(all[1])) }},
		{"by id, not saved", these(all[7]), func() { tr.acknowledges("c", 1, byIDs(all[7])) }},
		{"up to a place", these(all[0], all[2]), func() {
			tr.acknowledges("c", 2, inbox.Acknowledgement{Through: all[2].Position})
		}},
		{"deleted", these(all[4]), func() { tr.delete(all[4], "") }},
		{"erased", by("bob"), func() {
			if _, err := tr.store.Erase(tr.ctx, "bob"); err != nil {
				tr.Fatalf("erase: %v", err)
			}
		}},
		{"of a sender", by("ann"), func() {
			tr.acknowledges("c", 3, inbox.Acknowledgement{Selection: inbox.Selection{Sender: "ann"}})
		}},
	} {
		before := c.Withdrawn()
		step.take()
		if c.Withdrawn() == before {
			tr.Errorf("%s: the number is %d as before", step.what, before)
		}
		read = slices.DeleteFunc(read, step.gone)
		same(tr, step.what+": what is left", payloads(c.read(positions(all)...)), payloads(read))
	}
	tr.none("c")
}

// What was taken away when the number was read is not returned by the Next that follows,
// wherever it waits; and what is taken away after that moves the number.
func withdrawnWhileOthersRead(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	n := size(300, 150)
	stored := tr.main.appendMeanwhile(n, n, func(i int) *inbox.Envelope {
		return said([]string{"ann", "bob"}[i%2], []string{"a", "a/b"}[i%3%2], fmt.Sprint(i))
	})
	var wg sync.WaitGroup

	var mu sync.Mutex
	gone := map[inbox.Position]bool{}
	wg.Go(func() { // takes away, newest first, what it finds
		for round := 0; ; round++ {
			over := false
			select {
			case <-stored:
				over = true
			default:
			}
			page, err := tr.store.Pull(tr.ctx, "c", inbox.Query{Max: 5, MaxBytes: unlimited, NewestFirst: round%2 == 0})
			switch {
			case err != nil:
			case len(page.Entries) == 0:
			case round%3 == 0:
				for _, e := range page.Entries {
					if err == nil {
						err = tr.store.Delete(tr.ctx, e.Envelope.ID, "")
					}
				}
			default:
				_, err = tr.store.Acknowledge(tr.ctx, "c", byIDs(page.Entries...))
			}
			if err != nil {
				tr.Errorf("take away: %v", err)
				break
			}
			mu.Lock()
			for _, e := range page.Entries {
				gone[e.Position] = true
			}
			mu.Unlock()
			if over && len(page.Entries) == 0 {
				break
			}
		}
		tr.main.append(message("a", 1, "the end"))
	})

	var open []inbox.Entry
	before := map[inbox.Position]uint64{} // the number before an entry was returned
	for end := false; !end; {
		mu.Lock()
		known := maps.Clone(gone)
		mu.Unlock()
		number := c.Withdrawn()
		page, err := c.next(20, 1<<20)
		if err != nil {
			tr.Fatalf("next: %v", err)
		}
		for _, e := range page {
			if known[e.Position] {
				tr.Errorf("%s was taken away and is returned", e.Envelope.Payload)
			}
			before[e.Position] = number
			end = end || string(e.Envelope.Payload) == "the end"
		}
		open = append(open, page...)
		mu.Lock()
		for _, e := range page {
			if gone[e.Position] && c.Withdrawn() == number {
				tr.Errorf("%s is taken away, and the number is %d as before", e.Envelope.Payload, number)
			}
		}
		mu.Unlock()
	}
	wg.Wait()
	for p, number := range before {
		if gone[p] && c.Withdrawn() == number {
			tr.Errorf("the entry at %d was taken away, and the number is %d as before it was returned", p, number)
		}
	}
	tr.main.stored(0)
	same(tr, "what is left", payloads(c.read(positions(open)...)), []string{"the end"})
	c.finish(open...)
	c.save()
	tr.none("c")
}
