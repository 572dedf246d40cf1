package badger

import (
	"errors"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// openLists returns what is indexed of an inbox or stream, and reads what came in since,
// up to a position. It is not to be asked for anything behind that, of which it may
// have some, nor at the position after or in front of it. Cost: a few µs; that of
// recent.view; and 0.3 µs for each entry that is neither in the lists nor in memory, of
// which there are mostGathered at most.
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
	l := &lists{s: s, txn: txn, incarnation: inc, fresh: newFresh(x.kinds, x.clock), now: uint64(time.Now().Add(goesSoon).Unix())}
	from := upTo
	if r := s.indexer.recentOf(inc); r != nil {
		l.recent, from = r.view(upTo)
	}
	var came arrivals
	s.gather(txn, inc, max(x.sorted, after), from, func(p posting, sender, topic string, expiresAt uint64) bool {
		came.add(p, sender, topic, expiresAt)
		return len(came.entries) <= mostGathered
	})
	switch {
	case len(came.entries) > mostGathered:
		return nil, behindError(inc)
	case len(came.entries) >= s.sizes.tell:
		s.indexer.hint(indexWork{index: true}, inc)
	}
	l.fresh.add(&came)
	l.clock = l.fresh.clock
	for _, v := range l.recent {
		v.addTo(&l.clock)
	}
	return l, nil
}

// goesSoon is longer than anybody reads what one transaction sees, and less than
// expiryMargin.
const goesSoon = time.Hour

// mostGathered is how many entries that are not indexed yet a reader takes from the
// blocks. If there are more, it waits for the indexer.
const mostGathered = 8192

// errNotIndexed says that an inbox has no index.
var errNotIndexed = errors.New("inbox is not indexed")

// notIndexedError says which inboxes have no index.
type notIndexedError []incarnation

func (notIndexedError) Error() string { return errNotIndexed.Error() }

// behindError says that the index of an inbox is too far behind.
type behindError incarnation

func (behindError) Error() string { return "inbox is not indexed far enough" }
