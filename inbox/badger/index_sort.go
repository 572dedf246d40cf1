package badger

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What comes in is first kept as it arrived, which costs little to write and readers
// some time; when it is much, it is sorted into the lists. The more there is to sort,
// the less is written for each entry.
const (
	sortAtMost = 16 * mostPostings // entries that are in memory at once
	sortBytes  = 8 << 20           // likewise, as estimated
)

// fewPostings is how many the last record of a list has at most, which is written again
// with what comes.
const fewPostings = 256

// indexMore adds to a step what came in behind what is indexed, or a part of it, and
// reports whether there may be more. When it is time to sort, it returns what is to be
// sorted and adds nothing.
func (s *Store) indexMore(txn *badger.Txn, step *indexStep, upTo inbox.Position) (sorting *fresh, more bool, err error) {
	came := &s.indexer.came
	came.reset()
	most := sortAtMost - int(min(step.was.unsorted, sortAtMost-1))
	s.gather(txn, step.incarnation, step.was.through, upTo, func(p posting, sender, topic string, expiresAt uint64) bool {
		came.add(p, sender, topic, expiresAt)
		step.is.clock.add(&p)
		more = len(came.entries) >= most || came.size >= sortBytes
		return !more
	})
	switch n := step.was.unsorted + uint64(len(came.entries)); {
	case len(came.entries) == 0:
		return nil, false, nil
	case n >= uint64(s.sizes.sort) || came.size >= sortBytes/2:
		if step.is.through = upTo; more {
			step.is.through = came.last()
		}
		step.is.sorted, step.is.unsorted = step.is.through, 0
		sorting, err = s.readFresh(txn, step.incarnation, step.was, 0, endless)
		if err == nil {
			sorting.add(came)
		}
		return sorting, more, err
	}
	step.is.through = upTo
	for piece := range came.pieces() {
		if step.isFull() {
			more = true
			break
		}
		id := listID{kind: listArrivals}
		step.put(id.key(step.incarnation, piece.last()), appendArrivals(nil, piece), piece.expiresAt)
		step.is.unsorted += uint64(len(piece.entries))
		step.is.through = piece.last()
	}
	if !more {
		step.is.through = upTo
	}
	return nil, more, nil
}

// readFresh reads the arrivals behind one position and up to another that are not
// sorted yet, and perhaps some others.
func (s *Store) readFresh(txn *badger.Txn, inc incarnation, x indexed, after, upTo inbox.Position) (*fresh, error) {
	f := newFresh(x.kinds, x.clock)
	if upTo <= x.sorted {
		return f, nil
	}
	err := eachArrivals(txn, inc, max(x.sorted, after), func(key, value []byte) error {
		a, err := parseArrivals(value)
		if err != nil {
			return err
		}
		f.add(a)
		if inbox.Position(keyNumber(key)) >= upTo {
			return errStop
		}
		return nil
	})
	return f, err
}

// errStop says that no more is wanted.
var errStop = errors.New("enough")

// eachArrivals calls do with the records of what is behind a position and not sorted
// yet, until it returns errStop. Keys and values are valid during the call.
func eachArrivals(txn *badger.Txn, inc incarnation, after inbox.Position, do func(key, value []byte) error) error {
	id := listID{kind: listArrivals}
	it := txn.NewIterator(badger.IteratorOptions{Prefix: id.key(inc, 0)[:listKeyLength-8]})
	defer it.Close()
	for it.Seek(id.key(inc, after+1)); it.Valid(); it.Next() {
		err := it.Item().Value(func(v []byte) error { return do(it.Item().Key(), v) })
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sort writes what is fresh to the lists, a step at a time, and leaves the last step
// to be written. If it ends before, what is in a list is passed over the next time.
func (ix *indexer) sort(step *indexStep, f *fresh) error {
	is := step.is
	step.is = step.was
	lists := slices.SortedFunc(maps.Keys(f.lists), func(a, b listID) int {
		return bytes.Compare(a.key(0, 0), b.key(0, 0))
	})
	for len(lists) > 0 {
		err := ix.s.view(func(txn *badger.Txn) error {
			for len(lists) > 0 && !step.isFull() {
				done, err := step.extend(txn, lists[0], f.lists[lists[0]])
				if err != nil {
					return err
				}
				if done {
					lists = lists[1:]
				}
			}
			return nil
		})
		if err == nil {
			err = ix.write(step)
		}
		if err != nil {
			return err
		}
	}
	for more := true; more; {
		more = false
		err := ix.s.view(func(txn *badger.Txn) error {
			return eachArrivals(txn, step.incarnation, step.was.sorted, func(key, _ []byte) error {
				if step.isFull() {
					more = true
					return errStop
				}
				step.delete(slices.Clone(key))
				return nil
			})
		})
		if err == nil && more {
			err = ix.write(step)
		}
		if err != nil {
			return err
		}
	}
	step.is = is
	return nil
}

// extend adds the postings of one list to a step, or as many as fit, and reports
// whether those are all. The last record of the list, which is small, is written again
// with them; if that is many, all but the last go into records of their own, which are
// never written again.
func (step *indexStep) extend(txn *badger.Txn, id listID, f *freshList) (done bool, err error) {
	open, err := readOpen(txn, step.incarnation, id)
	if err != nil {
		return false, err
	}
	all, before, expiresAt := f.postings, tally{}, f.expiresAt
	if open != nil {
		all = behind(all, open.last())
	}
	if len(all) == 0 {
		return true, nil
	}
	if open != nil {
		before, expiresAt = open.before, laterExpiry(expiresAt, open.expiresAt) // no record goes before one in front of it
		all = append(open.appendTo(make([]posting, 0, open.n+len(all))), all...)
	}
	step.note(id, f, open)
	for len(all) > fewPostings && !step.isFull() {
		part := all[:min(len(all)-1, mostPostings)]
		all = all[len(part):]
		step.put(id.key(step.incarnation, part[len(part)-1].position), appendPostings(nil, f.sender, f.topic, before, part), expiresAt)
		for i := range part {
			before = before.plus(part[i].tally())
		}
	}
	last := all[:min(len(all), fewPostings)]
	step.put(id.key(step.incarnation, endless), appendPostings(nil, f.sender, f.topic, before, last), expiresAt)
	return len(last) == len(all), nil
}

// readOpen reads the last record of a list, nil if the list is empty.
func readOpen(txn *badger.Txn, inc incarnation, id listID) (*postings, error) {
	item, err := txn.Get(id.key(inc, endless))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	var value []byte
	if err == nil {
		value, err = item.ValueCopy(nil)
	}
	if err != nil {
		return nil, err
	}
	r, err := parsePostings(value)
	if err != nil {
		return nil, err
	}
	r.expiresAt = item.ExpiresAt()
	return r, nil
}

// behind returns those of some postings that are behind p.
func behind(all []posting, p inbox.Position) []posting {
	i, found := slices.BinarySearchFunc(all, p, func(e posting, p inbox.Position) int { return cmp.Compare(e.position, p) })
	if found {
		i++
	}
	return all[i:]
}
