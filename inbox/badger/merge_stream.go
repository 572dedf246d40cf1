package badger

import (
	"cmp"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// stepShared is step for a stream, whose decoded blocks are shared with others who
// read it.
func (m *merger) stepShared(t *track, from inbox.Position) (another bool) {
	for {
		if b := t.shared; b != nil {
			for t.next < len(b.entries) && b.entries[t.next].Position < from {
				t.next++
			}
			if t.next < len(b.entries) {
				t.at = b.entries[t.next].Position
				return another
			}
			from = max(from, b.last+1)
		}
		if t.shared, another = m.sharedBlock(t, from), true; t.shared == nil {
			t.at = endless
			return true
		}
		t.next, _ = slices.BinarySearchFunc(t.shared.entries, from, comparePosition)
	}
}

func comparePosition(e inbox.Entry, p inbox.Position) int { return cmp.Compare(e.Position, p) }

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
	return m.s.blocks.add(m.s.readStreamBlock(m.txn, t.incarnation, t.it.Item(), from), m.txn.ReadTs())
}

// headOf returns a position behind which a stream has nothing. After a start it
// looks for it once.
func (s *Store) headOf(txn *badger.Txn, st *stream) inbox.Position {
	head := st.head.Load()
	if head != headUnknown {
		return inbox.Position(head)
	}
	it := backBlocksOf(txn, st.incarnation)
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
