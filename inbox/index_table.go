package inbox

import (
	"hash/maphash"
	"math/bits"
)

// slot is one place of a table: a node, and the hash of its parent and first level.
type slot struct{ key, node uint32 }

// table is a hash table of nodes with open addressing, 8 bytes a slot, at most
// three quarters full. The key in the slot decides nearly every comparison
// without a look at the node, and lets the table grow without one: about 10 ms
// for a million nodes.
type table struct {
	seed  maphash.Seed // clients choose the levels, so they must not foresee the hash
	slots []slot       // node none is an empty slot
	used  int
}

func newTable() table { return table{seed: maphash.MakeSeed(), slots: make([]slot, 64)} }

func (t *table) hash(level string) uint64 { return maphash.String(t.seed, level) }

// mix makes the key of a node from its parent and the hash of its level, so
// that a level is hashed once and looked up under many parents.
func mix(parent uint32, hash uint64) uint32 {
	hi, lo := bits.Mul64(hash^uint64(parent)*0x9e3779b97f4a7c15, 0xd1342543de82ef95)
	return uint32(hi ^ lo)
}

// home returns the slot where the search for a key begins. The table has no
// need to be a power of two, and grows by a quarter.
func (t *table) home(key uint32) int { return int(uint64(key) * uint64(len(t.slots)) >> 32) }

func (t *table) after(i int) int {
	if i++; i < len(t.slots) {
		return i
	}
	return 0
}

// insert adds a slot that is not there.
func (t *table) insert(s slot) {
	if t.used >= len(t.slots)/4*3 {
		t.grow()
	}
	t.used++
	t.place(s)
}

func (t *table) place(s slot) {
	i := t.home(s.key)
	for t.slots[i].node != none {
		i = t.after(i)
	}
	t.slots[i] = s
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, len(old)+len(old)/4)
	for _, s := range old {
		if s.node != none {
			t.place(s)
		}
	}
}

// remove takes out a slot that is there and moves those behind it that could
// not be at their home because of it.
func (t *table) remove(s slot) {
	hole := t.home(s.key)
	for t.slots[hole] != s {
		hole = t.after(hole)
	}
	t.used--
	for i := t.after(hole); t.slots[i].node != none; i = t.after(i) {
		if t.distance(t.home(t.slots[i].key), i) >= t.distance(hole, i) {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = slot{}
}

// replace puts a node in the place of the one in a slot that is there.
func (t *table) replace(s slot, node uint32) {
	i := t.home(s.key)
	for t.slots[i] != s {
		i = t.after(i)
	}
	t.slots[i].node = node
}

// distance is the number of steps from one slot forward to another.
func (t *table) distance(from, to int) int {
	if to < from {
		to += len(t.slots)
	}
	return to - from
}

// textChunk is the size of the pieces of a text, which holds the longest MQTT
// string. Pieces never move, so that a text grows without copying it.
const textChunk = 1 << 16

// text holds the labels of all nodes one after the other.
type text struct {
	chunks [][]byte
	dead   int // bytes that belong to no node any more
}

// span is a place in a text: 32 bits of chunk, 16 of offset, 16 of length.
type span struct {
	chunk          uint32
	offset, length uint16
}

func (s span) len() int { return int(s.length) }

// cut returns the spans before the separator at some byte and behind it.
func (s span) cut(at int) (before, behind span) {
	if at > 0 {
		before = span{s.chunk, s.offset, uint16(at)}
	}
	if at+1 < s.len() {
		behind = span{s.chunk, s.offset + uint16(at+1), s.length - uint16(at+1)}
	}
	return before, behind
}

// add appends a label of at most 65,535 bytes, as MQTT strings are. The empty
// label is nowhere, so that it stays valid when the text is packed.
func (t *text) add(label string) span {
	if label == "" {
		return span{}
	}
	last := len(t.chunks) - 1
	if last < 0 || len(t.chunks[last])+len(label) > textChunk {
		t.chunks = append(t.chunks, make([]byte, 0, textChunk))
		last++
	}
	at := len(t.chunks[last])
	t.chunks[last] = append(t.chunks[last], label...)
	return span{uint32(last), uint16(at), uint16(len(label))}
}

// get returns the label at s itself, not a copy.
func (t *text) get(s span) []byte {
	if s.length == 0 {
		return nil
	}
	return t.chunks[s.chunk][s.offset:][:s.length]
}

// size is how many bytes the text takes.
func (t *text) size() int { return len(t.chunks) * textChunk }

// wasteful reports whether it is time to copy what is in use: when that is less
// than half, so that each byte is copied about once for each that was removed.
func (t *text) wasteful() bool { return t.dead > textChunk && t.dead > t.size()/2 }
