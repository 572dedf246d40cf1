package badger

import (
	"hash/maphash"
	"math/bits"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

const (
	namesChunk = 1 << 16 // size of the pieces of the names
	longChunk  = 4 << 10 // length from which a name has a piece of its own, so that the ends of the others are well used

	// wholeChunk is the length in a span of such a name, however long: that of a
	// group may be longer than a client id can be.
	wholeChunk = namesChunk - 1
)

// names holds the names of all sessions one after the other, in pieces that
// never move.
type names struct {
	chunks [][]byte
	filled int // 1 + number of the piece that short names are added to; 0 if there is none
	size   int // bytes of all pieces
	dead   int // bytes that belong to no session any more
}

// span is a place among the names.
type span struct {
	chunk          uint32
	offset, length uint16
}

func (n *names) add(name string) span {
	if len(name) >= longChunk {
		return span{chunk: uint32(n.piece([]byte(name))), length: wholeChunk}
	}
	if n.filled == 0 || len(n.chunks[n.filled-1])+len(name) > namesChunk {
		n.filled = 1 + n.piece(make([]byte, 0, namesChunk))
	}
	i := n.filled - 1
	at := len(n.chunks[i])
	n.chunks[i] = append(n.chunks[i], name...)
	return span{uint32(i), uint16(at), uint16(len(name))}
}

// piece adds a piece and returns its number.
func (n *names) piece(b []byte) int {
	n.chunks = append(n.chunks, b)
	n.size += cap(b)
	return len(n.chunks) - 1
}

// get returns the name at s itself, not a copy.
func (n *names) get(s span) []byte {
	if s.length == wholeChunk {
		return n.chunks[s.chunk]
	}
	return n.chunks[s.chunk][s.offset:][:s.length]
}

func (n *names) remove(s span) { n.dead += len(n.get(s)) }

// wasteful reports whether it is time to copy what is in use: when that is less
// than half, so that each byte is copied about once for each that was removed.
func (n *names) wasteful() bool {
	return n.dead > namesChunk && n.dead > n.size/2
}

// nameTable finds members by name, by open addressing, at most seven eighths full.
// A slot is a member, 0 if it is empty, and 8 bits of the hash of its name that
// decide nearly every comparison without a look at the name.
type nameTable struct {
	seed    maphash.Seed // clients choose the names, so they must not foresee the hash
	members []inbox.Member
	tags    []uint8
	used    int
}

func newNameTable() nameTable {
	return nameTable{seed: maphash.MakeSeed(), members: make([]inbox.Member, 64), tags: make([]uint8, 64)}
}

// home returns where the search for a name begins, and its tag.
func (t *nameTable) home(name []byte) (int, uint8) { return t.homeOf(maphash.Bytes(t.seed, name)) }

func (t *nameTable) homeOf(hash uint64) (int, uint8) {
	i, _ := bits.Mul64(hash, uint64(len(t.members)))
	return int(i), uint8(hash)
}

func (t *nameTable) after(i int) int {
	if i++; i < len(t.members) {
		return i
	}
	return 0
}

// find returns the member with a name, 0 if there is none.
func (t *nameTable) find(name string, nameOf func(inbox.Member) []byte) inbox.Member {
	i, tag := t.homeOf(maphash.String(t.seed, name))
	for ; t.members[i] != 0; i = t.after(i) {
		if t.tags[i] == tag && string(nameOf(t.members[i])) == name {
			return t.members[i]
		}
	}
	return 0
}

// insert adds a member that is not there. Growing looks at all names: about
// 0.1 s for a million.
func (t *nameTable) insert(m inbox.Member, nameOf func(inbox.Member) []byte) {
	if t.used >= len(t.members)/8*7 {
		t.resize(len(t.members)+len(t.members)/4, nameOf)
	}
	t.place(m, nameOf(m))
}

func (t *nameTable) place(m inbox.Member, name []byte) {
	i, tag := t.home(name)
	for t.members[i] != 0 {
		i = t.after(i)
	}
	t.members[i], t.tags[i] = m, tag
	t.used++
}

// reserve makes room for so many members.
func (t *nameTable) reserve(members int, nameOf func(inbox.Member) []byte) {
	if slots := members + members/4; slots > len(t.members) {
		t.resize(slots, nameOf)
	}
}

// resize gives the table so many slots.
func (t *nameTable) resize(slots int, nameOf func(inbox.Member) []byte) {
	old := t.members
	t.members, t.tags, t.used = make([]inbox.Member, slots), make([]uint8, slots), 0
	for _, m := range old {
		if m != 0 {
			t.place(m, nameOf(m))
		}
	}
}

// remove takes out a member that is there and moves those behind it that could
// not be at their home because of it.
func (t *nameTable) remove(m inbox.Member, nameOf func(inbox.Member) []byte) {
	hole, _ := t.home(nameOf(m))
	for t.members[hole] != m {
		hole = t.after(hole)
	}
	t.used--
	for i := t.after(hole); t.members[i] != 0; i = t.after(i) {
		home, _ := t.home(nameOf(t.members[i]))
		if t.distance(home, i) >= t.distance(hole, i) {
			t.members[hole], t.tags[hole] = t.members[i], t.tags[i]
			hole = i
		}
	}
	t.members[hole], t.tags[hole] = 0, 0
}

// distance is the number of steps from one slot forward to another.
func (t *nameTable) distance(from, to int) int {
	if to < from {
		to += len(t.members)
	}
	return to - from
}
