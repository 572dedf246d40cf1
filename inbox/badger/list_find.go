package badger

import (
	"bytes"
	"errors"
	"iter"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// mostTail is how many entries that are not indexed yet a reader takes in memory. If
// there are more, it waits for the indexer.
const mostTail = 8192

// errNotIndexed says that an inbox has no index.
var errNotIndexed = errors.New("inbox is not indexed")

// notIndexedError says which inboxes have no index.
type notIndexedError []incarnation

func (notIndexedError) Error() string { return errNotIndexed.Error() }

// behindError says that the index of an inbox is too far behind.
type behindError incarnation

func (behindError) Error() string { return "inbox is not indexed far enough" }

// openLists returns what is indexed of an inbox or stream, and reads what came in since,
// up to a position. It is not to be asked for anything behind that, of which it may
// have some, nor at the position after or in front of it. Cost: a few µs; 50 ns for each
// entry that is not sorted into lists yet, of which there are a few thousand; and 0.3 µs
// for each behind those, of which there are some hundred.
//
// Errors: errNotIndexed if there is no index, see makeIndex. A behindError if it is
// not far enough, as when it has just been asked for: wait for it with indexer.await, about 2 s
// for a million entries. ErrDamaged: then it is made anew.
func (s *Store) openLists(txn *badger.Txn, inc incarnation, after, upTo inbox.Position) (*lists, error) {
	x, ok, err := readIndexed(txn, inc)
	switch {
	case err != nil:
		if errors.Is(err, inbox.ErrDamaged) {
			s.indexer.hint(indexWork{remake: true}, inc)
		}
		return nil, err
	case !ok:
		return nil, errNotIndexed
	case x.phase != indexKept:
		return nil, behindError(inc)
	}
	l := &lists{s: s, txn: txn, incarnation: inc}
	if l.fresh, err = s.readFresh(txn, inc, x, after, upTo); err != nil {
		l.fail(indexedKey(inc), err)
		return nil, err
	}
	var came arrivals
	s.gather(txn, inc, max(x.through, after), upTo, func(p posting, sender, topic string, expiresAt uint64) bool {
		came.add(p, sender, topic, expiresAt)
		l.fresh.clock.add(&p)
		return len(came.entries) <= mostTail
	})
	switch {
	case len(came.entries) > mostTail:
		return nil, behindError(inc)
	case len(came.entries) >= s.sizes.tell:
		s.indexer.hint(indexWork{index: true}, inc)
	}
	l.fresh.add(&came)
	return l, nil
}

// all yields the lists of a kind whose names begin like name, or all of the kind, in no
// particular order. Cost: about 10 µs for each.
func (l *lists) all(kind listKind, name []byte) iter.Seq[*postingList] {
	return func(yield func(*postingList) bool) {
		seen := map[listID]bool{}
		it := l.txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixList, uint64(l.incarnation))})
		defer it.Close()
		lowest := listID{kind: kind}
		copy(lowest.name[:], name)
		for it.Seek(lowest.key(l.incarnation, 0)); it.Valid() && len(it.Item().Key()) == listKeyLength; {
			id := listOf(it.Item().Key())
			if id.kind != kind || !bytes.HasPrefix(id.name[:], name) {
				break
			}
			found := l.listAt(it, id)
			if seen[id] = true; l.err != nil || !yield(found) {
				return
			}
		}
		for id := range l.fresh.lists {
			if id.kind == kind && bytes.HasPrefix(id.name[:], name) && !seen[id] && !yield(l.list(id)) {
				return
			}
		}
	}
}

// nearRecords is how many records of a list are passed over one by one: to seek costs as
// much as ten.
const nearRecords = 8

// listAt returns the list whose first record is where an iterator is, and has that go on
// to the first of the next list.
func (l *lists) listAt(it *badger.Iterator, id listID) *postingList {
	found := &postingList{in: l, id: id}
	if isOpen(it) {
		found.open, found.openRead = l.found(it, id), true
		it.Next()
		return found
	}
	found.at = l.found(it, id)
	for range nearRecords {
		it.Next()
		if !it.Valid() || len(it.Item().Key()) != listKeyLength || listOf(it.Item().Key()) != id {
			return found // which has lost its last record
		}
		if isOpen(it) {
			found.open, found.openRead = l.found(it, id), true
			it.Next()
			return found
		}
	}
	it.Seek(append(id.key(l.incarnation, endless), 0))
	return found
}

func isOpen(it *badger.Iterator) bool { return inbox.Position(keyNumber(it.Item().Key())) == endless }

// ofTopic yields the lists of the pairs of a topic, in no particular order.
func (l *lists) ofTopic(topic string) iter.Seq[*postingList] {
	return func(yield func(*postingList) bool) {
		hash := hashName(topic)
		pairs := map[pair]bool{}
		prefix := listID{listOfTopic, hash.and(nameHash{})}.key(l.incarnation, 0)[:listKeyLength-16]
		it := l.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
		for it.Rewind(); it.Valid(); it.Next() {
			pairs[listOf(it.Item().Key()).name.swapped()] = true
		}
		it.Close()
		for id := range l.fresh.lists {
			if id.kind == listPair && id.name.topic() == hash {
				pairs[id.name] = true
			}
		}
		for name := range pairs {
			if !yield(l.list(listID{listPair, name})) {
				return
			}
		}
	}
}

// pairs yields the lists that together have what a selection means, in no particular
// order: those of pairs. By their hashes they may have some of others too, so that
// messages are to be compared. Cost: a seek for each; with a filter that has
// wildcards, and no sender, for each pair that there is.
func (l *lists) pairs(sel inbox.Selection) iter.Seq[*postingList] {
	exact := sel.Filter != "" && !strings.ContainsAny(sel.Filter, "+#")
	sender := hashName(sel.Sender)
	switch {
	case exact && sel.Sender != "":
		one := l.list(listID{listPair, pairOf(sel.Sender, sel.Filter)})
		return func(yield func(*postingList) bool) {
			if one.last() != nil {
				yield(one)
			}
		}
	case exact:
		return l.ofTopic(sel.Filter)
	case sel.Sender != "":
		return inTopics(sel.Filter, l.all(listPair, sender[:]))
	default:
		return inTopics(sel.Filter, l.all(listPair, nil))
	}
}

// inTopics passes on those lists whose topics match a filter; all if it is empty.
func inTopics(filter string, all iter.Seq[*postingList]) iter.Seq[*postingList] {
	if filter == "" {
		return all
	}
	return func(yield func(*postingList) bool) {
		for l := range all {
			if _, topic := l.names(); inbox.MatchTopic(filter, topic) && !yield(l) {
				return
			}
		}
	}
}
