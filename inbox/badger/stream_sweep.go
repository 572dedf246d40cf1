package badger

import (
	"encoding/binary"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// streamSweep is a stream that has something to be deleted.
type streamSweep struct {
	stream  *stream
	swept   inbox.Position // blocks up to here are gone
	upTo    inbox.Position // everyone has finished up to here
	unknown []place        // after a start: of the readers, to be looked for first
}

// sweepStreams deletes what all readers of a stream have passed.
func (w *sweeper) sweepStreams(b *sweepBatch) error {
	all, err := run(w.s.background, w.s, "look for finished streams", func(g *commitGroup) ([]streamSweep, error) {
		return g.streamsToSweep(), nil
	})
	if err != nil {
		return err
	}
	for _, sw := range all {
		if sw.unknown != nil {
			err = w.learnPositions(sw)
		} else {
			err = w.sweepStream(b, sw)
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
			sw := streamSweep{stream: st, unknown: make([]place, 0, st.readers.len)}
			for r := range st.readers.all() {
				sw.unknown = append(sw.unknown, place{r.member(), r.position()})
			}
			all = append(all, sw)
			continue
		}
		for m := range st.past {
			if r := st.readers.of(m); r != nil {
				g.settlePast(m, st, g.positionOf(r))
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
		if upTo := min(g.passed(st), head); upTo > st.swept {
			all = append(all, streamSweep{stream: st, swept: st.swept, upTo: upTo})
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
			value := binary.AppendUvarint([]byte{stateVersion}, uint64(swept))
			g.put(numberKey(prefixState, uint64(st.incarnation)), inbox.AppendState(value, inbox.State{}))
		}
		return nil
	})
}

// learnPositionsAtOnce bounds how many delivery states are read in one
// transaction.
const learnPositionsAtOnce = 10_000

// learnPositions reads where the readers of a stream are, which is not known
// after a start, unless the stream is empty and nobody has a past in it. Cost:
// about 5 µs each, in the background, once.
func (w *sweeper) learnPositions(sw streamSweep) error {
	var swept, head inbox.Position
	err := w.s.view(func(txn *badger.Txn) (err error) {
		head = w.s.headOf(txn, sw.stream)
		swept, _, err = readState(txn, sw.stream.incarnation)
		return err
	})
	if err != nil {
		return err
	}
	if head <= swept {
		idle, err := run(w.s.background, w.s, "note empty stream", func(g *commitGroup) (bool, error) {
			if inbox.Position(sw.stream.head.Load()) != head || len(sw.stream.past) > 0 {
				return false, nil
			}
			delete(g.s.streams.unswept, sw.stream)
			return true, nil
		})
		if err != nil || idle {
			return err
		}
	}
	for rest := sw.unknown; len(rest) > 0; {
		part := rest[:min(len(rest), learnPositionsAtOnce)]
		rest = rest[len(part):]
		if err := w.learnPart(sw.stream, part); err != nil {
			return err
		}
	}
	return w.s.do(w.s.background, "note positions", func(*commitGroup) error {
		sw.stream.known, sw.stream.swept = true, swept
		return nil
	})
}

// learnPart does what learnPositions does for some of the readers.
func (w *sweeper) learnPart(st *stream, part []place) error {
	incarnations, err := run(w.s.background, w.s, "list readers", func(g *commitGroup) (all []incarnation, err error) {
		for _, r := range part {
			all = append(all, g.s.sessions.at(r.member).incarnation)
		}
		return all, nil
	})
	if err != nil {
		return err
	}
	err = w.s.view(func(txn *badger.Txn) error {
		for i, inc := range incarnations {
			_, state, err := readState(txn, inc)
			if err != nil {
				return err
			}
			part[i].position = max(part[i].position, finishedIn(state))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.s.do(w.s.background, "note positions", func(g *commitGroup) error {
		for i, r := range part {
			if g.s.sessions.at(r.member).incarnation == incarnations[i] {
				st.advance(r.member, r.position)
			}
		}
		return nil
	})
}
