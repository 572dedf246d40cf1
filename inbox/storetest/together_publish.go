package storetest

import (
	"fmt"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func (g *gathering) message() *inbox.Envelope {
	voice := pick(g.random, voices)
	if voice == g.erasing {
		voice = "somebody else"
	}
	return said(voice, pick(g.random, places), fmt.Sprint(len(g.told)))
}

func (g *gathering) queuePublish() {
	for range 1 + g.random.IntN(3) {
		e := g.message()
		name := ""
		if len(g.keeping.History) > 0 && g.random.IntN(3) == 0 {
			name = fmt.Sprint(g.random.IntN(len(g.told) + 1))
			e.UserProperties = []inbox.UserProperty{{Key: inbox.PropertyMessageID, Value: name}}
		}
		key := e.Client + " " + name
		t := g.names[key]
		if t != nil && t.erased { // the name may be remembered, or not
			e.UserProperties, name, t = nil, "", nil
		}
		g.note("%s says %s in %s under %q, again %v", e.User, e.Payload, e.Topic, name, t != nil)
		g.main.append(e)
		g.queued++
		if t == nil {
			t = &told{envelope: *e}
			g.tell(t)
			if name != "" {
				g.names[key] = t
			}
		}
		g.numbered = append(g.numbered, t)
	}
}

// queueExactly publishes under a packet id, or forgets one.
func (g *gathering) queueExactly(m *guest) {
	c, id := m.client, uint16(1+g.random.IntN(3))
	known := m.recorded[id]
	g.queued++
	if g.random.IntN(2) == 0 {
		g.note("%s completes %d, known %v", m.receiver, id, known)
		done := make(chan error, 1)
		c.Complete(id, func(is bool, err error) {
			if err == nil && is != known {
				err = fmt.Errorf("packet id is known: %v", is)
			}
			done <- err
		})
		delete(m.recorded, id)
		g.ends = append(g.ends, func() { g.succeeds("complete")(<-done) })
		return
	}
	e := g.message()
	e.QoS = 2
	t := &told{envelope: *e}
	g.note("%s publishes %s in %s under %d, again %v", m.receiver, e.Payload, e.Topic, id, known)
	done := make(chan result, 1)
	c.Publish(g.ctx, id, e, func(r inbox.Receipt, err error) { done <- result{receipt: r, err: err} })
	if m.recorded[id] = true; !known {
		g.tell(t)
	}
	g.ends = append(g.ends, func() {
		r := <-done
		if r.err != nil || r.receipt.Duplicate != known {
			g.Fatalf("%s published under %d: %+v, %v; want a repeat: %v", m.receiver, id, r.receipt, r.err, known)
		}
		t.id, t.envelope.ID = r.receipt.ID, r.receipt.ID
	})
}

// queueDelete deletes a message, or everything of a sender.
func (g *gathering) queueDelete() {
	if len(g.keeping.History) == 0 {
		return
	}
	looking := slices.ContainsFunc(g.all, func(m *guest) bool { return m.looking })
	if g.erasing == "" && !looking && g.random.IntN(3) == 0 {
		g.queueErase(pick(g.random, voices))
		return
	}
	now := nowMillis()
	alive := slices.DeleteFunc(slices.Clone(g.told), func(t *told) bool {
		return t.id == (inbox.MessageID{}) || !g.kept(t, now+10_000) || t.erased || t.envelope.User == g.erasing
	})
	if len(alive) == 0 {
		return
	}
	t := pick(g.random, alive)
	g.note("delete %s", t.envelope.Payload)
	t.deleted = true
	g.begin(func() error { return g.store.Delete(g.ctx, t.id, "") }, g.succeeds("delete"))
}

func (g *gathering) queueErase(sender string) {
	g.note("erase %s", sender)
	g.erasing = sender
	all := slices.DeleteFunc(slices.Clone(g.told), func(t *told) bool { return t.envelope.User != sender })
	g.begin(func() error { return second(g.store.Erase(g.ctx, sender)) }, func(err error) {
		g.succeeds("erase")(err)
		after := nowMillis() // what was over by then may not have been found
		for _, t := range all {
			if g.kept(t, after) {
				t.deleted, t.erased = true, true
				t.envelope.User, t.envelope.Client = "", ""
			}
		}
	})
}
