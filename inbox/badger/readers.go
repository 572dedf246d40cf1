package badger

import (
	"encoding/binary"
	"iter"
	"slices"
	"sort"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// reader is one session that reads a stream, and its position there: everything
// up to it is finished, or was there before the session joined. It takes 10 bytes,
// since a stream may have a million of them: 48 bits of position last for 89
// years at 100,000 messages a second.
type reader [10]byte

func newReader(m inbox.Member, p inbox.Position) (r reader) {
	binary.BigEndian.PutUint32(r[:], uint32(m))
	r.set(p)
	return r
}

func (r *reader) member() inbox.Member { return inbox.Member(binary.BigEndian.Uint32(r[:])) }

func (r *reader) position() inbox.Position {
	return inbox.Position(binary.BigEndian.Uint16(r[4:]))<<32 | inbox.Position(binary.BigEndian.Uint32(r[6:]))
}

func (r *reader) set(p inbox.Position) {
	binary.BigEndian.PutUint16(r[4:], uint16(p>>32))
	binary.BigEndian.PutUint32(r[6:], uint32(p))
}

// readersPart is how many readers are next to each other: so many move at most
// when one more comes in.
const readersPart = 1024

// readers are those of one stream, ascending by member. Finding, adding and
// removing one costs O(log n) and a part.
type readers struct {
	parts [][]reader // none is empty
	len   int
}

// find returns where m is, or would be, and whether it is there.
func (r *readers) find(m inbox.Member) (part, i int, ok bool) {
	part = sort.Search(len(r.parts), func(n int) bool { return r.parts[n][0].member() > m }) - 1
	if part < 0 {
		return 0, 0, false
	}
	p := r.parts[part]
	i = sort.Search(len(p), func(n int) bool { return p[n].member() >= m })
	return part, i, i < len(p) && p[i].member() == m
}

// of returns the reader of m, nil if it is none. It is valid until one is added
// or removed.
func (r *readers) of(m inbox.Member) *reader {
	if part, i, ok := r.find(m); ok {
		return &r.parts[part][i]
	}
	return nil
}

// add adds m, which is not there.
func (r *readers) add(m inbox.Member, p inbox.Position) {
	r.len++
	if len(r.parts) == 0 {
		r.parts = append(r.parts, []reader{newReader(m, p)})
		return
	}
	part, i, _ := r.find(m)
	full := r.parts[part]
	switch {
	case len(full) < readersPart:
		if len(full) == cap(full) { // append would make room for more than a part
			full = append(make([]reader, 0, min(2*len(full), readersPart)), full...)
		}
		r.parts[part] = slices.Insert(full, i, newReader(m, p))
	case i == readersPart: // as when members come in the order of their numbers
		r.parts = slices.Insert(r.parts, part+1, []reader{newReader(m, p)})
	default:
		half := readersPart / 2
		r.parts = slices.Insert(r.parts, part+1, slices.Clone(full[half:]))
		r.parts[part] = slices.Clone(full[:half])
		if i > half {
			part, i = part+1, i-half
		}
		r.parts[part] = slices.Insert(r.parts[part], i, newReader(m, p))
	}
}

// remove removes m, if it is there.
func (r *readers) remove(m inbox.Member) {
	part, i, ok := r.find(m)
	if !ok {
		return
	}
	r.len--
	p := slices.Delete(r.parts[part], i, i+1)
	if len(p) == 0 {
		r.parts = slices.Delete(r.parts, part, part+1)
		return
	}
	if len(p) < cap(p)/4 {
		p = slices.Clone(p)
	}
	r.parts[part] = p
}

// all yields the readers, ascending by member. None may be added or removed
// meanwhile.
func (r *readers) all() iter.Seq[*reader] { return r.from(0) }

// from is all without the readers below m.
func (r *readers) from(m inbox.Member) iter.Seq[*reader] {
	return func(yield func(*reader) bool) {
		part, first, _ := r.find(m)
		for ; part < len(r.parts); part++ {
			p := r.parts[part]
			for i := first; i < len(p); i++ {
				if !yield(&p[i]) {
					return
				}
			}
			first = 0
		}
	}
}
