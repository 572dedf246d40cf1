package badger

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A record has some postings of one list, ascending by position. Layout:
//
//	version:1
//	length:uvarint sender  length:uvarint topic    what the list is of
//	messages:uvarint bytes:uvarint expiring:uvarint copies:uvarint    what is before the record in its list
//	n:uvarint  copies:uvarint  expiring:uvarint        of its own
//	first:uvarint                                      position
//	base:uvarint                                       the lowest time, Unix ms
//	[ oldest:uvarint newest:uvarint ]                  times of those that are not copies, above base; if copies < n
//	[ earliest:uvarint latest:uvarint ]                expiries, Unix ms; if expiring > 0
//	( width:1  column ) * 5                            n numbers each, of width bytes, 0 to 8, big endian
//	[ origin ]                                         of the open record, if there is something before it
//
//	origin: position:uvarint  behind:uvarint  bytes:uvarint  time:uvarint  expiry:uvarint  goes:uvarint
//
// The columns are: position above first; bytes of the entry and all before it in the
// record; time above base; 1 + expiry above earliest, 0 for none; distance of the
// message's own number from the position. One in which all numbers are 0 takes
// nothing. So an entry takes about 8 bytes, and the one at a position is found
// without reading the others. The origin is the first posting of the list, and when
// its record goes, in Badger's seconds.
const recordVersion = 1

