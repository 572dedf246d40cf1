package storetest

import (
	"fmt"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// guest is one receiver, and what else is to be known of it.
type guest struct {
	*readerModel
	expiry   inbox.Expiry
	exists   bool // has a session
	will     *inbox.Envelope
	recorded map[uint16]bool // packet ids
	opening  int             // how often it was opened in this run

	shares      bool   // is in a group
	asking      bool   // it has acknowledged by asking in this run, or asked for the last messages
	looking     bool   // it is to subscribe to the last messages with the next commit
	startsAgain bool   // it is starting again, or has in this run
	undo        func() // takes that back, until it is certain; else nil
	unsubs      int    // what it has unsubscribed from in this session
	incarnation int    // its sessions so far
}

// end has the session of a guest end.
func (m *guest) end() {
	*m.readerModel = readerModel{receiver: m.receiver}
	m.recorded, m.undo, m.unsubs = map[uint16]bool{}, nil, 0
	m.exists, m.shares = false, false
	m.incarnation++
}

// lasts reports whether the guest's sessions outlive their connections.
func (m *guest) lasts() bool { return m.expiry != inbox.ExpiryAtOnce }

// snapshot returns how to take back what becomes of the items.
func (m *guest) snapshot() (undo func()) {
	var was []item
	all := slices.Clone(m.items)
	for _, i := range all {
		was = append(was, *i)
	}
	return func() {
		for n, i := range all {
			i.now, i.saved, i.waits, i.acked = was[n].now, was[n].saved, was[n].waits, was[n].acked
		}
		m.undo, m.startsAgain = nil, false
	}
}

// isThere reports whether one of some items is still in the session that there is.
func (m *guest) isThere(some []*item) bool {
	return slices.ContainsFunc(some, func(i *item) bool { return slices.Contains(m.items, i) })
}

// tell has everybody have a message who is to.
func (g *gathering) tell(t *told) {
	g.told = append(g.told, t)
	for _, m := range g.models {
		if m.covers(t.envelope.Topic) {
			m.items = append(m.items, &item{told: t})
		}
	}
}

// bury publishes the will of a guest, if it has one.
func (g *gathering) bury(m *guest) {
	if m.will == nil {
		return
	}
	t := &told{envelope: *m.will}
	g.note("will %s in %s", t.envelope.Payload, t.envelope.Topic)
	m.will = nil
	g.tell(t)
	g.untold = append(g.untold, t)
}

// willFor makes a will now and then, where it can be found afterwards.
func (g *gathering) willFor() *inbox.Will {
	if len(g.keeping.History) == 0 || g.random.IntN(3) == 0 {
		return nil
	}
	g.wills++
	e := said("the dead", pick(g.random, places), fmt.Sprint("will ", g.wills))
	return &inbox.Will{Envelope: e}
}
