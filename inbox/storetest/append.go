package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func appendInOrder(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/#", 1)
	want := numbers("m", 100)
	tr.publish("a/b", want...)
	c.only(want...)
}

func appendDoneInOrder(tr *trial) {
	tr.connect("c", lasting).subscribe("t/#", 2)
	var wg sync.WaitGroup
	for g := range 8 {
		p := tr.publisher()
		wg.Go(func() {
			for i := range size(200, 50) {
				topic := "t/x"
				if i%3 == 0 {
					topic = "nobody" // needs no sync, and still has its turn
				}
				p.append(message(topic, byte(1+i%2), fmt.Sprint(g, "-", i)))
			}
			p.wait()
		})
	}
	wg.Wait()
	for _, p := range tr.publishers {
		sortedReceipts(tr, p.stored(0))
	}
}

// sortedReceipts fails unless ids sort in the order of storing, both ways.
func sortedReceipts(tr *trial, receipts []inbox.Receipt) {
	tr.Helper()
	for i := 1; i < len(receipts); i++ {
		a, b := receipts[i-1].ID, receipts[i].ID
		if a.Sequence >= b.Sequence || a.String() >= b.String() || a.Store != b.Store {
			tr.Fatalf("id %v follows %v", b, a)
		}
	}
}

func appendIDs(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("#", 1)
	receipts := tr.publish("a", numbers("m", 20)...)
	c.close(lasting)
	tr.restart()
	c = tr.connect("c", lasting)
	receipts = append(receipts, tr.publish("a", numbers("n", 20)...)...)
	sortedReceipts(tr, receipts)

	for i, e := range c.take(40) {
		if e.Envelope.ID != receipts[i].ID {
			tr.Fatalf("entry %d has id %v, its receipt %v", i, e.Envelope.ID, receipts[i].ID)
		}
		if e.Envelope.ID.Store != tr.store.ID() {
			tr.Fatalf("entry %d has id %v in store %08x", i, e.Envelope.ID, tr.store.ID())
		}
	}
}

func appendForNobody(tr *trial) {
	tr.connect("c", lasting).subscribe("a", 1)
	for _, r := range tr.publish("b", "one", "two") {
		matched(tr, r, 0)
	}
}

// matched allows an engine not to know.
func matched(tr *trial, r inbox.Receipt, want int) {
	tr.Helper()
	matchedBetween(tr, r, want, want)
}

// matchedBetween also leaves open whether an absent receiver counts who would
// have got the message live, and whether one counts once or for each of its
// subscriptions.
func matchedBetween(tr *trial, r inbox.Receipt, least, most int) {
	tr.Helper()
	if r.Matched != -1 && (r.Matched < least || r.Matched > most) {
		tr.Fatalf("receipt of %v says %d receivers, want %d to %d", r.ID, r.Matched, least, most)
	}
}

func appendMatched(tr *trial) {
	tr.connect("kept", lasting).subscribe("a", 1)
	tr.connect("linked", inbox.ExpiryAtOnce).subscribe("+", 2)
	tr.connect("live", lasting).subscribe("#", 0)
	tr.connect("other", lasting).subscribe("b", 1)
	absent := tr.connect("absent", lasting)
	absent.subscribe("a", 1)
	absent.close(lasting)

	matched(tr, tr.publish("a", "m")[0], 4)
	matched(tr, tr.publish("b", "m")[0], 3)
	matched(tr, tr.publish("a/b", "m")[0], 1)
}

// A context that has ended may or may not be noticed: done says which.
func appendCancelled(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	ctx, cancel := context.WithCancel(tr.ctx)
	cancel()
	var want []string
	for i := range 20 {
		payload := fmt.Sprint("m-", i)
		done := make(chan error, 2)
		tr.store.Append(ctx, message("a", 1, payload), func(_ inbox.Receipt, err error) { done <- err })
		err := <-done
		if err == nil {
			want = append(want, payload)
		} else if !errors.Is(err, context.Canceled) {
			tr.Fatalf("append with a cancelled context: %v", err)
		}
	}
	c.only(want...)
}

