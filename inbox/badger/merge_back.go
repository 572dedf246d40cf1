package badger

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// backwards is where a track is that is read from its end.
type backwards struct {
	entries []stored       // of the block at hand, those that were not passed
	first   inbox.Position // the block's first; 0 if there is no block yet

	// Badger goes one way with an iterator: up finds the block in which a position
	// is, and down those in front of it.
	up, down *badger.Iterator
	placed   bool // down is at the block at hand
}

func (b *backwards) close() {
	for _, it := range []*badger.Iterator{b.up, b.down} {
		if it != nil {
			it.Close()
		}
	}
}

// backBlocksOf returns an iterator over the blocks of one inbox, the last first.
func backBlocksOf(txn *badger.Txn, inc incarnation) *badger.Iterator {
	return txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixBlock, uint64(inc)), Reverse: true})
}

// stepBack is step from the end, for own blocks and those of streams.
func (m *merger) stepBack(t *track, from inbox.Position) (another bool) {
	b := &t.back
	for from > 0 {
		for n := len(b.entries); n > 0; n = len(b.entries) {
			e := b.entries[n-1]
			b.entries = b.entries[:n-1]
			if e.position <= from {
				t.entry, t.at = e, e.position
				return another
			}
		}
		another = true
		if !m.blockBefore(t, from) {
			break
		}
	}
	t.at = 0
	return true
}

// blockBefore reads the block that has what is at a position or before it, and
// reports whether there is one that may. All of the block at hand is behind that.
func (m *merger) blockBefore(t *track, from inbox.Position) bool {
	b, inc := &t.back, t.incarnation
	if b.first == 0 || from+1 < b.first { // at first, or far away
		if b.up == nil {
			b.up = blocksOf(m.txn, inc)
		}
		b.placed = false
		if b.up.Seek(blockKey(inc, from)); b.up.Valid() && inbox.Position(keyNumber(b.up.Item().Key())) != t.last {
			m.readBack(t, b.up.Item())
			return true
		}
	}
	if b.down == nil {
		b.down = backBlocksOf(m.txn, inc)
	}
	if b.placed {
		b.down.Next()
	} else {
		b.down.Seek(blockKey(inc, from))
		if b.down.Valid() && inbox.Position(keyNumber(b.down.Item().Key())) == t.last {
			b.down.Next() // it is the one at hand
		}
		b.placed = true
	}
	if !b.down.Valid() {
		return false
	}
	m.readBack(t, b.down.Item())
	return true
}

// readBack makes a block the one at hand.
func (m *merger) readBack(t *track, item *badger.Item) {
	b := &t.back
	t.last = inbox.Position(keyNumber(item.Key()))
	b.entries = b.entries[:0]
	block := m.s.readEntries(item)
	for e, ok := block.next(); ok; e, ok = block.next() {
		b.entries = append(b.entries, e)
	}
	if b.first = t.last; len(b.entries) > 0 {
		b.first = b.entries[0].position
	}
}
