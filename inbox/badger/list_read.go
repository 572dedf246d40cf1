package badger

import (
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// postingList is the postings of one list in order: its records on disk, and what is
// behind them in memory. It is for one goroutine, and holds three records at most.
// Where a record cannot be read, it ends; see lists.err.
type postingList struct {
	in *lists
	id listID

	at   *postings // the record that was looked for last, but for the two below:
	from inbox.Position
	// the first that has anything at or behind from

	open     *postings // the last on disk; nil if there is none
	openRead bool      // it was looked for
	rest     *postings // what is behind it; nil if nothing is
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
	if r := l.tail(); r != nil && p <= r.last() {
		return r
	}
	return nil
}

// recordBefore returns the last record that ends before p, nil if there is none.
func (l *postingList) recordBefore(p inbox.Position) *postings {
	if r := l.tail(); r != nil && r.last() < p {
		return r
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
	if r := l.tail(); r != nil {
		return r
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
func (l *postingList) tail() *postings {
	if l.restMade {
		return l.rest
	}
	l.restMade = true
	f := l.in.fresh.lists[l.id]
	if f == nil {
		return nil
	}
	before, all := tally{}, f.postings
	if r := l.onDisk(); r != nil {
		before, all = r.total(), behind(all, r.last())
	}
	if len(all) == 0 {
		return nil
	}
	r, err := parsePostings(appendPostings(nil, f.sender, f.topic, before, all))
	if err != nil {
		l.in.fail(l.id.key(l.in.incarnation, endless), err)
	}
	l.rest = r
	return r
}

// names returns of which sender and topic the list is: empty texts where it is of
// all.
func (l *postingList) names() (sender, topic string) {
	if r := l.last(); r != nil {
		return string(r.sender), string(r.topic)
	}
	return "", ""
}

// upTo is what the list comes to up to p. Between two positions lies the difference.
// What is below the first position that anybody is still to read may be gone, so
// that positions must not be below that.
func (l *postingList) upTo(p inbox.Position) tally {
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
// Cost: two seeks; if some of it expires by itself, a look at each record.
func (l *postingList) live(after, upTo inbox.Position, d deadline) tally {
	all := l.between(after, upTo)
	if all.messages == 0 {
		return tally{}
	}
	return all.minus(l.over(after, upTo, d, all.expiring > 0))
}

// over is what those entries behind one position and up to another come to that are
// over. None may expire by itself, or some may. Messages are as old as their place
// says, but for the list's skew.
func (l *postingList) over(after, upTo inbox.Position, d deadline, expiring bool) (t tally) {
	if !expiring && d.keepsAll() {
		return tally{}
	}
	for r := l.record(after + 1); r != nil && r.first <= upTo; r = l.record(r.last() + 1) {
		t = t.plus(r.over(r.upTo(after), r.upTo(upTo), d))
		if !expiring && r.copies < r.n && r.oldest-l.in.fresh.clock.skew > d.old {
			break
		}
	}
	return t
}