func appendShared(tr *trial) {
	var clients []*client
	for i := range 20 {
		expiry := lasting
		if i%4 == 0 {
			expiry = inbox.ExpiryAtOnce
		}
		c := tr.connect(inbox.Receiver(fmt.Sprint("c", i)), expiry)
		c.add(inbox.Subscription{Filter: "a", QoS: byte(1 + i%2), Identifier: uint32(i)})
		clients = append(clients, c)
	}
	sent := randomEnvelope(newRandom(tr), "a")
	sent.QoS = 2
	want := *sent
	want.ID = tr.append(sent)[0].ID
	for i, c := range clients {
		e := c.take(1)[0]
		sameEnvelope(tr, e.Envelope, &want)
		if e.QoS != byte(1+i%2) {
			tr.Fatalf("receiver %d has QoS %d: grants are not shared", i, e.QoS)
		}
	}
}

func appendThousandReceivers(tr *trial) {
	clients := make([]*client, size(1000, 100))
	each(len(clients), func(i int) {
		c, err := tr.tryConnect(inbox.Receiver(fmt.Sprint("c", i)), inbox.OpenOptions{Expiry: lasting})
		if err != nil {
			tr.Errorf("opening inbox %d: %v", i, err)
			return
		}
		if _, err := c.Subscribe(tr.ctx, inbox.Subscription{Filter: "all", QoS: 1}); err != nil {
			tr.Errorf("subscribing inbox %d: %v", i, err)
		}
		clients[i] = c
	})
	if tr.Failed() {
		return
	}
	want := numbers("m", 5)
	for _, r := range tr.publish("all", want...) {
		matched(tr, r, len(clients))
	}
	each(len(clients), func(i int) {
		var got []inbox.Entry
		for len(got) < len(want) {
			page, err := clients[i].next(len(want), 1<<20)
			if err != nil {
				tr.Errorf("receiver %d, after %d entries: %v", i, len(got), err)
				return
			}
			got = append(got, page...)
		}
		if !slices.Equal(payloads(got), want) {
			tr.Errorf("receiver %d read %v, want %v", i, payloads(got), want)
		}
	})
	clients[0].only()
	clients[len(clients)-1].only()
}

// each calls f for 0 to n-1 from a few goroutines.
func each(n int, f func(i int)) {
	const goroutines = 16
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < n; i += goroutines {
				f(i)
			}
		})
	}
	wg.Wait()
}

// A reader that pages while many append never sees a later position before an
// earlier one, misses none, and gets none twice.
func appendVisibleInOrder(tr *trial) {
	pages := []struct{ max, maxBytes int }{{1, 1 << 20}, {7, 60}, {1000, 1 << 20}}
	for n, page := range pages {
		topic := fmt.Sprint("t", n)
		c := tr.connect(inbox.Receiver(topic), lasting)
		c.subscribe(topic, 1)

		const publishers = 8
		each := size(150, 40)
		var wg sync.WaitGroup
		for g := range publishers {
			p := tr.publisher()
			wg.Go(func() {
				for i := range each {
					p.append(message(topic, 1, fmt.Sprintf("%d-%d", g, i)))
				}
				p.wait()
			})
		}
		var got []inbox.Entry
		var err error
		for len(got) < publishers*each && err == nil {
			var more []inbox.Entry
			more, err = c.next(page.max, page.maxBytes)
			got = append(got, more...)
		}
		wg.Wait()
		if err != nil {
			tr.Fatalf("pages of %d: after %d entries: %v", page.max, len(got), err)
		}
		ascending(tr, fmt.Sprintf("pages of %d", page.max), got)

		heard := map[string][]string{}
		for _, e := range got {
			payload := string(e.Envelope.Payload)
			heard[payload[:1]] = append(heard[payload[:1]], payload)
		}
		for g := range publishers {
			who := fmt.Sprint(g)
			same(tr, "messages of publisher "+who, heard[who], numbers(who, each))
		}
		c.only()
	}
}

func appendForAbsent(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/+", 1)
	c.close(lasting)
	tr.publish("a/b", "one", "two")
	tr.restart()
	tr.publish("a/b", "three")
	c = tr.connect("c", lasting)
	if !c.resumed {
		tr.Fatal("the session was not resumed")
	}
	c.only("one", "two", "three")
}

// sameEnvelope compares every field; nil and empty are the same.
func sameEnvelope(tr *trial, got, want *inbox.Envelope) {
	tr.Helper()
	a, b := reflect.ValueOf(*got), reflect.ValueOf(*want)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			tr.Fatalf("envelope %v: %s is %.200q, want %.200q", want.ID, a.Type().Field(i).Name,
				fmt.Sprint(x), fmt.Sprint(y))
		}
	}
}
