package badger

import (
	"bytes"
	"iter"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// all yields the lists of a kind whose names begin like name, or all of the kind, in no
// particular order. Cost: about 2 µs for each.
func (l *lists) all(kind listKind, name []byte) iter.Seq[*postingList] {
	return func(yield func(*postingList) bool) {
		seen := map[listID]bool{}
		it := l.txn.NewIterator(badger.IteratorOptions{Prefix: append(openPrefix(l.incarnation, kind), name...)})
		defer it.Close()
		for it.Rewind(); it.Valid() && len(it.Item().Key()) == listKeyLength; it.Next() {
			id := listOf(it.Item().Key())
			found := &postingList{in: l, id: id, open: l.found(it, id), openRead: true}
			if seen[id] = true; l.err != nil || !yield(found) {
				return
			}
		}
		wanted := func(id listID) bool { return id.kind == kind && bytes.HasPrefix(id.name[:], name) && !seen[id] }
		for id := range l.cameOf(wanted) {
			if !seen[id] && !yield(l.list(id)) {
				return
			}
			seen[id] = true
		}
	}
}

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
		for id := range l.cameOf(func(id listID) bool { return id.kind == listPair && id.name.topic() == hash }) {
			pairs[id.name] = true
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
// messages are to be compared. Cost: that of all, for each; with a filter that has
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
