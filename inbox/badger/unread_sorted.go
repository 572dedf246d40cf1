package badger

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// sorted is what is unread in an inbox as its index has it, and those of the streams
// that it reads. It is of one transaction, and for one goroutine; close must be called
// in the end.
type sorted struct {
	*unread
	places   []sortedSource
	now      time.Time
	deadline deadline
	deleted  map[pair][]inbox.Position // numbers of messages that were deleted
	exact    bool                      // everything that is in the lists is there, and for the receiver
}

// sortedSource is a source of unread entries: the inbox itself, or a stream.
type sortedSource struct {
	in     *lists
	within inbox.Spans // where they are
}

// errUnsorted says that something cannot be told without reading it.
var errUnsorted = errors.New("index does not tell")

// sort opens the indexes of an inbox and of those streams that have something unread.
// Errors: notIndexedError, behindError, errUnsorted. Cost: about 50 µs for each, and for
// what is not sorted yet; see openLists.
func (u *unread) sort() (*sorted, error) {
	if u.inMemory {
		return nil, errUnsorted
	}
	x := &sorted{unread: u, exact: !u.withOld, now: time.Now()}
	x.deadline = deadline{now: x.now.UnixMilli(), old: math.MinInt64}
	if u.s.retention > 0 {
		x.deadline.old = x.deadline.now - u.s.retention.Milliseconds()
	}
	var missing notIndexedError
	add := func(inc incarnation, within inbox.Spans) error {
		err := x.add(inc, within)
		if errors.Is(err, errNotIndexed) {
			missing = append(missing, inc)
			return nil
		}
		return err
	}
	err := add(u.incarnation, u.within)
	for inc, within := range x.streamed() {
		if err == nil {
			err = add(inc, within)
		}
	}
	if err == nil && len(missing) > 0 {
		err = missing
	}
	if err == nil {
		x.deleted, err = u.s.deletedPairs(u.txn)
	}
	if errors.Is(err, inbox.ErrDamaged) {
		err = errUnsorted
	}
	if err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

func (x *sorted) close() {
	for _, p := range x.places {
		p.in.close()
	}
}

// err returns why what was returned so far is not to be used, nil if it is.
func (x *sorted) err() (err error) {
	for _, p := range x.places {
		err = errors.Join(err, p.in.err)
	}
	return err
}

// streamed returns where something may be unread in streams, by their incarnations.
func (x *sorted) streamed() map[incarnation]inbox.Spans {
	all := map[incarnation]inbox.Spans{}
	for _, src := range x.sources {
		within := cut(x.within, src.since, src.until)
		if len(within) == 0 || x.s.headOf(x.txn, src.stream) <= within[0].After {
			continue
		}
		inc := src.stream.incarnation
		all[inc] = all[inc].Union(within)
		x.exact = x.exact && !src.sub.NoLocal // whose messages they are is not in the index
	}
	return all
}

// cut returns what of a set is behind one position and up to another.
func cut(s inbox.Spans, after, upTo inbox.Position) inbox.Spans {
	return s.Remove(inbox.Span{Through: after}).Remove(inbox.Span{After: upTo, Through: endless})
}

// add opens one index, if there is anything in its inbox at all. In front of that the
// index may have what is gone.
func (x *sorted) add(inc incarnation, within inbox.Spans) error {
	if len(within) == 0 {
		return nil
	}
	first, ok := x.s.firstEntry(x.txn, inc, within[0].After+1)
	if !ok {
		return nil
	}
	if within = cut(within, first-1, endless); len(within) == 0 {
		return nil
	}
	in, err := x.s.openLists(x.txn, inc, within[0].After, x.upTo)
	if err == nil {
		x.places = append(x.places, sortedSource{in, within})
	}
	return err
}

// firstEntry returns a position in front of which, and not in front of another, an inbox
// has nothing, if it has anything behind that.
func (s *Store) firstEntry(txn *badger.Txn, inc incarnation, from inbox.Position) (p inbox.Position, ok bool) {
	it := blocksOf(txn, inc)
	defer it.Close()
	if it.Seek(blockKey(inc, from)); !it.Valid() {
		return 0, false
	}
	block := s.readEntries(it.Item())
	e, _ := block.next()
	return max(from, e.position), true
}

// deletedPairs returns the numbers of messages that were deleted, by their pairs. Cost:
// nothing as long as none was, otherwise about 0.5 µs for each.
func (s *Store) deletedPairs(txn *badger.Txn) (map[pair][]inbox.Position, error) {
	if s.deletions.count.Load() == 0 {
		return nil, nil
	}
	all := map[pair][]inbox.Position{}
	err := each(txn, []byte{prefixDeletion}, func(k, v []byte) error {
		d, err := parseDeletion(v)
		if err != nil {
			s.reportDamage("deletion", slices.Clone(k), err)
			return nil
		}
		all[d.pair] = append(all[d.pair], inbox.Position(keyNumber(k)))
		return nil
	})
	return all, err
}

// open is where deliveries are on their way: spans of one entry each, which are read.
func (x *sorted) open() inbox.Spans { return openSpans(x.progress.Open) }

// eachOpen calls do with the unread entries that are on their way.
func (x *sorted) eachOpen(ctx context.Context, after, upTo inbox.Position, do func(met)) error {
	open := x.open()
	if len(open) == 0 {
		return nil
	}
	return x.eachIn(ctx, open.Subtract(open.Subtract(x.within)), after, upTo, false, func(e met) bool {
		do(e)
		return true
	})
}

// withinOf returns where something is unread of one list of a place, of what may be
// unread there.
func (x *sorted) withinOf(l *postingList, within inbox.Spans) inbox.Spans {
	if x.acked != nil {
		within = within.Subtract(cut(x.acked.spans(l.id.name), 0, x.acked.upTo))
	}
	if len(x.leavings) == 0 {
		return within
	}
	_, topic := l.names()
	for i := range x.leavings {
		within = within.Subtract(x.leavings[i].dropped(topic))
	}
	return within
}
