package badger

import (
	"sort"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// postingList is the postings of one list in order: its records on disk, and what is
// behind them in memory. It is for one goroutine.
// Where a record cannot be read, it ends; see lists.err.
type postingList struct {
	in *lists
	id listID

	// The closed record that was looked for last: the first that has anything at from or
	// behind it.
	at   *postings
	from inbox.Position

	open     *postings   // the last on disk, see readOpen; nil if there is none
	openRead bool        // it was looked for
	rest     []*postings // what is behind it, in memory
	restMade bool
}

// record returns the first record that has a posting at or behind p, nil if there is
// none. Cost: a seek, about 5 µs, unless it is the one of the call before, or the last.
func (l *postingList) record(p inbox.Position) *postings {
	if l.at != nil && l.from <= p && p <= l.at.last() {
		return l.at
	}
	if r := l.onDisk(); r != nil && p <= r.last() {
		if p >= r.first || r.before.messages == 0 {
			return r
		}
		if closed := l.in.seek(l.id, p); closed != nil {
			l.at, l.from = closed, p
			return closed
		}
		return r
	}
	rest := l.tail()
	if i := sort.Search(len(rest), func(i int) bool { return rest[i].last() >= p }); i < len(rest) {
		return rest[i]
	}
	return nil
}

// recordBefore returns the last record that ends before p, nil if there is none.
func (l *postingList) recordBefore(p inbox.Position) *postings {
	rest := l.tail()
	if i := sort.Search(len(rest), func(i int) bool { return rest[i].last() >= p }); i > 0 {
		return rest[i-1]
	}
	r := l.onDisk()
	switch {
	case r == nil:
		return nil
	case r.last() < p:
		return r
	case p == 0 || r.before.messages == 0:
		return nil
	}
	return l.in.seekBack(l.id, p-1)
}

// last returns the last record, nil if the list is empty.
func (l *postingList) last() *postings {
	if rest := l.tail(); len(rest) > 0 {
		return rest[len(rest)-1]
	}
	return l.onDisk()
}

// onDisk returns the last record on disk.
func (l *postingList) onDisk() *postings {
	if !l.openRead {
		var err error
		if l.open, err = readOpen(l.in.txn, l.in.incarnation, l.id); err != nil {
			l.in.fail(l.id.key(l.in.incarnation, endless), err)
		}
		l.openRead = true
	}
	return l.open
}

// tail returns what is behind everything that is in the records of the list.
func (l *postingList) tail() []*postings {
	if l.restMade {
		return l.rest
	}
	l.restMade = true
	before, after := tally{}, inbox.Position(0)
	if r := l.onDisk(); r != nil {
		before, after = r.total(), r.last()
	}
	if f := l.in.fresh.lists[l.id]; f != nil {
		if all := behind(f.postings, after); len(all) > 0 {
			l.rest = append(l.rest, makePostings(f.sender, f.topic, before, all))
			before = l.rest[0].total()
		}
	}
	for _, v := range l.in.recent {
		l.rest = v.appendRecords(l.rest, l.id, before, after)
		if n := len(l.rest); n > 0 {
			before = l.rest[n-1].total()
		}
	}
	return l.rest
}

// names returns of which sender and topic the list is: empty texts where it is of
// all.
func (l *postingList) names() (sender, topic string) {
	if r := l.last(); r != nil {
		return string(r.sender), string(r.topic)
	}
	return "", ""
}

// origin returns the first posting of the list, if that is known, and nothing of the list
// has gone by itself, nor is about to. For those who may ask only for what is behind it,
// it may be gone. In front of it the list comes to nothing.
func (l *postingList) origin() (first posting, ok bool) {
	r := l.onDisk()
	if r != nil {
		o := r.listOrigin()
		return o.posting, o.position != 0 && (o.goes == 0 || l.in.now < o.goes)
	}
	if rest := l.tail(); len(rest) > 0 {
		return rest[0].at(0), true
	}
	return posting{}, false
}

// upTo is what the list comes to up to p. Between two positions lies the difference.
// What is below the first position that anybody is still to read may be gone, so
// that positions must not be below that.
func (l *postingList) upTo(p inbox.Position) tally {
	if first, ok := l.origin(); ok && p < first.position {
		return tally{}
	}
	if r := l.record(p); r != nil {
		return r.tally(r.upTo(p))
	}
	if r := l.last(); r != nil {
		return r.total()
	}
	return tally{}
}

// find returns the posting at a position, if there is one.
func (l *postingList) find(p inbox.Position) (posting, bool) {
	r := l.record(p)
	if r == nil {
		return posting{}, false
	}
	if i := r.upTo(p) - 1; i >= 0 && r.position(i) == p {
		return r.at(i), true
	}
	return posting{}, false
}

// between is what lies behind one position and up to another.
func (l *postingList) between(after, upTo inbox.Position) tally {
	if upTo <= after {
		return tally{}
	}
	return l.upTo(upTo).minus(l.upTo(after))
}

// live is what lies behind one position and up to another, without what is over.
// Cost: two seeks, or none if it is all that there is; if some of it expires by itself, a
// look at each record.
func (l *postingList) live(after, upTo inbox.Position, d deadline) tally {
	all := l.between(after, upTo)
	if all.messages == 0 {
		return tally{}
	}
	return all.minus(l.over(after, upTo, d, all.expiring > 0))
}

// keepsAll reports whether it is known that nothing behind a position is over by its age.
func (l *postingList) keepsAll(after inbox.Position, d deadline) bool {
	first, ok := l.origin()
	return ok && after < first.position && !first.isCopy() && first.time-l.in.clock.skew > d.old
}

// over is what those entries behind one position and up to another come to that are
// over. None may expire by itself, or some may. Messages are as old as their place
// says, but for the list's skew.
func (l *postingList) over(after, upTo inbox.Position, d deadline, expiring bool) (t tally) {
	if !expiring && (d.keepsAll() || l.keepsAll(after, d)) {
		return tally{}
	}
	for r := l.record(after + 1); r != nil && r.first <= upTo; r = l.record(r.last() + 1) {
		t = t.plus(r.over(r.upTo(after), r.upTo(upTo), d))
		if !expiring && r.copies < r.n && r.oldest-l.in.clock.skew > d.old {
			break
		}
	}
	return t
}
