package storetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func closeIdempotent(tr *trial) {
	tr.connect("c", lasting).subscribe("a", 1)
	tr.publish("a", "m")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := tr.store.Close(); err != nil {
				tr.Errorf("close: %v", err)
			}
		})
	}
	wg.Wait()
	if err := tr.store.Close(); err != nil {
		tr.Errorf("another close: %v", err)
	}
	tr.restart()
	tr.connect("c", lasting).only("m")
}

// What was handed over before Close is stored, and its done called.
func closeWaits(tr *trial) {
	tr.connect("c", lasting).subscribe("a", 1)
	want := numbers("m", size(500, 100))
	for _, payload := range want {
		tr.main.append(message("a", 1, payload))
	}
	tr.restart() // checks that done was called for all of them by the end of Close
	tr.main.stored(0)
	tr.connect("c", lasting).only(want...)
}

// Publishers that go on while the store closes learn exactly what was stored.
func closeUnderLoad(tr *trial) {
	tr.connect("c", lasting).subscribe("a", 1)
	var wg sync.WaitGroup
	publishers := make([]*publisher, 4)
	for g := range publishers {
		p := tr.publisher()
		publishers[g] = p
		wg.Go(func() {
			for i := 0; ; i++ {
				p.append(message("a", 1, fmt.Sprintf("%d-%d", g, i)))
				if i%32 != 31 {
					continue
				}
				if results := p.wait(); results[len(results)-1].err != nil {
					return
				}
			}
		})
	}
	tr.eventually("some messages are stored", func() bool {
		publishers[0].mu.Lock()
		defer publishers[0].mu.Unlock()
		return len(publishers[0].results) > 100
	})
	if err := tr.store.Close(); err != nil {
		tr.Fatalf("close: %v", err)
	}
	wg.Wait()
	tr.restart()

	heard := map[string][]string{}
	for _, payload := range payloads(tr.connect("c", lasting).rest()) {
		heard[payload[:1]] = append(heard[payload[:1]], payload)
	}
	for g, p := range publishers {
		stored := 0
		for _, r := range p.results {
			switch {
			case r.err == nil && r.n == stored:
				stored++
			case !errors.Is(r.err, inbox.ErrClosed):
				tr.Fatalf("message %d of publisher %d: %v, after %d were stored", r.n, g, r.err, stored)
			}
		}
		who := fmt.Sprint(g)
		same(tr, "messages of publisher "+who, heard[who], numbers(who, stored))
	}
}

func closeAfterwards(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", "before")
	tr.closeStore()

	tr.main.append(message("a", 1, "after"))
	tr.main.append(message("nobody", 1, "after"))
	for _, r := range tr.main.wait()[1:] {
		if !errors.Is(r.err, inbox.ErrClosed) {
			tr.Errorf("append: %v, want ErrClosed", r.err)
		}
	}
	if _, _, err := tr.store.Open(tr.ctx, "d", inbox.OpenOptions{}); !errors.Is(err, inbox.ErrClosed) {
		tr.Errorf("open: %v, want ErrClosed", err)
	}
	var listed error
	for _, err := range tr.store.Sessions(tr.ctx) {
		listed = err
	}
	if !errors.Is(listed, inbox.ErrClosed) {
		tr.Errorf("sessions: %v, want ErrClosed", listed)
	}
	listed = nil
	for _, err := range tr.store.Retained(tr.ctx, "#") {
		listed = err
	}
	if !errors.Is(listed, inbox.ErrClosed) {
		tr.Errorf("retained: %v, want ErrClosed", listed)
	}
	c.refused(inbox.ErrClosed)

	tr.restart()
	if got := tr.sessions(); len(got) != 1 {
		tr.Fatalf("sessions: %+v", got)
	}
	tr.connect("c", lasting).only("before")
}

func closeEndsNext(tr *trial) {
	kept := tr.blockNext(tr.connect("c", lasting))
	linked := tr.blockNext(tr.connect("d", inbox.ExpiryAtOnce))
	tr.closeStore()
	for _, ended := range []<-chan error{kept, linked} {
		if err := <-ended; !errors.Is(err, inbox.ErrClosed) {
			tr.Errorf("a blocked Next returned %v, want ErrClosed", err)
		}
	}
}
