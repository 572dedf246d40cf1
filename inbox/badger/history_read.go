package badger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// examinedAtOnce bounds how many messages one request for history looks at: then it
// answers with what it has, and where to go on.
const examinedAtOnce = 10_000

// History implements [inbox.Archive]. Cost: a seek, and about 2 µs for each message
// that it looks at.
func (s *Store) History(ctx context.Context, q inbox.Query) (page inbox.Page, err error) {
	if err := ctx.Err(); err != nil {
		return page, fmt.Errorf("read history: %w", err)
	}
	visible := inbox.Position(s.visible.Load()) // before the transaction begins, which has all that
	err = s.view(func(txn *badger.Txn) error {
		r, err := s.readHistory(ctx, txn, q, visible)
		if err != nil {
			return err
		}
		defer r.close()
		page, err = r.page()
		return err
	})
	if err != nil {
		return inbox.Page{}, fmt.Errorf("read history: %w", err)
	}
	return page, nil
}

// historyReader reads the histories as one, in the order of a query.
type historyReader struct {
	s     *Store
	ctx   context.Context
	txn   *badger.Txn
	q     inbox.Query
	now   time.Time
	lanes []*lane
	left  int            // so many may still be looked at
	last  inbox.Position // was looked at last
}

// readHistory begins to read what is up to a position. The reader must be closed in
// the end.
func (s *Store) readHistory(ctx context.Context, txn *badger.Txn, q inbox.Query, upTo inbox.Position) (*historyReader, error) {
	r := &historyReader{s: s, ctx: ctx, txn: txn, q: q, now: time.Now(), left: examinedAtOnce}
	for _, h := range s.histories.all {
		after, err := s.historyBound(txn, h, q.After, -timesApart, 0)
		if err != nil {
			return nil, err
		}
		before, err := s.historyBound(txn, h, q.Before, timesApart, endless-1)
		if err != nil {
			return nil, err
		}
		if q.Before.Time != 0 {
			before++ // the place is behind what was stored before
		}
		if before = min(before, upTo+1); after+1 < before {
			r.lanes = append(r.lanes, &lane{s: s, txn: txn, history: h, after: after, before: before, backwards: q.NewestFirst})
		}
	}
	for _, l := range r.lanes {
		l.begin()
	}
	return r, nil
}

func (r *historyReader) close() {
	for _, l := range r.lanes {
		l.close()
	}
}

// page reads one page.
func (r *historyReader) page() (page inbox.Page, err error) {
	size, atMost := 0, max(r.q.MaxBytes, 1)
	for {
		e, ok, err := r.next()
		switch {
		case err != nil:
			return inbox.Page{}, err
		case !ok:
			page.More = r.left == 0
			if n := len(page.Entries); n == 0 || page.Entries[n-1].Position != r.last {
				page.Next = r.last
			}
			return page, nil
		}
		size += e.Envelope.Size()
		if n := len(page.Entries); n > 0 && (n >= r.q.Max || size > atMost) {
			page.More = true
			return page, nil
		}
		page.Entries = append(page.Entries, e)
	}
}

// next returns the next message that is meant, or false at the end, or when enough
// was looked at.
func (r *historyReader) next() (inbox.Entry, bool, error) {
	for {
		first := r.first()
		if first == nil {
			r.left = max(r.left, 1) // it is the end, and not only of this page
			return inbox.Entry{}, false, nil
		}
		if r.left == 0 {
			return inbox.Entry{}, false, nil
		}
		if r.left--; r.left%100 == 0 && r.ctx.Err() != nil {
			return inbox.Entry{}, false, r.ctx.Err()
		}
		p := first.at
		e, ok := r.s.kept(r.txn, p)
		inTime := false
		for _, l := range r.lanes {
			if !l.ended && l.at == p {
				inTime = inTime || ok && l.history.keepUntil(e) > r.now.UnixMilli()
				l.step()
			}
		}
		r.last = p
		if inTime && r.isWithin(e.Time) && r.q.Matches(e) {
			return inbox.Entry{Position: p, Envelope: e}, true, nil
		}
	}
}

