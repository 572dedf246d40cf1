package badger

import (
	"context"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of reading by lists.
const (
	mostMerged   = 1000 // lists; if there are more, reading everything costs no more
	readTogether = 256  // entries that are looked for before they are read
)

// eachMeant calls do with the unread entries that a selection means, as each does with
// all. Of those whose time is over it has nothing but that. Cost: a seek for each
// pair that is meant, and about 5 µs for each entry, less where they are close to each
// other. Error: errUnsorted if that is too many pairs.
func (x *sorted) eachMeant(ctx context.Context, sel inbox.Selection, after, upTo inbox.Position, back bool, do func(met) bool) error {
	var walks []*walk
	for _, from := range x.places {
		some := cut(from.within, after, upTo)
		if len(some) == 0 {
			continue
		}
		for l := range from.in.pairs(sel) {
			if len(walks) == mostMerged {
				return errUnsorted
			}
			w := l.after(some[0].After)
			if back {
				w = l.before(min(upTo, endless-1) + 1)
			}
			walks = append(walks, w.in(x.withinOf(l, some)))
		}
	}
	some := &chosen{x: x, merged: mergeLists(back, walks...), back: back, do: do}
	for some.next() {
		if err := some.read(ctx); err != nil {
			return err
		}
	}
	return x.err()
}

// chosen is entries that were found in lists, some at a time.
type chosen struct {
	x       *sorted
	merged  *mergedLists
	back    bool
	do      func(met) bool
	stopped bool

	entries []chosenEntry
}

type chosenEntry struct {
	posting
	list *postingList
	over bool
}

// next finds the next entries, and reports whether there are any.
func (c *chosen) next() bool {
	c.entries = c.entries[:0]
	for !c.stopped && len(c.entries) < readTogether {
		p, l, ok := c.merged.next()
		if !ok {
			break
		}
		c.entries = append(c.entries, chosenEntry{p, l, c.x.exact && c.x.deadline.isOver(&p)})
	}
	return len(c.entries) > 0
}

// read reads the entries at hand, but for those whose time is over, and passes all on
// in their order.
func (c *chosen) read(ctx context.Context) error {
	var places inbox.Spans
	for i := range c.entries {
		e := &c.entries[i]
		if c.back {
			e = &c.entries[len(c.entries)-1-i]
		}
		if !e.over {
			places = places.Append(inbox.Span{After: e.position - 1, Through: e.position})
		}
	}
	if len(places) > 0 {
		err := c.x.eachOf(ctx, part{upTo: c.x.upTo, back: c.back, within: &places, few: true}, func(e met) bool {
			c.passOver(e.Position)
			c.pass(e)
			return !c.stopped
		})
		if err != nil {
			return err
		}
	}
	for len(c.entries) > 0 && !c.stopped {
		c.passOver(c.entries[len(c.entries)-1].position)
	}
	return nil
}

// passOver passes on those entries at a position or in front of it whose time is over.
func (c *chosen) passOver(p inbox.Position) {
	for len(c.entries) > 0 && !c.stopped {
		e := c.entries[0]
		if c.back && e.position < p || !c.back && e.position > p {
			return
		}
		c.entries = c.entries[1:]
		if _, deleted := slices.BinarySearch(c.x.deleted[e.list.id.name], e.id); e.over && !deleted {
			sender, topic := e.list.names()
			env := &inbox.Envelope{ID: inbox.MessageID{Sequence: e.id, Store: c.x.s.id}, Time: e.time, Topic: topic, Client: sender}
			c.pass(met{Entry: inbox.Entry{Position: e.position, Envelope: env}, over: true})
		}
	}
}

func (c *chosen) pass(e met) { c.stopped = c.stopped || !c.do(e) }

// addTally counts several messages.
func addTally(c *inbox.Count, t tally) {
	c.Messages += int64(t.messages)
	c.Bytes += int64(t.bytes)
}

// count counts what is unread and meant by a selection behind one position and up to
// another. Error: errUnsorted if the index does not tell.
func (x *sorted) count(ctx context.Context, sel inbox.Selection, after, upTo inbox.Position) (c inbox.Count, err error) {
	if !x.exact {
		return c, errUnsorted
	}
	err = x.eachPair(ctx, sel, after, upTo, func(p *unreadPair) bool {
		addTally(&c, p.count())
		return true
	})
	if err == nil {
		err = x.eachOpen(ctx, after, upTo, func(e met) {
			if !e.over && sel.Matches(e.Envelope) {
				addTo(&c, e.Envelope)
			}
		})
	}
	return c, err
}

// summarize adds to a summary what is unread up to its position. Cost: a few searches
// for each pair, about 25 µs. Error: errUnsorted if the index does not tell.
func (x *sorted) summarize(ctx context.Context, c *summary) error {
	if !x.exact {
		return errUnsorted
	}
	err := x.eachPair(ctx, inbox.Selection{}, 0, c.sum.Position, func(p *unreadPair) bool {
		sender, topic := p.list.names()
		if c.excepts(sender) {
			return true
		}
		t := p.count()
		if t.messages == 0 {
			return true
		}
		oldest, ok := p.oldest()
		newest, _ := p.newest()
		if ok {
			c.addPair(sender, topic, t, x.spot(oldest), x.spot(newest))
		}
		return true
	})
	if err == nil {
		err = x.eachOpen(ctx, 0, c.sum.Position, c.add)
	}
	return err
}

func (x *sorted) spot(e posting) spot {
	return spot{e.position, inbox.Mark{ID: inbox.MessageID{Sequence: e.id, Store: x.s.id}, Time: e.time}}
}

// mean finds what an acknowledgement means. Error: errUnsorted if the index does not
// tell.
func (x *sorted) mean(ctx context.Context, a inbox.Acknowledgement, whole inbox.Span, m *meaning) error {
	if !x.exact {
		return errUnsorted
	}
	all := a.Selection == inbox.Selection{}
	mark := func(of pair) {
		if all {
			of = everyPair
		}
		m.marks[of] = inbox.Spans{whole}
	}
	err := x.eachPair(ctx, a.Selection, whole.After, whole.Through, func(p *unreadPair) bool {
		if p.some() {
			mark(p.list.id.name)
			m.n += int(p.count().messages)
		}
		return true
	})
	if err == nil {
		err = x.eachOpen(ctx, whole.After, whole.Through, func(e met) {
			if a.Matches(e.Envelope) {
				mark(pairOf(e.Envelope.Sender(), e.Envelope.Topic))
				m.count(e)
			}
		})
	}
	return err
}
