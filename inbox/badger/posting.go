package badger

import (
	"sort"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// posting is an entry as the index has it: enough to count it, and to know where it
// is. The message itself is not there.
type posting struct {
	position inbox.Position
	id       inbox.Position // the message's own number
	bytes    uint64         // as [inbox.Count] counts them
	time     int64          // the message's, Unix ms
	expiry   int64          // when it is over by itself, Unix ms; 0 for never
}

// isCopy reports whether the entry came into the inbox later than its message was
// stored.
func (p *posting) isCopy() bool { return p.id != p.position }

func (p *posting) tally() tally {
	t := tally{messages: 1, bytes: p.bytes}
	if p.expiry != 0 {
		t.expiring = 1
	}
	if p.isCopy() {
		t.copies = 1
	}
	return t
}

// tally is how many entries there are, what they take, how many of them expire by
// themselves, and how many are copies. Of a list that begins somewhere, so does its
// tally: only the difference of two means something.
type tally struct{ messages, bytes, expiring, copies uint64 }

func (t tally) plus(o tally) tally {
	return tally{t.messages + o.messages, t.bytes + o.bytes, t.expiring + o.expiring, t.copies + o.copies}
}

func (t tally) minus(o tally) tally {
	return tally{t.messages - o.messages, t.bytes - o.bytes, t.expiring - o.expiring, t.copies - o.copies}
}

// mostPostings bounds a record.
const mostPostings = 4096

// The columns of a record.
const (
	columnPosition = iota
	columnBytes
	columnTime
	columnExpiry
	columnBehind
	columns
)

// postings is a record. It does not change, and its texts and columns point into
// the bytes that it was read from.
type postings struct {
	sender, topic    []byte // of what the list is
	before           tally
	n                int
	copies, expiring int
	first            inbox.Position
	base             int64
	oldest, newest   int64 // without copies; not to be looked at if all are copies
	earliest, latest int64 // not to be looked at if none expires
	column           [columns]column
	expiresAt        uint64 // when it may go, in Badger's seconds; 0 for never

	origin origin // of an open record that has some of its list in front of it
}

// origin is where a list has begun: its first posting. Position 0 if it is not known.
type origin struct {
	posting
	goes uint64 // when the record that has it may go, in Badger's seconds; 0 for never
}

// column is numbers of the same width, one after the other.
type column struct {
	b     []byte
	width int
}

func (c *column) at(i int) uint64 {
	v := uint64(0)
	for _, b := range c.b[i*c.width : (i+1)*c.width] {
		v = v<<8 | uint64(b)
	}
	return v
}

func (r *postings) position(i int) inbox.Position {
	return r.first + inbox.Position(r.column[columnPosition].at(i))
}

func (r *postings) last() inbox.Position { return r.position(r.n - 1) }

// at returns the posting number i, from 0.
func (r *postings) at(i int) posting {
	p := posting{position: r.position(i), bytes: r.bytesUpTo(i+1) - r.bytesUpTo(i), time: r.time(i), expiry: r.expiry(i)}
	p.id = p.position - inbox.Position(r.column[columnBehind].at(i))
	return p
}

func (r *postings) time(i int) int64 { return r.base + int64(r.column[columnTime].at(i)) }

func (r *postings) copied(i int) bool { return r.column[columnBehind].at(i) != 0 }

func (r *postings) expiry(i int) int64 {
	if v := r.column[columnExpiry].at(i); v != 0 {
		return r.earliest + int64(v-1)
	}
	return 0
}

// bytesUpTo is what the first n entries take.
func (r *postings) bytesUpTo(n int) uint64 {
	if n == 0 {
		return 0
	}
	return r.column[columnBytes].at(n - 1)
}

// upTo returns how many of the postings are at p or before it.
func (r *postings) upTo(p inbox.Position) int {
	return sort.Search(r.n, func(i int) bool { return r.position(i) > p })
}

// tally is what the first n entries of the record come to, and what is before it.
// Cost: a look at two columns, or, if some of the entries expire or are copies, and not
// all, at n numbers.
func (r *postings) tally(n int) tally {
	t := tally{messages: uint64(n), bytes: r.bytesUpTo(n)}
	t.expiring = r.column[columnExpiry].count(n, r.expiring, r.n)
	t.copies = r.column[columnBehind].count(n, r.copies, r.n)
	return r.before.plus(t)
}

// count returns how many of the first n numbers are not 0, if so many of all are.
func (c *column) count(n, notZero, all int) (sum uint64) {
	switch notZero {
	case 0:
		return 0
	case all:
		return uint64(n)
	}
	for i := range n {
		if c.at(i) != 0 {
			sum++
		}
	}
	return sum
}

// total is what the list comes to up to the end of the record.
func (r *postings) total() tally {
	return r.before.plus(tally{uint64(r.n), r.bytesUpTo(r.n), uint64(r.expiring), uint64(r.copies)})
}

// listOrigin returns where the list has begun whose open record this is.
func (r *postings) listOrigin() origin {
	if r.before.messages == 0 {
		return origin{r.at(0), r.expiresAt}
	}
	return r.origin
}

// appendTo appends all postings of the record.
func (r *postings) appendTo(all []posting) []posting {
	for i := range r.n {
		all = append(all, r.at(i))
	}
	return all
}
