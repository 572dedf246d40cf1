package badger

import (
	"context"
	"errors"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// forget has the name of a sender taken out of the index of a history, and returns when
// that is done. What the sender has published since stays under it.
func (ix *indexer) forget(ctx context.Context, inc incarnation, e erasure) error {
	ix.mu.Lock()
	ix.forgotten[inc] = append(ix.forgotten[inc], e)
	ix.mu.Unlock()
	ix.hint(indexWork{forget: true}, inc)
	return ix.await(ctx, inc)
}

// toForget returns those whose names are to be taken out of an index.
func (ix *indexer) toForget(inc incarnation) []erasure {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return slices.Clone(ix.forgotten[inc])
}

// forgot notes that this is done for the first of them. Runs on the indexer, which alone
// takes any away.
func (ix *indexer) forgot(inc incarnation, n int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if all := ix.forgotten[inc]; n < len(all) {
		ix.forgotten[inc] = all[n:]
		return
	}
	delete(ix.forgotten, inc)
}

// forget has a step take some senders out of the lists, as far as it has room, and
// reports how many of them are done then. What is not sorted into lists is taken from the
// blocks again.
func (step *indexStep) forget(txn *badger.Txn, all []erasure) (n int, err error) {
	for _, e := range all {
		done, err := step.forgetList(txn, e)
		if err != nil || !done {
			return n, err
		}
		n++
	}
	return n, nil
}

// forgetList has a step delete the list of a sender, but for what came later, and reports
// whether that is all of it. What goes is in front, so that the list is whole after each
// step, whatever is left: the record that goes on behind it keeps its key, and what it
// says of those in front of it. In the end the open record does not say any more where the
// list has begun.
func (step *indexStep) forgetList(txn *badger.Txn, e erasure) (done bool, err error) {
	id := senderList(e.sender)
	it := txn.NewIterator(badger.IteratorOptions{Prefix: id.key(step.incarnation, 0)[:listKeyLength-8]})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if step.isFull() {
			return false, nil
		}
		r, err := readRecord(it.Item())
		if err != nil {
			return false, err
		}
		gone, key := r.upTo(e.upTo), it.Item().KeyCopy(nil)
		if gone == r.n {
			step.delete(key)
			continue
		}
		if gone > 0 {
			step.put(key, appendPostings(nil, e.sender, "", r.tally(gone), r.appendTo(nil)[gone:]), r.expiresAt)
		}
		break
	}
	open, err := readOpen(txn, step.incarnation, id)
	if err != nil || open == nil {
		return err == nil, err
	}
	switch gone := open.upTo(e.upTo); {
	case gone == open.n:
		step.delete(id.key(step.incarnation, endless))
	case gone > 0 || open.origin.position != 0:
		step.putOpen(id, e.sender, "", open.tally(gone), origin{}, open.appendTo(nil)[gone:], open.expiresAt)
	}
	return true, nil
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
		if r := s.indexer.recentOf(inc); r != nil && r.has(sender) {
			r.forget()
		}
		if err := s.indexer.awaitTurn(ctx, inc); err != nil { // it may be sorting what somebody has forgotten
			return err
		}
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

// indexNames reports whether the lists of an inbox have the name of a sender.
func (s *Store) indexNames(inc incarnation, sender string) (named bool, err error) {
	err = s.view(func(txn *badger.Txn) error {
		hash := hashName(sender)
		it := txn.NewIterator(badger.IteratorOptions{Prefix: append(openPrefix(inc, listPair), hash[:]...)})
		defer it.Close()
		it.Rewind()
		named = it.Valid()
		return nil
	})
	return named, err
}
