package badger

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// outgrownAtOnce bounds how many messages of one history a round of the sweeper
// deletes for their age, so that others have their turn.
const outgrownAtOnce = 200_000

// sweepHistories deletes what is older than histories keep, or more.
func (w *sweeper) sweepHistories(b *sweepBatch) error {
	for _, h := range w.s.histories.all {
		swept, upTo, err := w.s.outgrown(h)
		if err == nil && upTo > swept {
			err = w.sweepHistory(b, h, swept, upTo)
		}
		if err != nil {
			return fmt.Errorf("history of %q: %w", h.Filter, err)
		}
	}
	return nil
}

// sweepHistory deletes the blocks of a history up to a position, and notes that
// everything up to there is gone: that of a block that goes on behind it too.
func (w *sweeper) sweepHistory(b *sweepBatch, h *history, swept, upTo inbox.Position) error {
	b.history = true
	err := b.finished(h.incarnation, swept, upTo, 0, nil, nil)
	if err == nil {
		err = b.flush()
	}
	b.history = false
	if err != nil {
		return err
	}
	return w.s.do(w.s.background, "note swept history", func(g *commitGroup) error {
		g.put(numberKey(prefixState, uint64(h.incarnation)), appendProgress(nil, progressRecord{swept: upTo}))
		g.s.indexer.hint(indexWork{clean: true, swept: upTo}, h.incarnation)
		return nil
	})
}

// outgrown returns up to where a history is swept, and up to where it is not to be kept
// any more.
func (s *Store) outgrown(h *history) (swept, upTo inbox.Position, err error) {
	if h.Keep == 0 && h.Bytes == 0 {
		return 0, 0, nil
	}
	visible := inbox.Position(s.visible.Load())
	err = s.view(func(txn *badger.Txn) (err error) {
		swept = s.sweptOf(txn, h.incarnation)
		upTo = swept
		if h.Keep > 0 {
			upTo = s.tooOld(txn, h, swept, visible)
		}
		if h.Bytes > 0 {
			var most inbox.Position
			most, err = s.tooMuch(txn, h, upTo, visible)
			upTo = max(upTo, most)
		}
		return err
	})
	return swept, upTo, err
}

// tooOld returns up to where all messages of a history behind a position are too old.
// One of the future, as when the clock was wrong, does not hold up those behind it.
func (s *Store) tooOld(txn *badger.Txn, h *history, after, visible inbox.Position) (upTo inbox.Position) {
	upTo = after
	now := time.Now()
	old, future := now.UnixMilli()-h.Keep, now.Add(24*time.Hour).UnixMilli()
	it := blocksOf(txn, h.incarnation)
	defer it.Close()
	n := 0
	for it.Seek(blockKey(h.incarnation, after+1)); it.Valid() && n < outgrownAtOnce; it.Next() {
		entries := s.readEntries(it.Item())
		for e, ok := entries.next(); ok; e, ok = entries.next() {
			if e.position <= after {
				continue
			}
			n++
			t := int64(0) // of what is gone already
			s.kept(txn, e.position, func(e *inbox.Envelope) bool { t = e.Time; return false })
			switch {
			case t <= old && e.position <= visible:
				upTo = e.position
			case t < future || e.position > visible:
				return upTo
			}
		}
	}
	return upTo
}

// tooMuch returns up to where the messages of a history behind a position are to go,
// for those that follow are as much as it keeps. While its index is far behind, that is
// not known, and nothing goes.
func (s *Store) tooMuch(txn *badger.Txn, h *history, after, visible inbox.Position) (inbox.Position, error) {
	lists, err := s.openLists(txn, h.incarnation, after, visible)
	var behind behindError
	switch {
	case errors.As(err, &behind):
		s.indexer.hint(indexWork{index: true}, h.incarnation)
		return after, nil
	case errors.Is(err, errNotIndexed), errors.Is(err, inbox.ErrDamaged): // which is seen to
		return after, nil
	case err != nil:
		return after, err
	}
	defer lists.close()
	all := lists.list(listID{kind: listAll})
	base := all.upTo(after)
	size := func(t tally) int64 {
		t = t.minus(base)
		return int64(t.bytes) + int64(t.messages)*int64(emptyEnvelope)
	}
	excess := size(all.upTo(endless)) - h.Bytes
	upTo := after
	for r := all.record(after + 1); r != nil && excess > 0; r = all.record(upTo + 1) {
		if size(r.total()) < excess {
			upTo = r.last()
			continue
		}
		n := sort.Search(r.n, func(i int) bool { return size(r.tally(i+1)) >= excess })
		upTo = r.position(n)
		break
	}
	if lists.err != nil {
		return after, nil
	}
	return upTo, nil
}
