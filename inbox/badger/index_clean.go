package badger

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// cleanIndex has a step delete records of lists of which everything is gone, or some of
// them, if those are more than what is not, or all there are; and reports whether there may
// be more. So a list is looked at about once for each entry that goes.
func (s *Store) cleanIndex(txn *badger.Txn, step *indexStep, swept inbox.Position) (more bool, err error) {
	l := &lists{s: s, txn: txn, incarnation: step.incarnation, fresh: newFresh(0, messageClock{})}
	defer l.close()
	all := l.list(listID{kind: listAll})
	first := all.record(0)
	if first == nil {
		return false, l.err
	}
	gone, left := all.upTo(swept).minus(first.before).messages, all.between(swept, endless).messages
	if l.err != nil || left > 0 && gone < mostPostings+left {
		return false, l.err
	}
	more = step.deleteUpTo(l, swept)
	return more, l.err
}

// deleteUpTo has a step delete records that end at a position or before it, and the
// notes of lists of which nothing is left.
func (step *indexStep) deleteUpTo(l *lists, swept inbox.Position) (more bool) {
	it := l.txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixList, uint64(step.incarnation))})
	defer it.Close()
	it.Rewind()
	for it.Valid() && len(it.Item().Key()) == listKeyLength {
		key := it.Item().Key()
		id, last := listOf(key), inbox.Position(keyNumber(key))
		if id.kind == listOfTopic {
			it.Seek(listID{kind: listAll}.key(step.incarnation, 0))
			continue
		}
		var open *postings
		if isOpen(key) {
			if open = l.found(it, id); open != nil {
				last = open.last()
			}
		}
		switch {
		case last > swept && isOpen(key):
			it.Next()
			continue
		case last > swept:
			it.Seek(append(id.key(step.incarnation, endless-1), 0)) // behind its closed records
			continue
		case step.isFull():
			return true
		}
		step.delete(it.Item().KeyCopy(nil))
		if open != nil {
			step.forgetNote(id, open)
		}
		it.Next()
	}
	return false
}
