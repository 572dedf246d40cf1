package badger

import (
	"context"
	"errors"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of reading by lists.
const (
	mostMerged   = 1000 // lists; if there are more, reading everything costs no more
	readTogether = 256  // entries that are looked for before they are read
)

// eachMeant calls do with the unread entries that a selection means, as each does with
// all. Of those whose time is over it has nothing but that. Cost: a seek for each
// pair that is meant, and about 25 µs for each entry, 1 µs where they are close to each
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
	some := &chosen{x: x, merged: mergeLists(back, walks...), back: back}
	for some.next() {
		if err := x.s.goesOn(ctx); err != nil {
			return err
		}
		some.read()
		for i := range some.entries {
			if e := &some.entries[i]; e.ok && !do(e.met) {
				return x.err()
			}
		}
	}
	return x.err()
}

// count counts what is unread and meant by a selection behind one position and up to
// another. Cost: a few searches for each pair, or two in all where nothing has to be
// told apart. Error: errUnsorted if the index does not tell.
func (x *sorted) count(ctx context.Context, sel inbox.Selection, after, upTo inbox.Position) (c inbox.Count, err error) {
	if !x.exact {
		return c, errUnsorted
	}
	if sel == (inbox.Selection{}) && x.isPlain() {
		for _, from := range x.places {
			all := &unreadPair{x: x, list: from.in.list(listID{kind: listAll}), within: cut(from.within, after, upTo).Subtract(x.open())}
			if len(all.within) > 0 {
				addTally(&c, all.count())
			}
		}
		return c, errors.Join(x.err(), x.eachOpen(ctx, after, upTo, func(e met) {
			if !e.over {
				addTo(&c, e.Envelope)
			}
		}))
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

// isPlain reports whether everything within the one place that there is counts: nothing
// is acknowledged, given up or deleted by sender or topic.
func (x *sorted) isPlain() bool {
	return len(x.places) <= 1 && len(x.leavings) == 0 && len(x.deleted) == 0 && (x.acked == nil || x.acked.allOnly())
}

// summarize adds to a summary what is unread up to its position. Cost: about 5 µs for each
// pair, and a search more, 5 µs, for those of which something is read. Error: errUnsorted
// if the index does not tell.
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
