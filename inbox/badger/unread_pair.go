package badger

import (
	"context"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// unreadPair is what is unread of one pair in one place, without what is on its way.
type unreadPair struct {
	x      *sorted
	list   *postingList
	within inbox.Spans

	// The same pair in places that were looked at before. What is there too, at the same
	// position, was counted there.
	before []ranged
}

// ranged is a part of a list.
type ranged struct {
	list   *postingList
	within inbox.Spans
}

// eachPair calls do with what is unread, as far as a selection means it, behind one
// position and up to another, until it returns false: with each pair in each place.
func (x *sorted) eachPair(ctx context.Context, sel inbox.Selection, after, upTo inbox.Position, do func(*unreadPair) bool) error {
	open := x.open()
	var seen map[pair][]int // the places of each pair
	if len(x.places) > 1 {
		seen = map[pair][]int{}
	}
	n := 0
	for i := range x.places {
		some := cut(x.places[i].within, after, upTo).Subtract(open)
		if len(some) == 0 {
			continue
		}
		for l := range x.places[i].in.pairs(sel) {
			if n++; n%lookEvery == 0 {
				if err := x.s.goesOn(ctx); err != nil {
					return err
				}
			}
			p := &unreadPair{x: x, list: l, within: x.withinOf(l, some)}
			if seen != nil {
				for _, j := range seen[l.id.name] {
					other := x.places[j].in.list(l.id)
					p.before = append(p.before, ranged{other, x.withinOf(other, cut(x.places[j].within, after, upTo))})
				}
				seen[l.id.name] = append(seen[l.id.name], i)
			}
			if len(p.within) > 0 && !do(p) {
				return x.err()
			}
		}
	}
	return x.err()
}

// some reports whether there is anything that nobody has deleted, be its time over or
// not.
func (p *unreadPair) some() bool {
	w := p.list.after(p.within[0].After).in(p.within)
	for e, ok := w.next(); ok; e, ok = w.next() {
		if !p.isDeleted(&e) {
			return true
		}
	}
	return false
}

// count is what there is that nobody has deleted, and whose time is not over. Cost:
// two searches for each span; where the same pair is in several places, or copies of it
// may have been deleted, or there are more spans than entries, 10 ns an entry.
func (p *unreadPair) count() (t tally) {
	first, last := p.within[0].After, p.within[len(p.within)-1].Through
	hull := p.list.between(first, last)
	deleted := p.x.deleted[p.list.id.name]
	switch {
	case hull.messages == 0:
		return tally{}
	case len(p.before) > 0, len(deleted) > 0 && hull.copies > 0, uint64(len(p.within)) > hull.messages:
		return p.walked()
	}
	for _, span := range p.within {
		t = t.plus(p.list.live(span.After, span.Through, p.x.deadline))
	}
	for _, id := range deleted {
		if e, ok := p.list.find(id); ok && p.within.Contains(id) && !p.x.deadline.isOver(&e) {
			t = t.minus(e.tally())
		}
	}
	return t
}

// walked is count, entry by entry.
func (p *unreadPair) walked() (t tally) {
	var walks []*walk
	for _, b := range p.before {
		walks = append(walks, b.list.after(p.within[0].After).in(b.within))
	}
	before := mergeLists(false, walks...)
	counted, more := before.next()
	w := p.list.after(p.within[0].After).in(p.within)
	for e, ok := w.next(); ok; e, ok = w.next() {
		for more && counted.position < e.position {
			counted, more = before.next()
		}
		if !p.isGone(&e) && (!more || counted.position != e.position) {
			t = t.plus(e.tally())
		}
	}
	return t
}

func (p *unreadPair) isDeleted(e *posting) bool {
	_, deleted := slices.BinarySearch(p.x.deleted[p.list.id.name], e.id)
	return deleted
}

// isGone reports whether an entry is over, or its message was deleted.
func (p *unreadPair) isGone(e *posting) bool { return p.x.deadline.isOver(e) || p.isDeleted(e) }

// oldest and newest return the first and the last of what counts.
func (p *unreadPair) oldest() (posting, bool) {
	span := p.within[0]
	if e, ok := p.list.origin(); ok && span.After < e.position && e.position <= span.Through && !p.isGone(&e) {
		return e, true
	}
	return p.firstOf(p.list.after(p.within[0].After))
}

func (p *unreadPair) newest() (posting, bool) {
	last := p.within[len(p.within)-1].Through
	return p.firstOf(p.list.before(max(last, last+1))) // endless has nothing behind it
}

func (p *unreadPair) firstOf(w *walk) (posting, bool) {
	w.in(p.within)
	for e, ok := w.next(); ok; e, ok = w.next() {
		if !p.isGone(&e) {
			return e, true
		}
		w.passOver(p.x.deadline)
	}
	return posting{}, false
}
