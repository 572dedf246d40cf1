package badger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// examinedAtOnce bounds how many messages one request for history looks at: then it
// answers with what it has, and where to go on.
const examinedAtOnce = 10_000

// examinedFirst is how many messages are looked at before the topics are, for those that
// match a filter: where many match, a page is there by then.
const examinedFirst = 500

// indexPatience is how long a request waits for an index that is new, or far behind: then
// it is answered without, perhaps by short pages.
const indexPatience = time.Second

// History implements [inbox.Archive]. In one topic, of one sender, or with a filter that few
// topics match, a page costs what reading it costs, wherever it is: a few µs for
// each message and each topic, and up to 1 ms for what came in lately. Otherwise it
// costs about 2 µs for each message that it looks at.
func (s *Store) History(ctx context.Context, q inbox.Query) (page inbox.Page, err error) {
	return s.readHistory(ctx, archiveQuery{Query: q})
}

// archiveQuery is what is asked of history.
type archiveQuery struct {
	inbox.Query
	over bool // what is there still though its time is over is meant, too
}

// readHistory is History, also for what that does not give.
func (s *Store) readHistory(ctx context.Context, q archiveQuery) (page inbox.Page, err error) {
	if err := ctx.Err(); err != nil {
		return page, fmt.Errorf("read history: %w", err)
	}
	short := true
	if isWide(q.Query) {
		page, short, err = s.history(ctx, q, false, examinedFirst)
	}
	if err == nil && short {
		page, err = s.indexedHistory(ctx, q)
	}
	if err != nil {
		return inbox.Page{}, fmt.Errorf("read history: %w", err)
	}
	return page, nil
}

// isWide reports whether a query is for several topics, and not of one sender.
func isWide(q inbox.Query) bool { return q.Sender == "" && strings.ContainsAny(q.Filter, "+#") }

// indexedHistory answers a query by the index, or, if that is not there yet, without.
func (s *Store) indexedHistory(ctx context.Context, q archiveQuery) (inbox.Page, error) {
	page, _, err := s.history(ctx, q, true, examinedAtOnce)
	var behind behindError
	if errors.As(err, &behind) {
		wait, cancel := context.WithTimeout(ctx, indexPatience)
		defer cancel()
		if s.indexer.await(wait, incarnation(behind)) == nil {
			page, _, err = s.history(ctx, q, true, examinedAtOnce)
		}
	}
	if errors.As(err, &behind) || errors.Is(err, errNotIndexed) || errors.Is(err, inbox.ErrDamaged) {
		page, _, err = s.history(ctx, q, false, examinedAtOnce)
	}
	return page, err
}

// history answers a query, with the index or without. It looks at so many messages at
// most, and reports whether it has stopped for that.
func (s *Store) history(ctx context.Context, q archiveQuery, indexed bool, most int) (page inbox.Page, short bool, err error) {
	upTo := inbox.Position(s.visible.Load()) // before the transaction begins, which has all that
	err = s.view(func(txn *badger.Txn) (err error) {
		r := &historyReader{s: s, ctx: ctx, txn: txn, q: q, now: time.Now(), left: most}
		defer func() { err = errors.Join(err, r.close()) }()
		if err := r.open(upTo, indexed); err != nil {
			return err
		}
		page, err = r.page()
		short = r.left == 0
		return err
	})
	return page, short, err
}

// historyReader reads the histories as one, in the order of a query.
type historyReader struct {
	s     *Store
	ctx   context.Context
	txn   *badger.Txn
	q     archiveQuery
	now   time.Time
	lanes []*lane
	lists []*lists
	left  int            // so many may still be looked at
	last  inbox.Position // was looked at last
}

// open begins to read what is up to a position.
func (r *historyReader) open(upTo inbox.Position, indexed bool) error {
	for _, h := range r.s.histories.all {
		after, before, err := r.bounds(h, upTo)
		if err != nil {
			return err
		}
		if after+1 >= before {
			continue
		}
		if err := r.openLane(h, after, before, indexed); err != nil {
			return err
		}
	}
	return nil
}

// close must be called in the end. It returns what was wrong with an index.
func (r *historyReader) close() (err error) {
	for _, l := range r.lanes {
		l.way.close()
	}
	for _, l := range r.lists {
		l.close()
		err = errors.Join(err, l.err)
	}
	return err
}

// bounds returns between which positions of a history the messages are that are asked
// for. These do not belong to them.
func (r *historyReader) bounds(h *history, upTo inbox.Position) (after, before inbox.Position, err error) {
	after, err = r.s.historyBound(r.txn, h, r.q.After, -timesApart, 0)
	if err != nil {
		return 0, 0, err
	}
	before, err = r.s.historyBound(r.txn, h, r.q.Before, timesApart, endless-1)
	if err != nil {
		return 0, 0, err
	}
	if r.q.Before.Time != 0 {
		before++ // the place is behind what was stored before
	}
	return max(after, r.s.sweptOf(r.txn, h.incarnation)), min(before, upTo+1), nil
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
		e, ok := r.s.kept(r.txn, p, func(e *inbox.Envelope) bool { return r.isMeant(p, e) })
		for _, l := range r.lanes {
			if !l.ended && l.at == p {
				l.step()
			}
		}
		if r.last = p; ok {
			return inbox.Entry{Position: p, Envelope: e}, true, nil
		}
	}
}

// isMeant reports whether the message at hand is asked for, and one of the histories that
// have it keeps it still, or is asked for what it keeps no more.
func (r *historyReader) isMeant(p inbox.Position, e *inbox.Envelope) bool {
	if e.Time < r.q.After.Time || r.q.Before.Time != 0 && e.Time >= r.q.Before.Time || !r.q.Matches(e) {
		return false
	}
	return slices.ContainsFunc(r.lanes, func(l *lane) bool {
		return !l.ended && l.at == p && (r.q.over || l.history.keepUntil(e) > r.now.UnixMilli())
	})
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

// kept returns message p, to which a history refers, or its mark, if it is meant and
// not gone. What is not meant is not copied.
func (s *Store) kept(txn *badger.Txn, p inbox.Position, isMeant func(*inbox.Envelope) bool) (e *inbox.Envelope, ok bool) {
	key := numberKey(prefixBody, uint64(p))
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false
	}
	if err == nil {
		err = item.Value(func(v []byte) error {
			_, record, err := parseBody(v)
			if err == nil {
				e, err = inbox.ParseEnvelope(record)
			}
			if ok = err == nil && isMeant(e); ok {
				e, err = inbox.ParseEnvelope(slices.Clone(record))
			}
			return err
		})
	}
	if err != nil {
		s.reportDamage("body", key, err)
		return nil, false
	}
	if ok {
		e.ID = inbox.MessageID{Sequence: p, Store: s.id}
	}
	return e, ok
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
