package badger

import "github.com/mqtt-inbox/mqtt-inbox/inbox"

// walk goes over the postings of a list, from one on, forwards or backwards.
type walk struct {
	list *postingList
	back bool
	r    *postings // nil at the end
	i    int       // the next in it

	within inbox.Spans // where postings count, if it is bounded
	bound  bool
}

// in bounds a walk to some spans.
func (w *walk) in(within inbox.Spans) *walk {
	w.within, w.bound = within, true
	return w
}

// after begins behind p.
func (l *postingList) after(p inbox.Position) *walk {
	w := &walk{list: l}
	w.skip(p)
	return w
}

// before begins in front of p, backwards.
func (l *postingList) before(p inbox.Position) *walk {
	w := &walk{list: l, back: true}
	w.skip(p)
	return w
}

// skip has the next posting be the one behind p, or in front of it.
func (w *walk) skip(p inbox.Position) {
	l := w.list
	switch {
	case !w.back:
		if w.r = l.record(p + 1); w.r != nil {
			w.i = w.r.upTo(p)
		}
		return
	case p == 0:
		w.r = nil
		return
	}
	if w.r = l.record(p); w.r == nil {
		w.r = l.last()
	}
	if w.r != nil {
		w.i = w.r.upTo(p-1) - 1
		w.turn()
	}
}

// turn goes to the record before if there is nothing before in this one.
func (w *walk) turn() {
	if w.i < 0 {
		if w.r = w.list.recordBefore(w.r.first); w.r != nil {
			w.i = w.r.n - 1
		}
	}
}

// next returns the next posting, or false at the end. Cost: about 10 ns, and a seek
// at the end of a record, or of a span.
func (w *walk) next() (posting, bool) {
	for {
		p, ok := w.step()
		if !ok || !w.bound {
			return p, ok
		}
		q, ok := w.wanted(p.position)
		switch {
		case !ok:
			w.r = nil
			return posting{}, false
		case q == p.position:
			return p, true
		case w.back:
			w.skip(q + 1)
		default:
			w.skip(q - 1)
		}
	}
}

// passOver has the walk go to the next record if all that is at hand is over.
func (w *walk) passOver(d deadline) {
	for w.r != nil && w.r.allOver(d) {
		if w.back {
			w.i = -1
			w.turn()
			continue
		}
		w.r, w.i = w.list.record(w.r.last()+1), 0
	}
}

// wanted returns the first position at p or after it, in the direction of the walk,
// that counts, if there is one.
func (w *walk) wanted(p inbox.Position) (inbox.Position, bool) {
	if w.back {
		return w.within.AtOrBefore(p)
	}
	return w.within.AtOrBehind(p)
}

func (w *walk) step() (posting, bool) {
	if w.r == nil {
		return posting{}, false
	}
	p := w.r.at(w.i)
	if w.back {
		w.i--
		w.turn()
		return p, true
	}
	if w.i++; w.i == w.r.n {
		w.r, w.i = w.list.record(p.position+1), 0
	}
	return p, true
}
