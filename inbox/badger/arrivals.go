package badger

import (
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// arrivals are entries that follow each other in one inbox, as the index has them
// before they are sorted into lists.
type arrivals struct {
	names     [][2]string // sender and topic of each pair
	entries   []posting   // ascending
	of        []uint32    // the number of each one's pair
	expiresAt uint64      // when the last of the blocks that they are from may go, in Badger's seconds; 0 for never

	numbers map[[2]string]uint32 // of the pairs, while entries are added
	size    int                  // what they will take, as estimated
}

// postingBytes is what an entry is estimated to take on disk.
const postingBytes = 16

// add adds an entry, which is in a block that goes at expiresAt. It keeps copies of the
// names. Cost: 50 ns.
func (a *arrivals) add(p posting, sender, topic string, expiresAt uint64) {
	names := [2]string{sender, topic}
	n, ok := a.numbers[names]
	if !ok {
		if a.numbers == nil {
			a.numbers = map[[2]string]uint32{}
		}
		n = uint32(len(a.names))
		names = [2]string{strings.Clone(sender), strings.Clone(topic)}
		a.numbers[names] = n
		a.names = append(a.names, names)
		a.size += len(sender) + len(topic)
	}
	if len(a.entries) == 0 {
		a.expiresAt = expiresAt
	}
	a.expiresAt = laterExpiry(a.expiresAt, expiresAt)
	a.entries, a.of = append(a.entries, p), append(a.of, n)
	a.size += postingBytes
}

// laterExpiry returns the later of two times as Badger has them.
func laterExpiry(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// reset forgets everything but the room that it has taken.
func (a *arrivals) reset() {
	clear(a.numbers)
	a.names, a.entries, a.of, a.size = a.names[:0], a.entries[:0], a.of[:0], 0
}

func (a *arrivals) last() inbox.Position { return a.entries[len(a.entries)-1].position }

// Arrivals are stored in pieces:
//
//	version:1
//	pairs:uvarint  ( length:uvarint sender  length:uvarint topic ) * pairs
//	n:uvarint  width:1  column     of n numbers: the pair of each entry, from 0
//	record                         of the n entries, as that of a list; see postings
const arrivalsVersion = 1

// appendArrivals appends the stored form of some arrivals: at least one, and at most
// mostPostings.
func appendArrivals(dst []byte, a *arrivals) []byte {
	dst = append(dst, arrivalsVersion)
	dst = binary.AppendUvarint(dst, uint64(len(a.names)))
	for _, names := range a.names {
		for _, name := range names {
			dst = append(binary.AppendUvarint(dst, uint64(len(name))), name...)
		}
	}
	width := widthOf(uint64(len(a.names) - 1))
	dst = append(binary.AppendUvarint(dst, uint64(len(a.of))), byte(width))
	start := len(dst)
	dst = slices.Grow(dst, width*len(a.of))[:start+width*len(a.of)]
	for i, n := range a.of {
		putNumber(dst[start+i*width:start+(i+1)*width], uint64(n))
	}
	return appendPostings(dst, "", "", tally{}, a.entries)
}

// parseArrivals reads what appendArrivals has written, and keeps nothing of b.
func parseArrivals(b []byte) (*arrivals, error) {
	if len(b) == 0 {
		return nil, damagedPostings("empty")
	}
	if err := checkVersion("arrivals", int(b[0]), arrivalsVersion); err != nil {
		return nil, err
	}
	d := postingsReader{rest: b[1:]}
	a := &arrivals{names: make([][2]string, d.upTo("pairs", min(mostPostings, uint64(len(b)))))}
	for i := range a.names {
		a.names[i] = [2]string{string(d.text("sender")), string(d.text("topic"))}
	}
	of := d.column(d.upTo("n", mostPostings))
	if d.err != nil {
		return nil, d.err
	}
	r, err := parsePostings(d.rest)
	if err != nil {
		return nil, err
	}
	if n := r.n * of.width; n != len(of.b) {
		return nil, damagedPostings("pairs")
	}
	a.entries, a.of = r.appendTo(make([]posting, 0, r.n)), make([]uint32, r.n)
	for i := range a.of {
		n := of.at(i)
		if n >= uint64(len(a.names)) {
			return nil, damagedPostings("pair")
		}
		a.of[i] = uint32(n)
	}
	return a, nil
}

// pieces yields parts that can be stored: of no more entries than a record has, nor
// many more bytes than a piece may have.
func (a *arrivals) pieces() iter.Seq[*arrivals] {
	return func(yield func(*arrivals) bool) {
		piece := &arrivals{}
		for i, p := range a.entries {
			names := a.names[a.of[i]]
			piece.add(p, names[0], names[1], a.expiresAt)
			if i < len(a.entries)-1 && len(piece.entries) < mostPostings && piece.size < pieceBytes {
				continue
			}
			if !yield(piece) {
				return
			}
			piece = &arrivals{}
		}
	}
}

// pieceBytes is the estimated size at which a piece of arrivals is closed.
const pieceBytes = 128 << 10
