package badger

import (
	"encoding/binary"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A block is what one group commits for one receiver. Layout:
//
//	version:1  entry*
//	entry:     step:uvarint flags:1 [behind:uvarint] [n:uvarint identifier:uvarint * n] [length:uvarint record]
//
// step is the distance from the position before (from 0 for the first). behind
// is how far the message's own number is behind the position, for a message that
// was stored before, as a retained one or one given by a group. The record is
// the envelope; it is missing in a reference, whose body stands under the
// message's own number. Appending to a block and reading from it cost a few nanoseconds an
// entry and a copy of the record.
const (
	blockVersion = 1

	flagQoS         = 0b0000_0011
	flagRetain      = 0b0000_0100
	flagReference   = 0b0000_1000
	flagIdentifiers = 0b0001_0000
	flagBehind      = 0b0010_0000
)

// The bits of the user meta byte of a block, so that whoever deletes blocks need not
// read those that have none.
const (
	metaReferences = 1 << iota // it has references
	metaBehind                 // it has messages that were stored before, see behindKey
	metaGiven                  // a group has given all of them, see Unsubscribe
)

// maxBlock is the size at which a block is closed and another begun, so that
// reading one entry never costs more than this and one record: Badger sums and copies a
// value several times whoever wants a part of it. Smaller ones are more keys, which
// publishers would feel.
const maxBlock = 8 << 10

// block collects the entries of one receiver while a group is built.
type block struct {
	member      inbox.Member
	incarnation incarnation
	last        inbox.Position
	buf         []byte
	entries     int
	references  bool // some of the entries are references
	behind      idRange
	given       bool      // all that is added comes from a group
	until       int64     // when the last of its entries may go, Unix ms; never if one may not
	index       *indexing // nil if the inbox is not indexed
}

// add appends an entry at p for the message with the number id; a nil record
// makes it a reference.
func (b *block) add(p, id inbox.Position, g inbox.Grant, record []byte) {
	if len(b.buf) == 0 {
		b.buf = append(b.buf, blockVersion)
		b.last = 0
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(p-b.last))
	b.last = p
	b.entries++

	flags := g.QoS & flagQoS
	if g.Retain {
		flags |= flagRetain
	}
	if record == nil {
		flags |= flagReference
		b.references = true
	}
	if len(g.Identifiers) > 0 {
		flags |= flagIdentifiers
	}
	if id != p {
		flags |= flagBehind
		b.behind.add(id)
	}
	b.buf = append(b.buf, flags)
	if id != p {
		b.buf = binary.AppendUvarint(b.buf, uint64(p-id))
	}
	if len(g.Identifiers) > 0 {
		b.buf = binary.AppendUvarint(b.buf, uint64(len(g.Identifiers)))
		for _, id := range g.Identifiers {
			b.buf = binary.AppendUvarint(b.buf, uint64(id))
		}
	}
	if record != nil {
		b.buf = binary.AppendUvarint(b.buf, uint64(len(record)))
		b.buf = append(b.buf, record...)
	}
}

// stored is one entry as it stands in a block.
type stored struct {
	position  inbox.Position
	id        inbox.Position // the message's own number
	grant     inbox.Grant
	reference bool
	record    []byte // points into the block; nil in a reference
}

// blockReader reads the entries of a block in order.
type blockReader struct {
	rest []byte
	last inbox.Position
}

func readBlock(value []byte) (blockReader, error) {
	if len(value) == 0 {
		return blockReader{}, fmt.Errorf("read block: empty: %w", inbox.ErrDamaged)
	}
	if err := checkVersion("block", int(value[0]), blockVersion); err != nil {
		return blockReader{}, err
	}
	return blockReader{rest: value[1:]}, nil
}

// next returns the next entry, or false at the end.
func (r *blockReader) next() (stored, bool, error) {
	if len(r.rest) == 0 {
		return stored{}, false, nil
	}
	step, err := r.uvarint("step")
	if err != nil {
		return stored{}, false, err
	}
	if len(r.rest) == 0 {
		return stored{}, false, fmt.Errorf("read block: no flags: %w", inbox.ErrDamaged)
	}
	flags := r.rest[0]
	r.rest = r.rest[1:]
	r.last += inbox.Position(step)
	s := stored{
		position:  r.last,
		grant:     inbox.Grant{QoS: flags & flagQoS, Retain: flags&flagRetain != 0},
		reference: flags&flagReference != 0,
	}
	s.id = s.position
	if flags&flagBehind != 0 {
		behind, err := r.uvarint("behind")
		if err != nil {
			return stored{}, false, err
		}
		s.id -= inbox.Position(behind)
	}
	if flags&flagIdentifiers != 0 {
		if s.grant.Identifiers, err = r.identifiers(); err != nil {
			return stored{}, false, err
		}
	}
	if s.reference {
		return s, true, nil
	}
	n, err := r.uvarint("length")
	if err != nil {
		return stored{}, false, err
	}
	if n > uint64(len(r.rest)) {
		return stored{}, false, fmt.Errorf("read block: record of %d bytes, %d left: %w", n, len(r.rest), inbox.ErrDamaged)
	}
	s.record = r.rest[:n:n]
	r.rest = r.rest[n:]
	return s, true, nil
}

func (r *blockReader) identifiers() ([]uint32, error) {
	n, err := r.uvarint("identifiers")
	if err != nil {
		return nil, err
	}
	if n > uint64(len(r.rest)) { // each takes a byte or more
		return nil, fmt.Errorf("read block: %d identifiers, %d bytes left: %w", n, len(r.rest), inbox.ErrDamaged)
	}
	ids := make([]uint32, n)
	for i := range ids {
		id, err := r.uvarint("identifier")
		if err != nil {
			return nil, err
		}
		ids[i] = uint32(id)
	}
	return ids, nil
}

func (r *blockReader) uvarint(what string) (uint64, error) {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return 0, fmt.Errorf("read block: %s: %w", what, inbox.ErrDamaged)
	}
	r.rest = r.rest[n:]
	return v, nil
}
