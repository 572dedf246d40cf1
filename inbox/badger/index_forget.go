package badger

import (
	"context"
	"errors"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// forgotten is a sender of whom everything up to a position is erased.
type forgotten struct {
	sender string
	upTo   inbox.Position
}

// forget has the name of a sender taken out of the index of a history, and returns when
// that is done. What the sender has published since stays under it.
func (ix *indexer) forget(ctx context.Context, inc incarnation, f forgotten) error {
	ix.mu.Lock()
	ix.forgotten[inc] = append(ix.forgotten[inc], f)
	ix.mu.Unlock()
	ix.hint(indexWork{forget: true}, inc)
	return ix.await(ctx, inc)
}

func (ix *indexer) takeForgotten(inc incarnation) []forgotten {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	all := ix.forgotten[inc]
	delete(ix.forgotten, inc)
	return all
}

// forget has a step take some senders out of the lists, and out of what is not sorted
// into lists yet.
func (step *indexStep) forget(txn *badger.Txn, all []forgotten) error {
	for _, f := range all {
		if err := step.forgetList(txn, f); err != nil {
			return err
		}
	}
	return eachArrivals(txn, step.incarnation, step.was.sorted, func(key, value []byte) error {
		a, err := parseArrivals(value)
		if err != nil {
			return err
		}
		if a, changed := a.without(all); changed {
			step.put(slices.Clone(key), appendArrivals(nil, a), 0)
		}
		return nil
	})
}

// forgetList has a step delete the list of a sender, but for what came later.
func (step *indexStep) forgetList(txn *badger.Txn, f forgotten) error {
	id := senderList(f.sender)
	it := txn.NewIterator(badger.IteratorOptions{Prefix: id.key(step.incarnation, 0)[:listKeyLength-8]})
	defer it.Close()
	var left []posting
	expiresAt := uint64(0)
	for it.Rewind(); it.Valid(); it.Next() {
		value, err := it.Item().ValueCopy(nil)
		if err != nil {
			return err
		}
		r, err := parsePostings(value)
		if err != nil {
			return err
		}
		left = append(left, behind(r.appendTo(nil), f.upTo)...)
		expiresAt = it.Item().ExpiresAt()
		step.delete(it.Item().KeyCopy(nil))
	}
	before := tally{}
	for len(left) > 0 {
		part := left[:min(len(left), mostPostings)]
		left = left[len(part):]
		last := endless
		if len(left) > 0 {
			last = part[len(part)-1].position
		}
		step.put(id.key(step.incarnation, last), appendPostings(nil, f.sender, "", before, part), expiresAt)
		for i := range part {
			before = before.plus(part[i].tally())
		}
	}
	return nil
}

// without returns the arrivals with those of some senders under no name, and whether
// there are any.
func (a *arrivals) without(all []forgotten) (*arrivals, bool) {
	changed := false
	rest := &arrivals{}
	for i, p := range a.entries {
		names := a.names[a.of[i]]
		gone := slices.ContainsFunc(all, func(f forgotten) bool { return f.sender == names[0] && p.position <= f.upTo })
		if gone {
			names[0], changed = "", true
		}
		rest.add(p, names[0], names[1], 0)
	}
	return rest, changed
}

// forgetInInboxes has those indexes of inboxes and streams be made anew that have the
// name of a sender, and returns when that is done. Messages that were erased are not
// in there any more.
func (s *Store) forgetInInboxes(ctx context.Context, sender string) error {
	all, err := run(ctx, s, "list indexes", func(*commitGroup) (all []incarnation, err error) {
		for inc := range s.indexes {
			if !s.histories.has(inc) {
				all = append(all, inc)
			}
		}
		return all, nil
	})
	if err != nil {
		return err
	}
	for _, inc := range all {
		named, err := s.indexNames(inc, sender)
		if err == nil && named {
			s.indexer.hint(indexWork{remake: true}, inc)
			err = s.indexer.await(ctx, inc)
		}
		if err != nil && !errors.Is(err, inbox.ErrNoSession) { // it may have ended
			return err
		}
	}
	return nil
}

// indexNames reports whether the index of an inbox has the name of a sender, or may have.
func (s *Store) indexNames(inc incarnation, sender string) (named bool, err error) {
	err = s.view(func(txn *badger.Txn) error {
		hash := hashName(sender)
		it := txn.NewIterator(badger.IteratorOptions{Prefix: listID{listPair, hash.and(nameHash{})}.key(inc, 0)[:listKeyLength-16]})
		it.Rewind()
		named = it.Valid()
		it.Close()
		if named {
			return nil
		}
		x, ok, err := readIndexed(txn, inc)
		if err != nil || !ok {
			return err
		}
		return eachArrivals(txn, inc, x.sorted, func(_, value []byte) error {
			a, err := parseArrivals(value)
			if err == nil && slices.ContainsFunc(a.names, func(names [2]string) bool { return names[0] == sender }) {
				named, err = true, errStop
			}
			return err
		})
	})
	if errors.Is(err, inbox.ErrDamaged) {
		return true, nil // and is to be made anew in any case
	}
	return named, err
}
