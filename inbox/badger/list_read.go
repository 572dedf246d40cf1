package badger

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// postingList is the postings of one list in order: its records on disk, and what is behind
// them in memory. It is for one goroutine, and holds two records at most. Where a
// record cannot be read, it ends; see lists.err.
type postingList struct {
	in *lists
	id listID

	at   *postings // the record on disk that was looked at last,
	from inbox.Position
	// which is the first that has anything at or behind from

	end     *postings // the last on disk; nil if there is none
	endRead bool      // it was looked for
	rest    *postings // what is behind; nil if nothing is
	restSet bool
}

// record returns the first record that has a posting at or behind p, nil if there is
// none. Cost: a seek, about 3 µs, unless it is the one of the call before.
func (l *postingList) record(p inbox.Position) *postings {
	if l.at != nil && l.from <= p && p <= l.at.last() {
		return l.at
	}
	if p <= l.in.through && (!l.endRead || l.end != nil && p <= l.end.last()) {
		if r := l.in.seek(l.id, p); r != nil {
			l.at, l.from = r, p
			return r
		}
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
	if p == 0 {
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
	if !l.endRead {
		l.end, l.endRead = l.in.seekBack(l.id, endless), true
	}
	return l.end
}

// tail returns what is behind everything that is on disk.
func (l *postingList) tail() *postings {
	if l.restSet {
		return l.rest
	}
	l.restSet = true
	g := l.in.tail.lists[l.id]
	if g == nil {
		return nil
	}
	before := tally{}
	if r := l.onDisk(); r != nil {
		before = r.total()
	}
	r, err := parsePostings(appendPostings(nil, g.sender, g.topic, before, g.postings))
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
		if !expiring && r.copies < r.n && r.oldest-l.in.tail.skew > d.old {
			break
		}
	}
	return t
}

// walk goes over the postings of a list, from one on, forwards or backwards.
type walk struct {
	list *postingList
	back bool
	r    *postings // nil at the end
	i    int       // the next in it
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
// at the end of a record.
func (w *walk) next() (posting, bool) {
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

// lists is what is indexed of one inbox or stream, as one transaction sees it, and
// what came in since. Positions that it is asked for are those of entries, or lie
// between them. It is for one goroutine; close must be called in the end.
type lists struct {
	s           *Store
	txn         *badger.Txn
	incarnation incarnation
	through     inbox.Position // behind this everything is in tail
	tail        *gathering
	err         error // the first record that could not be read; what was returned since is not to be used

	forward, backward *badger.Iterator // nil until they are needed
}

func (l *lists) close() {
	for _, it := range []*badger.Iterator{l.forward, l.backward} {
		if it != nil {
			it.Close()
		}
	}
}

// list returns one list, which may be empty.
func (l *lists) list(id listID) *postingList { return &postingList{in: l, id: id} }

// seek returns the first record of a list that ends at p or behind it.
func (l *lists) seek(id listID, p inbox.Position) *postings {
	if l.forward == nil {
		l.forward = l.txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixList, uint64(l.incarnation))})
	}
	l.forward.Seek(id.key(l.incarnation, p))
	return l.found(l.forward, id)
}

// seekBack returns the last record of a list that ends at p or before it.
func (l *lists) seekBack(id listID, p inbox.Position) *postings {
	l.seekKeyBack(id.key(l.incarnation, p))
	return l.found(l.backward, id)
}

func (l *lists) seekKeyBack(key []byte) {
	if l.backward == nil {
		l.backward = l.txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixList, uint64(l.incarnation)), Reverse: true})
	}
	l.backward.Seek(key)
}

// found returns the record where an iterator is, if it is one of a list.
func (l *lists) found(it *badger.Iterator, id listID) *postings {
	if l.err != nil || !it.Valid() || len(it.Item().Key()) != listKeyLength || listOf(it.Item().Key()) != id {
		return nil
	}
	value, err := it.Item().ValueCopy(nil)
	var r *postings
	if err == nil {
		r, err = parsePostings(value)
	}
	if err == nil && keyNumber(it.Item().Key()) != uint64(r.last()) {
		err = damagedPostings("last")
	}
	if err != nil {
		l.fail(it.Item().KeyCopy(nil), err)
		return nil
	}
	r.expiresAt = it.Item().ExpiresAt()
	return r
}

// fail notes a record that cannot be read, and has the index made anew.
func (l *lists) fail(key []byte, err error) {
	if l.err == nil {
		l.err = err
		l.s.reportDamage("postings", key, err)
		l.s.indexer.hint(indexWork{remake: true}, l.incarnation)
	}
}
