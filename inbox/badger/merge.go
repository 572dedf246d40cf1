package badger

import (
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// merger reads an inbox in order, or in the reverse: the receiver's own blocks and
// those of its streams, from one position to another. A stream is looked at when its
// turn has come, so one with nothing new costs a comparison.
type merger struct {
	s      *Store
	txn    *badger.Txn
	from   reading
	part   part
	now    time.Time
	tracks []track
}

// part is which entries of an inbox are read, and in which order.
type part struct {
	after, upTo inbox.Position
	back        bool         // the last comes first
	within      *inbox.Spans // those here alone; nil for all
	acked       *acked       // those that are not acknowledged; nil for all
}

// track is one place to read from.
type track struct {
	source      *source // nil for the receiver's own blocks and memory
	incarnation incarnation
	limit       inbox.Position // the last to be read
	at          inbox.Position // of the entry at hand, or, before the track is read, where it may be; merger.end at the end
	begun       bool
	it          *badger.Iterator // nil if nothing had to be read

	// Of the receiver's own blocks.
	block entryReader
	last  inbox.Position // the block's
	entry stored

	// Of a stream, or of memory.
	shared *streamBlock
	memory []inbox.Entry // ascending
	next   int           // the entry at hand in one of them

	back backwards
}

// met is an entry, or what is left of one whose time is over.
type met struct {
	inbox.Entry
	over      bool
	blockEnds bool // a block ends behind it: there it costs least to go on another time
}

func (s *Store) merge(txn *badger.Txn, from reading, p part) *merger {
	m := &merger{s: s, txn: txn, from: from, part: p, now: time.Now(), tracks: make([]track, 0, 2+len(from.sources))}
	m.add(track{incarnation: from.incarnation}, p.after+1, p.upTo)
	if len(from.memory) > 0 {
		m.add(track{memory: from.memory}, p.after+1, p.upTo)
	}
	for _, src := range from.sources {
		first, last := max(p.after+1, src.since+1, src.next), min(p.upTo, src.until)
		if first <= last && s.headOf(txn, src.stream) >= first {
			m.add(track{source: src, incarnation: src.stream.incarnation}, first, last)
		}
	}
	return m
}

// add adds a track, of which the entries from one position to another are read.
func (m *merger) add(t track, first, last inbox.Position) {
	t.at, t.limit = first, last
	if m.part.back {
		t.at, t.limit = last, first
	}
	m.tracks = append(m.tracks, t)
}

// close must be called in the end.
func (m *merger) close() {
	for i := range m.tracks {
		t := &m.tracks[i]
		if t.it != nil {
			t.it.Close()
		}
		t.back.close()
	}
}

// noteRead notes how far the streams are read, so that this is not read another time.
// For whoever goes on from there alone.
func (m *merger) noteRead() {
	for i := range m.tracks {
		if t := &m.tracks[i]; t.source != nil {
			t.source.next = min(t.at, t.limit+1)
		}
	}
}

// end is where a track is that has nothing more.
func (m *merger) end() inbox.Position {
	if m.part.back {
		return 0
	}
	return endless
}

// isBefore reports whether a comes before b in the order of reading.
func (m *merger) isBefore(a, b inbox.Position) bool {
	if m.part.back {
		return a > b
	}
	return a < b
}

// follower is the position that comes after p.
func (m *merger) follower(p inbox.Position) inbox.Position {
	if m.part.back {
		return p - 1
	}
	return p + 1
}

// next returns the next entry, or false at the end. Cost: a comparison for each
// stream that has something new.
func (m *merger) next() (e met, ok bool) {
	for {
		first := m.first()
		p := first.at
		if p == m.end() {
			return met{}, false
		}
		if q := m.wanted(p); q != p {
			m.skip(q)
			continue
		}
		if !first.begun {
			m.begin(first)
			continue
		}
		e.Entry, ok = m.entry(first)
		e.blockEnds = false
		granted := false
		for i := range m.tracks {
			t := &m.tracks[i]
			if t.at == p && !t.begun {
				m.begin(t)
			}
			if t.at != p {
				continue
			}
			if ok {
				granted = m.grant(t, &e.Entry) || granted
			}
			e.blockEnds = m.step(t, m.follower(p))
		}
		if granted && m.isMeant(&e.Entry) {
			e.over = m.s.isOver(e.Entry, m.now)
			return e, true
		}
	}
}

// isMeant reports whether an entry was neither given up nor acknowledged.
func (m *merger) isMeant(e *inbox.Entry) bool {
	return !drops(m.from.leavings, e.Position, e.Envelope.Topic) && (m.part.acked == nil || !m.part.acked.covers(e))
}

// wanted returns the first position at p or after it where an entry may be that is
// to be read, or the end.
func (m *merger) wanted(p inbox.Position) inbox.Position {
	if m.part.within == nil {
		return p
	}
	find := m.part.within.AtOrBehind
	if m.part.back {
		find = m.part.within.AtOrBefore
	}
	if q, ok := find(p); ok {
		return q
	}
	return m.end()
}

// skip has all tracks go on to p, or behind it.
func (m *merger) skip(p inbox.Position) {
	for i := range m.tracks {
		t := &m.tracks[i]
		switch {
		case !m.isBefore(t.at, p):
		case p == m.end() || m.isBefore(t.limit, p):
			t.at = m.end()
		case t.begun:
			m.step(t, p)
		default:
			t.at = p
		}
	}
}

// first returns the track that comes first. The receiver's own comes before others
// at the same position.
func (m *merger) first() *track {
	first := &m.tracks[0]
	for i := range m.tracks {
		if m.isBefore(m.tracks[i].at, first.at) {
			first = &m.tracks[i]
		}
	}
	return first
}

// entry returns what is at hand in a track, if it is still to be had.
func (m *merger) entry(t *track) (inbox.Entry, bool) {
	switch {
	case t.memory != nil:
		e := t.memory[t.next]
		return e, !m.s.isDeleted(m.txn, e.Envelope.ID.Sequence)
	case t.source == nil:
		return m.s.decode(m.txn, t.entry)
	case m.part.back:
		e, ok := m.s.decode(m.txn, t.entry)
		e.Grant = inbox.Grant{}
		return e, ok
	default:
		return t.shared.entries[t.next], true
	}
}

// grant adds to e what a stream grants, and reports whether anything is granted.
// What the receiver's own entry grants is there already.
func (m *merger) grant(t *track, e *inbox.Entry) bool {
	if t.source == nil {
		return !isAside(*e)
	}
	return t.source.grant(&e.Grant, e.Envelope, m.from.receiver)
}

// begin finds the first entry of a track.
func (m *merger) begin(t *track) {
	t.begun = true
	m.step(t, t.at)
}

// step goes on to the next entry at a position or after it, and reports whether it
// is in another block.
func (m *merger) step(t *track, from inbox.Position) (another bool) {
	switch {
	case t.memory != nil:
		m.stepMemory(t, from)
	case m.part.back:
		another = m.stepBack(t, from)
	case t.source != nil:
		another = m.stepShared(t, from)
	default:
		another = m.stepOwn(t, from)
	}
	if t.at != m.end() && m.isBefore(t.limit, t.at) {
		t.at = m.end()
	}
	return another
}

// stepOwn is step for the receiver's own blocks.
func (m *merger) stepOwn(t *track, from inbox.Position) (another bool) {
	for {
		for t.block.s != nil && from <= t.last {
			e, ok := t.block.next()
			if !ok {
				break
			}
			if e.position >= from {
				t.entry, t.at = e, e.position
				return another
			}
		}
		another = true
		switch {
		case t.it == nil:
			t.it = blocksOf(m.txn, t.incarnation)
			t.it.Seek(blockKey(t.incarnation, from))
		case from > t.last+1:
			t.it.Seek(blockKey(t.incarnation, from))
		default:
			t.it.Next()
		}
		if !t.it.Valid() {
			t.at = endless
			return true
		}
		t.block, t.last = m.s.readEntries(t.it.Item()), inbox.Position(keyNumber(t.it.Item().Key()))
	}
}

// stepMemory is step for what is in memory alone.
func (m *merger) stepMemory(t *track, from inbox.Position) {
	i, found := slices.BinarySearchFunc(t.memory, from, comparePosition)
	if m.part.back && !found {
		i--
	}
	if t.at = m.end(); i >= 0 && i < len(t.memory) {
		t.at, t.next = t.memory[i].Position, i
	}
}