// appendPostings appends a record of postings, which are ascending, at least one and
// at most mostPostings.
func appendPostings(dst []byte, sender, topic string, before tally, all []posting) []byte {
	r := describePostings(all)
	dst = append(dst, recordVersion)
	dst = append(binary.AppendUvarint(dst, uint64(len(sender))), sender...)
	dst = append(binary.AppendUvarint(dst, uint64(len(topic))), topic...)
	for _, v := range [...]uint64{
		before.messages, before.bytes, before.expiring, before.copies, uint64(r.n), uint64(r.copies), uint64(r.expiring), uint64(r.first), uint64(r.base),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	if r.copies < r.n {
		dst = binary.AppendUvarint(dst, uint64(r.oldest-r.base))
		dst = binary.AppendUvarint(dst, uint64(r.newest-r.base))
	}
	if r.expiring > 0 {
		dst = binary.AppendUvarint(dst, uint64(r.earliest))
		dst = binary.AppendUvarint(dst, uint64(r.latest))
	}
	var most [columns]uint64
	var row [columns]uint64
	bytes := uint64(0)
	for i := range all {
		bytes = r.row(&all[i], bytes, &row)
		for c, v := range row {
			most[c] |= v
		}
	}
	var widths, at [columns]int // where the next number of each goes
	size := 0
	for c, m := range most {
		widths[c] = widthOf(m)
		at[c] = len(dst) + size + 1
		size += 1 + widths[c]*len(all)
	}
	start := len(dst)
	dst = slices.Grow(dst, size)[:start+size]
	for c, w := range widths {
		dst[at[c]-1] = byte(w)
	}
	bytes = 0
	for i := range all {
		bytes = r.row(&all[i], bytes, &row)
		for c, w := range widths {
			putNumber(dst[at[c]:at[c]+w], row[c])
			at[c] += w
		}
	}
	return dst
}

// appendOrigin appends the origin of the list to an open record, if it is known.
func appendOrigin(dst []byte, o origin) []byte {
	if o.position == 0 {
		return dst
	}
	for _, v := range [...]uint64{uint64(o.position), uint64(o.position - o.id), o.bytes, uint64(o.time), uint64(o.expiry), o.goes} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// row sets the numbers of one posting, and returns what it and those before it take in
// bytes.
func (r *postings) row(p *posting, before uint64, row *[columns]uint64) uint64 {
	bytes := before + p.bytes
	*row = [columns]uint64{uint64(p.position - r.first), bytes, uint64(p.time - r.base), 0, uint64(p.position - p.id)}
	if p.expiry != 0 {
		row[columnExpiry] = 1 + uint64(p.expiry-r.earliest)
	}
	return bytes
}

// widthOf is how many bytes the numbers of a column take that are no higher than one.
func widthOf(most uint64) int { return (bits.Len64(most) + 7) / 8 }

// putNumber fills b with a number.
func putNumber(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte(v)
		v >>= 8
	}
}

// describePostings returns what the head of a record says of its postings.
func describePostings(all []posting) postings {
	r := postings{n: len(all), first: all[0].position, base: math.MaxInt64, oldest: math.MaxInt64, newest: math.MinInt64, earliest: math.MaxInt64, latest: math.MinInt64}
	for i := range all {
		p := &all[i]
		r.base = min(r.base, p.time)
		if p.isCopy() {
			r.copies++
		} else {
			r.oldest, r.newest = min(r.oldest, p.time), max(r.newest, p.time)
		}
		if p.expiry != 0 {
			r.expiring++
			r.earliest, r.latest = min(r.earliest, p.expiry), max(r.latest, p.expiry)
		}
	}
	return r
}

// parsePostings reads what appendPostings has written. The record points into b,
// which must not change.
func parsePostings(b []byte) (*postings, error) { return parsePostingsUpTo(b, mostPostings) }

// makePostings returns a record of postings of which there may be any number.
func makePostings(sender, topic string, before tally, all []posting) *postings {
	r, err := parsePostingsUpTo(appendPostings(nil, sender, topic, before, all), len(all))
	if err != nil {
		panic(err) // it has just been written
	}
	return r
}

func parsePostingsUpTo(b []byte, most int) (*postings, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("read postings: empty: %w", inbox.ErrDamaged)
	}
	if err := checkVersion("postings", int(b[0]), recordVersion); err != nil {
		return nil, err
	}
	d := postingsReader{rest: b[1:]}
	r := &postings{sender: d.text("sender"), topic: d.text("topic")}
	r.before = tally{d.number("messages"), d.number("bytes"), d.number("expiring"), d.number("copies")}
	r.n = int(d.upTo("n", uint64(most)))
	r.copies, r.expiring = int(d.upTo("copies", uint64(r.n))), int(d.upTo("expiring", uint64(r.n)))
	r.first = inbox.Position(d.number("first"))
	r.base = int64(d.number("base"))
	if r.copies < r.n {
		r.oldest, r.newest = r.base+int64(d.number("oldest")), r.base+int64(d.number("newest"))
	}
	if r.expiring > 0 {
		r.earliest, r.latest = int64(d.number("earliest")), int64(d.number("latest"))
	}
	if r.n == 0 {
		d.fail("n")
	}
	for c := range r.column {
		r.column[c] = d.column(uint64(r.n))
	}
	if len(d.rest) > 0 {
		r.origin = d.origin()
	}
	if d.err == nil && (len(d.rest) > 0 || r.last() < r.first) {
		d.fail("end")
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func damagedPostings(what string) error {
	return fmt.Errorf("read postings: %s: %w", what, inbox.ErrDamaged)
}

// postingsReader reads the parts of a record. After the first error everything it
// returns is zero.
type postingsReader struct {
	rest []byte
	err  error
}

func (d *postingsReader) fail(what string) {
	if d.err == nil {
		d.err = damagedPostings(what)
	}
	d.rest = nil
}

func (d *postingsReader) number(what string) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail(what)
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *postingsReader) upTo(what string, most uint64) uint64 {
	v := d.number(what)
	if v > most {
		d.fail(what)
		return 0
	}
	return v
}

func (d *postingsReader) bytes(what string, n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail(what)
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *postingsReader) text(what string) []byte {
	return d.bytes(what, d.number(what))
}

func (d *postingsReader) origin() (o origin) {
	o.position = inbox.Position(d.number("origin"))
	o.id = o.position - inbox.Position(d.upTo("origin", uint64(o.position)))
	o.bytes, o.time, o.expiry = d.number("origin"), int64(d.number("origin")), int64(d.number("origin"))
	o.goes = d.number("origin")
	return o
}

// column reads a column of n numbers.
func (d *postingsReader) column(n uint64) column {
	width := d.bytes("width", 1)
	if d.err == nil && width[0] > 8 {
		d.fail("width")
	}
	if d.err != nil {
		return column{}
	}
	return column{b: d.bytes("column", n*uint64(width[0])), width: int(width[0])}
}