// isWithin reports whether a time is one that is asked for.
func (r *historyReader) isWithin(t int64) bool {
	return t >= r.q.After.Time && (r.q.Before.Time == 0 || t < r.q.Before.Time)
}

// first returns the lane whose turn it is, nil at the end.
func (r *historyReader) first() (first *lane) {
	for _, l := range r.lanes {
		if !l.ended && (first == nil || l.isBefore(first)) {
			first = l
		}
	}
	return first
}

// kept returns message p, to which a history refers, or its mark, unless it is gone.
func (s *Store) kept(txn *badger.Txn, p inbox.Position) (*inbox.Envelope, bool) {
	record, ok := s.body(txn, p)
	if !ok {
		return nil, false
	}
	e, err := inbox.ParseEnvelope(record)
	if err != nil {
		s.reportDamage("envelope", numberKey(prefixBody, uint64(p)), err)
		return nil, false
	}
	e.ID = inbox.MessageID{Sequence: p, Store: s.id}
	return e, true
}

// lane is the way through one history between two positions, which do not belong to
// it.
type lane struct {
	s             *Store
	txn           *badger.Txn
	history       *history
	after, before inbox.Position
	backwards     bool

	at    inbox.Position // the entry at hand, unless it has ended
	ended bool
	it    *badger.Iterator
	block []inbox.Position // of the block at hand, what comes behind the entry
}

// isBefore reports whether l has its turn before another that has not ended either.
func (l *lane) isBefore(other *lane) bool {
	if l.backwards {
		return l.at > other.at
	}
	return l.at < other.at
}

// begin finds the first entry.
func (l *lane) begin() {
	inc := l.history.incarnation
	from := blockKey(inc, l.after+1)
	if l.backwards {
		from = blockKey(inc, l.before-1)
		it := blocksOf(l.txn, inc)
		if it.Seek(from); it.Valid() { // it may begin in front of the bound
			from = it.Item().KeyCopy(nil)
		}
		it.Close()
	}
	l.it = l.txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixBlock, uint64(inc)), Reverse: l.backwards})
	l.it.Seek(from)
	l.step()
}

func (l *lane) close() {
	if l.it != nil {
		l.it.Close()
	}
}

// step goes on to the next entry.
func (l *lane) step() {
	for len(l.block) == 0 {
		if !l.it.Valid() {
			l.ended = true
			return
		}
		entries := l.s.readEntries(l.it.Item())
		for e, ok := entries.next(); ok; e, ok = entries.next() {
			l.block = append(l.block, e.position)
		}
		if l.backwards {
			slices.Reverse(l.block)
		}
		l.it.Next()
		for len(l.block) > 0 && l.isInFront(l.block[0]) {
			l.block = l.block[1:]
		}
	}
	l.at, l.block = l.block[0], l.block[1:]
	l.ended = l.at <= l.after || l.at >= l.before
}

// isInFront reports whether p comes before the first entry of the lane.
func (l *lane) isInFront(p inbox.Position) bool {
	if l.backwards {
		return p >= l.before
	}
	return p <= l.after
}

// timesApart is how much earlier than another message, in milliseconds, one may have
// been taken that is stored behind it: publishers wait for the committer side by side.
const timesApart = 1000

// historyBound returns the position of a bound in a history, or the one given if there
// is no bound. A time is moved so much that all that it means is on its side of the place.
func (s *Store) historyBound(txn *badger.Txn, h *history, b inbox.Bound, move int64, none inbox.Position) (inbox.Position, error) {
	switch {
	case b.Position != 0:
		return b.Position, nil
	case b.ID != inbox.MessageID{}:
		if !s.knows(b.ID, inbox.Position(s.visible.Load())) {
			return 0, fmt.Errorf("message %s: %w", b.ID, inbox.ErrUnknownID)
		}
		return b.ID.Sequence, nil
	case b.Time != 0:
		earlier, _ := s.narrow(txn, h.incarnation, b.Time+move, 0, inbox.Position(s.visible.Load())+1)
		return earlier, nil
	default:
		return none, nil
	}
}
