package storetest

import (
	"fmt"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// named is a message that its publisher has named.
func named(client, name, payload string, qos byte) *inbox.Envelope {
	e := message("a", qos, payload)
	e.Client = client
	e.UserProperties = []inbox.UserProperty{{Key: "k", Value: "v"}, {Key: inbox.PropertyMessageID, Value: name}}
	return e
}

// A message that is sent again under its name is stored once, over a restart, under
// another packet id and after its receiver has it.
func appendNamed(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 2)
	first := tr.append(named("p", "one", "first", 1))[0]
	if first.Duplicate {
		tr.Fatalf("the first is a repetition: %+v", first)
	}
	repeats := func(when string, e *inbox.Envelope) {
		tr.Helper()
		if r := tr.append(e)[0]; !r.Duplicate || r.ID != first.ID {
			tr.Fatalf("%s: receipt %+v, want a duplicate of %v", when, r, first.ID)
		}
	}
	repeats("at once", named("p", "one", "again", 1))
	repeats("at another QoS", named("p", "one", "again", 2))
	c.finish(c.only("first")...)
	c.save()
	repeats("acknowledged", named("p", "one", "again", 1))
	tr.restart()
	repeats("after a restart", named("p", "one", "again", 1))

	p := tr.connect("p", lasting)
	for _, id := range []uint16{7, 8} {
		if r := p.tryPublish(id, named("p", "two", "second", 2)); r.err != nil || r.receipt.Duplicate != (id == 8) {
			tr.Fatalf("publish under id %d: %+v, %v", id, r.receipt, r.err)
		}
		p.completes(id, true)
	}
	tr.connect("c", lasting).only("second")
}

// Names are those of one client, and QoS 0 has none: it is never sent again.
func appendNamedByOthers(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	var heard int
	for _, e := range []*inbox.Envelope{
		named("p", "x", "p", 1), named("q", "x", "q", 1), named("", "x", "nobody", 1), named("p", "", "empty", 1), named("p", "", "empty again", 1),
		named("p", "y", "zero", 0), named("p", "y", "zero again", 0), named("p", "px", "another", 1), named("pp", "x", "pp", 1),
	} {
		if r := tr.append(e)[0]; r.Duplicate {
			tr.Fatalf("%s is a repetition", e.Payload)
		}
		if e.QoS == 0 {
			heard++
		}
	}
	c.heard(heard)
	c.only("p", "q", "nobody", "empty", "empty again", "another", "pp")
}

// A name goes when its message has expired.
func appendNamedExpired(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	short := named("p", "x", "short", 1)
	short.Expiry = time.Now().Add(time.Millisecond).UnixMilli()
	tr.append(short)
	<-time.After(time.Until(time.UnixMilli(short.Expiry)))
	if r := tr.append(named("p", "x", "later", 1))[0]; r.Duplicate {
		tr.Fatalf("it repeats an expired one: %+v", r)
	}
	got := payloads(c.rest())
	same(tr, "the last", got[len(got)-1:], []string{"later"})
}

// Whoever sends a name many times at once, over several connections, has it stored
// once, and is told the same id each time.
func appendNamedTogether(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	const names, times = 20, 8
	results := make([][]inbox.Receipt, times)
	publishers := make([]*publisher, times)
	for i := range publishers {
		publishers[i] = tr.publisher()
	}
	each(times, func(i int) {
		p := publishers[i]
		for n := range names {
			p.append(named("p", fmt.Sprint(n), fmt.Sprint("m", n), 1))
		}
		results[i] = p.stored(0)
	})
	for n := range names {
		firsts := 0
		for i := range results {
			if !results[i][n].Duplicate {
				firsts++
			}
			if results[i][n].ID != results[0][n].ID {
				tr.Fatalf("name %d has ids %v and %v", n, results[i][n].ID, results[0][n].ID)
			}
		}
		if firsts != 1 {
			tr.Fatalf("name %d was stored %d times", n, firsts)
		}
	}
	if got := c.rest(); len(got) != names {
		tr.Fatalf("%d messages, want %d", len(got), names)
	}
}
