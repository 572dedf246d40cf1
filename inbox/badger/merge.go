package badger

import (
	"cmp"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// merger reads an inbox in order: the receiver's own blocks and those of its
// streams, from one position to another. A stream is looked at when its turn has
// come, so one with nothing new costs a comparison.
type merger struct {
	s      *Store
	txn    *badger.Txn
	from   reading
	upTo   inbox.Position
	now    time.Time
	tracks []track
}

// track is one place to read from.
type track struct {
	source      *source // nil for the receiver's own blocks
	incarnation incarnation
	limit       inbox.Position
	at          inbox.Position // of the entry at hand, or, before the track is read, where it may be; endless at the end
	begun       bool
	it          *badger.Iterator // nil if nothing had to be read

	// Of the receiver's own blocks.
	block entryReader
	entry stored

	// Of a stream.
	shared *streamBlock
	next   int // the entry at hand in it
}

func (s *Store) merge(txn *badger.Txn, from reading, after, upTo inbox.Position) *merger {
	m := &merger{s: s, txn: txn, from: from, upTo: upTo, now: time.Now(), tracks: make([]track, 1, 1+len(from.sources))}
	m.tracks[0] = track{incarnation: from.incarnation, at: after + 1, limit: upTo}
	for _, src := range from.sources {
		at, limit := max(after+1, src.since+1, src.next), min(upTo, src.until)
		if at <= limit && s.headOf(txn, src.stream) >= at {
			m.tracks = append(m.tracks, track{source: src, incarnation: src.stream.incarnation, at: at, limit: limit})
		}
	}
	return m
}

// close must be called in the end.
func (m *merger) close() {
	for i := range m.tracks {
		t := &m.tracks[i]
		if t.it != nil {
			t.it.Close()
		}
		if t.source != nil {
			t.source.next = min(t.at, t.limit+1)
		}
	}
}

// next returns the next entry, or false at the end, and whether a block ends
// behind it: there it costs least to go on another time. Cost: a comparison for
// each stream that has something new.
func (m *merger) next() (e inbox.Entry, blockEnds, ok bool) {
	for {
		first := m.first()
		if first.at == endless {
			return inbox.Entry{}, false, false
		}
		if !first.begun {
			m.begin(first)
			continue
		}
		p := first.at
		e, ok = m.entry(first)
		blockEnds = false
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
				granted = m.grant(t, &e) || granted
			}
			blockEnds = m.step(t, p+1)
		}
		if granted && !drops(m.from.leavings, p, e.Envelope.Topic) {
			return e, blockEnds, true
		}
	}
}

// first returns the track with the lowest position. The receiver's own comes
// before others at the same.
func (m *merger) first() *track {
	first := &m.tracks[0]
	for i := range m.tracks {
		if m.tracks[i].at < first.at {
			first = &m.tracks[i]
		}
	}
	return first
}

// entry returns the entry at hand in a track, if it is still to be had.
func (m *merger) entry(t *track) (inbox.Entry, bool) {
	if t.source == nil {
		return m.s.entry(m.txn, t.entry, m.now)
	}
	e := t.shared.entries[t.next]
	return e, !m.s.isOver(e, m.now)
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
	if t.source != nil {
		m.stepShared(t, t.at)
		return
	}
	t.it = blocksOf(m.txn, t.incarnation)
	t.it.Seek(blockKey(t.incarnation, t.at))
	m.step(t, t.at)
}

// step goes on to the next entry at or behind a position, and reports whether it
// is in another block.
func (m *merger) step(t *track, from inbox.Position) (another bool) {
	if t.source != nil {
		return m.stepShared(t, from)
	}
	for {
		for e, ok := t.block.next(); ok; e, ok = t.block.next() {
			if e.position < from {
				continue
			}
			if t.entry, t.at = e, e.position; t.at > t.limit {
				t.at = endless
			}
			return another
		}
		if t.block.s != nil {
			t.it.Next()
		}
		if !t.it.Valid() {
			t.at = endless
			return true
		}
		t.block, another = m.s.readEntries(t.it.Item()), true
	}
}

// stepShared is step for a stream.
func (m *merger) stepShared(t *track, from inbox.Position) (another bool) {
	for {
		if b := t.shared; b != nil {
			for t.next < len(b.entries) && b.entries[t.next].Position < from {
				t.next++
			}
			if t.next < len(b.entries) {
				if t.at = b.entries[t.next].Position; t.at > t.limit {
					t.at = endless
				}
				return another
			}
			from = max(from, b.last+1)
		}
		if t.shared, another = m.sharedBlock(t, from), true; t.shared == nil {
			t.at = endless
			return true
		}
		t.next, _ = slices.BinarySearchFunc(t.shared.entries, from, func(e inbox.Entry, p inbox.Position) int { return cmp.Compare(e.Position, p) })
	}
}

// sharedBlock returns the block of a stream that has what comes at or behind a
// position, or nil at the end. It reads what nobody has read lately.
func (m *merger) sharedBlock(t *track, from inbox.Position) *streamBlock {
	if from > t.limit || from > m.s.headOf(m.txn, t.source.stream) {
		return nil
	}
	if b := m.s.blocks.find(t.incarnation, from); b != nil {
		return b
	}
	if t.it == nil {
		t.it = blocksOf(m.txn, t.incarnation)
	}
	if t.it.Seek(blockKey(t.incarnation, from)); !t.it.Valid() {
		return nil
	}
	return m.s.blocks.add(m.s.readStreamBlock(m.txn, t.incarnation, t.it.Item(), from))
}

// headOf returns a position behind which a stream has nothing. After a start it
// looks for it once.
func (s *Store) headOf(txn *badger.Txn, st *stream) inbox.Position {
	head := st.head.Load()
	if head != headUnknown {
		return inbox.Position(head)
	}
	it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixBlock, uint64(st.incarnation)), Reverse: true})
	defer it.Close()
	last := uint64(0)
	if it.Seek(blockKey(st.incarnation, endless)); it.Valid() {
		last = keyNumber(it.Item().Key())
	}
	if !st.head.CompareAndSwap(headUnknown, last) { // something was appended meanwhile
		last = st.head.Load()
	}
	return inbox.Position(last)
}
