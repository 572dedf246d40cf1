package badger

import (
	"bytes"
	"iter"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// lists is what is indexed of one inbox or stream, as one transaction sees it, and
// what came in since. Positions that it is asked for are those of entries, or lie
// between them. It is for one goroutine; close must be called in the end.
type lists struct {
	s           *Store
	txn         *badger.Txn
	incarnation incarnation
	fresh       *fresh        // what the blocks have that is not in the lists, and perhaps some that is,
	recent      []*recentView // and what is behind that
	clock       messageClock  // of all of it
	now         uint64        // what goes up to then may be gone already, in Badger's seconds
	err         error         // the first record that could not be read; what was returned since is not to be used

	forward, backward *badger.Iterator // nil until they are needed
}

func (l *lists) close() {
	for _, it := range []*badger.Iterator{l.forward, l.backward} {
		if it != nil {
			it.Close()
		}
	}
}

// cameNames returns the names of a list of which something came in, and is false if
// nothing has.
func (l *lists) cameNames(id listID) (names [2]string, ok bool) {
	if f := l.fresh.lists[id]; f != nil {
		return [2]string{f.sender, f.topic}, true
	}
	for _, v := range l.recent {
		if l, _, ok := v.list(id); ok {
			return l.names, true
		}
	}
	return names, false
}

// cameOf yields those lists of what came in, each once or more often, that somebody
// wants.
func (l *lists) cameOf(wants func(listID) bool) iter.Seq[listID] {
	return func(yield func(listID) bool) {
		for id := range l.fresh.lists {
			if wants(id) && !yield(id) {
				return
			}
		}
		for _, v := range l.recent {
			for _, id := range v.ids(wants) {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// list returns one list, which may be empty.
func (l *lists) list(id listID) *postingList { return &postingList{in: l, id: id} }

// seek returns the first record of a list that ends at p or behind it, on disk.
func (l *lists) seek(id listID, p inbox.Position) *postings {
	l.seekKey(id.key(l.incarnation, p))
	return l.found(l.forward, id)
}

func (l *lists) seekKey(key []byte) {
	if l.forward == nil {
		l.forward = l.txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixList, uint64(l.incarnation))})
	}
	if l.forward.Valid() && bytes.Compare(l.forward.Item().Key(), key) < 0 {
		advance(l.forward, key)
		return
	}
	l.forward.Seek(key)
}

// seekBack returns the last record of a list that ends at p or before it, without the
// last of all.
func (l *lists) seekBack(id listID, p inbox.Position) *postings {
	if l.backward == nil {
		l.backward = l.txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixList, uint64(l.incarnation)), Reverse: true})
	}
	l.backward.Seek(id.key(l.incarnation, p))
	return l.found(l.backward, id)
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
	if last := keyNumber(it.Item().Key()); err == nil && last != uint64(endless) && last != uint64(r.last()) {
		err = damagedPostings("last")
	}
	if err != nil {
		l.fail(it.Item().KeyCopy(nil), err)
		return nil
	}
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
