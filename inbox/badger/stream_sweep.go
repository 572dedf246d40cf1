package badger

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// streamSweep is a stream that may have something to be deleted.
type streamSweep struct {
	stream *stream
	known  bool           // otherwise the readers' positions are to be looked for first, after a start
	swept  inbox.Position // blocks up to here are gone
	upTo   inbox.Position // everyone has finished up to here
}

// sweepStreams deletes what all readers of a stream have passed.
func (w *sweeper) sweepStreams(b *sweepBatch) error {
	all, err := run(w.s.background, w.s, "look for finished streams", func(g *commitGroup) ([]streamSweep, error) {
		g.readClock()
		return g.streamsToSweep(), nil
	})
	if err != nil {
		return err
	}
	for _, sw := range all {
		if sw.known {
			err = w.sweepStream(b, sw)
		} else {
			err = w.learnPositions(sw.stream)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// streamsToSweep forgets the readers that have come to their end, and returns the
// streams that all others have read on in. Cost: a few nanoseconds for each stream
// that has something, and about 10 for each reader of those whose slowest has moved.
func (g *commitGroup) streamsToSweep() (all []streamSweep) {
	t := g.s.streams
	for st := range t.unswept {
		if !st.known {
			all = append(all, streamSweep{stream: st})
			continue
		}
		for m := range st.past {
			if r := st.readers.of(m); r != nil {
				g.settlePast(m, st, min(g.positionOf(r), g.s.keptBehind()))
			}
		}
		if g.shrink(st); t.byFilter[st.filter] != st {
			continue // it had no reader left
		}
		head := inbox.Position(st.head.Load())
		if head <= st.swept {
			if len(st.past) == 0 {
				delete(t.unswept, st)
			}
			continue
		}
		if upTo := min(g.passed(st), head, g.s.keptBehind()); upTo > st.swept {
			all = append(all, streamSweep{stream: st, known: true, swept: st.swept, upTo: upTo})
		}
	}
	return all
}

// passed returns up to where all readers of a stream have finished. It looks for
// the slowest only when the one it knew has moved.
func (g *commitGroup) passed(st *stream) inbox.Position {
	if r := st.readers.of(st.slowest.member); r != nil && g.positionOf(r) <= st.slowest.position {
		return st.slowest.position
	}
	st.slowest = place{position: endless}
	for r := range st.readers.all() {
		if p := g.positionOf(r); p < st.slowest.position {
			st.slowest = place{r.member(), p}
		}
	}
	return st.slowest.position
}

// positionOf returns how far a reader has come, connected or not.
func (g *commitGroup) positionOf(r *reader) inbox.Position {
	if h := g.s.sessions.at(r.member()).owner(); h != nil {
		r.set(max(r.position(), h.finished()))
	}
	return r.position()
}

// sweepStream deletes the blocks of a stream that all have passed, and notes that
// they are gone.
func (w *sweeper) sweepStream(b *sweepBatch, sw streamSweep) error {
	swept := sw.swept
	err := b.finished(sw.stream.incarnation, sw.swept, sw.upTo, 0, nil, func(last inbox.Position, _ []inbox.Position) { swept = last })
	if err == nil {
		err = b.flush()
	}
	if err != nil || swept == sw.swept && sw.upTo < inbox.Position(sw.stream.head.Load()) {
		return err
	}
	return w.s.do(w.s.background, "note swept stream", func(g *commitGroup) error {
		st := sw.stream
		if g.s.streams.byFilter[st.filter] != st {
			return nil
		}
		st.swept = sw.upTo // the last blocks may have expired
		if swept > sw.swept {
			g.put(numberKey(prefixState, uint64(st.incarnation)), appendProgress(nil, progressRecord{swept: swept}))
			g.s.indexer.hint(indexWork{clean: true, swept: swept}, st.incarnation)
		}
		return nil
	})
}

// learnPositions reads where the readers of a stream are, which is not known
// after a start, unless the stream is empty and nobody has a past in it. Cost:
// about 5 µs each, in the background, once.
func (w *sweeper) learnPositions(st *stream) error {
	var swept, head inbox.Position
	err := w.s.view(func(txn *badger.Txn) error {
		head = w.s.headOf(txn, st)
		r, err := readProgress(txn, st.incarnation)
		swept = r.swept
		return err
	})
	if err != nil {
		return err
	}
	if head <= swept {
		idle, err := run(w.s.background, w.s, "note empty stream", func(g *commitGroup) (bool, error) {
			if inbox.Position(st.head.Load()) != head || len(st.past) > 0 {
				return false, nil
			}
			delete(g.s.streams.unswept, st)
			return true, nil
		})
		if err != nil || idle {
			return err
		}
	}
	for after, more := inbox.Member(0), true; more; {
		if after, more, err = w.learnSome(st, after); err != nil {
			return err
		}
	}
	return w.s.do(w.s.background, "note positions", func(*commitGroup) error {
		st.known, st.swept = true, swept
		return nil
	})
}

// learnAtOnce bounds how many delivery states are read in one transaction.
const learnAtOnce = 10_000

// learning is one reader whose position is looked for.
type learning struct {
	member      inbox.Member
	incarnation incarnation
	position    inbox.Position
}

// learnSome does what learnPositions does for some of the readers: the next behind
// a member. It returns the last of them, and whether there may be more. Who comes
// meanwhile is known.
func (w *sweeper) learnSome(st *stream, after inbox.Member) (last inbox.Member, more bool, err error) {
	wentBack := 0
	some, err := run(w.s.background, w.s, "list readers", func(g *commitGroup) (some []learning, err error) {
		wentBack = g.s.wentBack
		for r := range st.readers.from(after + 1) {
			if some = append(some, learning{member: r.member(), incarnation: g.s.sessions.at(r.member()).incarnation}); len(some) == learnAtOnce {
				break
			}
		}
		return some, nil
	})
	if err != nil || len(some) == 0 {
		return after, false, err
	}
	err = w.s.view(func(txn *badger.Txn) error {
		for i := range some {
			r, err := readProgress(txn, some[i].incarnation)
			if err != nil {
				return err
			}
			some[i].position = r.finished()
		}
		return nil
	})
	if err != nil {
		return after, false, err
	}
	last, more = some[len(some)-1].member, len(some) == learnAtOnce
	err = w.s.do(w.s.background, "note positions", func(g *commitGroup) error {
		if g.s.wentBack != wentBack { // what was read may be wrong
			last, more = after, true
			return nil
		}
		for _, l := range some {
			if g.s.sessions.at(l.member).incarnation == l.incarnation {
				st.advance(l.member, l.position)
			}
		}
		return nil
	})
	return last, more, err
}
