package badger

import (
	"cmp"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// chosen is entries that were found in lists, some at a time.
type chosen struct {
	x      *sorted
	merged *mergedLists
	back   bool

	entries []chosenEntry
	in      map[incarnation][]inbox.Position // where the streams are that have some of them
}

type chosenEntry struct {
	posting
	list *postingList
	met  met
	ok   bool
}

// next finds the next entries, and reports whether there are any.
func (c *chosen) next() bool {
	c.entries, c.in = c.entries[:0], map[incarnation][]inbox.Position{}
	for len(c.entries) < readTogether {
		p, ok := c.merged.next()
		if !ok {
			break
		}
		c.entries = append(c.entries, chosenEntry{posting: p, list: c.merged.in[0]})
		for _, l := range c.merged.in {
			if inc := l.in.incarnation; inc != c.x.incarnation {
				c.in[inc] = append(c.in[inc], p.position)
			}
		}
	}
	return len(c.entries) > 0
}

// read reads the entries at hand that are for the receiver. Those whose time is over are
// not read.
func (c *chosen) read() {
	at := make([]inbox.Position, 0, len(c.entries))
	for i := range c.entries {
		if e := &c.entries[i]; c.x.exact && c.x.deadline.isOver(&e.posting) {
			c.leave(e)
		} else {
			at = append(at, e.position)
		}
	}
	find := func(p inbox.Position) *chosenEntry {
		i, _ := slices.BinarySearchFunc(c.entries, p, func(e chosenEntry, p inbox.Position) int {
			if c.back {
				return cmp.Compare(p, e.position)
			}
			return cmp.Compare(e.position, p)
		})
		return &c.entries[i]
	}
	x := c.x
	x.s.eachAt(x.txn, x.incarnation, c.ascending(at), func(i int, s stored) {
		e := find(s.position)
		if e.met.Entry, e.ok = x.s.decode(x.txn, s); e.ok && isAside(e.met.Entry) {
			e.ok = false
		}
	})
	for inc, at := range c.in {
		x.s.eachAt(x.txn, inc, c.ascending(at), func(_ int, s stored) {
			c.grant(inc, find(s.position), s)
		})
	}
	for i := range c.entries {
		e := &c.entries[i]
		if !e.ok || e.met.over {
			continue
		}
		e.ok = !drops(x.leavings, e.position, e.met.Envelope.Topic) && (x.acked == nil || !x.acked.covers(&e.met.Entry))
		e.met.over = x.s.isOver(e.met.Entry, x.now) || e.met.Envelope.Expired(x.now)
	}
}

// ascending turns positions round that were found backwards.
func (c *chosen) ascending(at []inbox.Position) []inbox.Position {
	if c.back {
		slices.Reverse(at)
	}
	return at
}

// grant adds what a stream grants of an entry.
func (c *chosen) grant(inc incarnation, e *chosenEntry, s stored) {
	if e.met.over {
		return
	}
	for _, src := range c.x.sources {
		if src.stream.incarnation != inc || !src.reads(s.position) {
			continue
		}
		if e.met.Envelope == nil {
			var ok bool
			if e.met.Entry, ok = c.x.s.decode(c.x.txn, s); !ok {
				return
			}
			e.met.Grant = inbox.Grant{}
		}
		e.ok = src.grant(&e.met.Grant, e.met.Envelope, c.x.receiver) || e.ok
	}
}

// leave makes an entry whose time is over one that has nothing but that.
func (c *chosen) leave(e *chosenEntry) {
	sender, topic := e.list.names()
	_, deleted := slices.BinarySearch(c.x.deleted[e.list.id.name], e.id)
	env := &inbox.Envelope{ID: inbox.MessageID{Sequence: e.id, Store: c.x.s.id}, Time: e.time, Topic: topic, Client: sender}
	e.met, e.ok = met{Entry: inbox.Entry{Position: e.position, Envelope: env}, over: true}, !deleted
}
