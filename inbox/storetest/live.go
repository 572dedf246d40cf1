package storetest

import (
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Messages that are granted QoS 0 go to Live, the others to Next, and each way
// keeps the order.
func liveInOrder(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connect(inbox.Receiver(fmt.Sprint("c", expiry)), expiry)
		c.add(inbox.Subscription{Filter: "zero", QoS: 0, Identifier: 4, RetainAsPublished: true, RetainHandling: 2})
		c.subscribe("two", 2)
		n := size(200, 50)
		from := tr.main.sent
		for i := range n {
			low := message("zero", byte(1+i%2), fmt.Sprint("low-", i))
			low.Retain = true
			tr.main.append(low)
			tr.main.append(message("two", 0, fmt.Sprint("zero-", i)))
			tr.main.append(message("two", 2, fmt.Sprint("kept-", i)))
		}
		receipts := tr.main.stored(from)

		live := c.heard(2 * n)
		for i, e := range live {
			want, grant := fmt.Sprint("low-", i/2), inbox.Grant{Retain: true, Identifiers: []uint32{4}}
			if i%2 == 1 {
				want, grant = fmt.Sprint("zero-", i/2), inbox.Grant{}
			}
			if got := string(e.Envelope.Payload); got != want {
				tr.Fatalf("live message %d is %q, want %q", i, got, want)
			}
			sameGrant(tr, e, grant)
			if e.Position != 0 {
				tr.Fatalf("live message %q has position %d", want, e.Position)
			}
			if id := receipts[i/2*3+i%2].ID; e.Envelope.ID != id {
				tr.Fatalf("live message %q has id %v, its receipt %v", want, e.Envelope.ID, id)
			}
		}
		c.only(numbers("kept", n)...)
		if len(c.live) != 0 {
			tr.Fatalf("%d live messages too many", len(c.live))
		}
		c.unsubscribe("zero", "two")
	}
}

func liveNeverKept(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 0)
	c.subscribe("b", 1)
	tr.publish("a", "while connected")
	c.heard(1)
	c.close(lasting)
	tr.append(message("a", 1, "while absent"), message("b", 0, "zero while absent"), message("b", 1, "kept"))
	c = tr.connect("c", lasting)
	c.only("kept")
	tr.restart()
	c = tr.connect("c", lasting)
	c.expect("kept")
	c.only()
	if len(c.live) != 0 {
		tr.Fatalf("a live message was kept: %v", payloads(c.heard(1)))
	}
}

func liveNil(tr *trial) {
	in, _, err := tr.store.Open(tr.ctx, "c", inbox.OpenOptions{Expiry: lasting})
	if err != nil {
		tr.Fatalf("open without callbacks: %v", err)
	}
	c := &client{Inbox: in, tr: tr, receiver: "c"}
	c.add(inbox.Subscription{Filter: "zero", QoS: 0}, inbox.Subscription{Filter: "one", QoS: 1})
	tr.append(message("zero", 1, "dropped"), message("one", 1, "kept"))
	c.only("kept")
	c.save()
	c.close(lasting)

	// Without State nothing was delivered.
	c = tr.connect("c", lasting)
	sameState(tr, c.State(), inbox.State{})
	c.expect("kept")
}

func liveToOwner(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		r := inbox.Receiver(fmt.Sprint("c", expiry))
		first := tr.connect(r, expiry)
		first.subscribe("a", 0)
		tr.publish("a", "first")
		first.heard(1)
		second := tr.connect(r, expiry)
		second.subscribe("a", 0)
		tr.publish("a", "second")
		same(tr, "live messages", payloads(second.heard(1)), []string{"second"})
		if len(first.live) != 0 {
			tr.Fatal("a live message went to an earlier owner")
		}
		second.close(expiry)
		tr.publish("a", "third")
		if len(second.live) != 0 {
			tr.Fatal("a live message went to a closed inbox")
		}
	}
}
