package pull

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A cursor is base64url of these bytes. Users must not look into it.
//
//	0   version      1 byte   1
//	1   kind, flags  1 byte   bits 0-1 kind, 2 newest first, 3 what was acknowledged, too
//	2   inbox        8 bytes  of the SHA-256 of the store's id and the receiver, without one if that does not matter
//	10  selection    8 bytes  of the SHA-256 of sender and filter, zeros if that does not matter
//	18  positions    3 uvarint: walk, first, at
//	    continuation          of the store, in the cursor of a summary
//	-4  checksum     4 bytes  CRC-32 of what is before
type cursor struct {
	kind        cursorKind
	newestFirst bool
	read        bool // the walk gives what was acknowledged, too
	inbox       [8]byte
	selection   [8]byte

	// Oldest first, the walk has given what is behind walk up to at, and the page what
	// is behind first up to at. Newest first, the walk has given what is from at up to and with walk, and
	// the page what is from at up to and with first. Either may be nothing.
	walk, first inbox.Position

	at   inbox.Position // the walk goes on behind it, or in front of it
	next string         // of the store, in the cursor of a summary
}

type cursorKind byte

const (
	ofPull cursorKind = iota
	ofHistory
	ofSummary  // asks for the next part of a summary
	ofPosition // is that of a summary; fits every selection
)

const (
	cursorVersion    = 1
	cursorHead       = 18
	cursorKindMask   = 0x03
	flagNewestFirst  = 0x04
	flagRead         = 0x08
	cursorKnownFlags = cursorKindMask | flagNewestFirst | flagRead
)

func (c *cursor) String() string {
	flags := byte(c.kind)
	if c.newestFirst {
		flags |= flagNewestFirst
	}
	if c.read {
		flags |= flagRead
	}
	b := []byte{cursorVersion, flags}
	b = append(b, c.inbox[:]...)
	b = append(b, c.selection[:]...)
	for _, p := range []inbox.Position{c.walk, c.first, c.at} {
		b = binary.AppendUvarint(b, uint64(p))
	}
	b = append(b, c.next...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor reads what [cursor.String] has written.
func parseCursor(s string) (*cursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < cursorHead+4 {
		return nil, errDamagedCursor
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	switch {
	case crc32.ChecksumIEEE(b) != sum:
		return nil, errDamagedCursor
	case b[0] != cursorVersion || b[1]&^cursorKnownFlags != 0:
		return nil, badCursor("the cursor is of another version of the server; begin again without one")
	}
	c := &cursor{
		kind:        cursorKind(b[1] & cursorKindMask),
		newestFirst: b[1]&flagNewestFirst != 0,
		read:        b[1]&flagRead != 0,
		inbox:       [8]byte(b[2:]),
		selection:   [8]byte(b[10:]),
	}
	b = b[cursorHead:]
	for _, p := range []*inbox.Position{&c.walk, &c.first, &c.at} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errDamagedCursor
		}
		*p, b = inbox.Position(v), b[n:]
	}
	c.next = string(b)
	return c, nil
}

var errDamagedCursor = badCursor("the cursor is damaged; give it as it came, or begin again without one")

// inboxHash is by what a cursor knows its inbox. Positions are those of one store: in
// another they are of messages that nobody was given.
func inboxHash(store uint32, r inbox.Receiver) [8]byte {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint32(nil, store), r...))
	return [8]byte(sum[:])
}

// selectionHash is by what a cursor knows its selection.
func selectionHash(s inbox.Selection) [8]byte {
	b := binary.AppendUvarint(nil, uint64(len(s.Sender)))
	b = append(append(b, s.Sender...), s.Filter...)
	sum := sha256.Sum256(b)
	return [8]byte(sum[:])
}

// page is what the page of a cursor has given: behind after, up to through, which is
// 0 for nothing.
func (c *cursor) page() (after, through inbox.Position) { return c.span(c.first) }

// walked is what the whole walk has given.
func (c *cursor) walked() (after, through inbox.Position) { return c.span(c.walk) }

func (c *cursor) span(start inbox.Position) (after, through inbox.Position) {
	after, through = start, c.at
	if c.newestFirst {
		after, through = max(c.at, 1)-1, start // no entry stands between a position and the number before it
	}
	if after >= through {
		return 0, 0
	}
	return after, through
}

// accepts reports why another cursor does not fit a request, whose own would be c. goesOn
// tells that it stands where the walk goes on.
func (c *cursor) accepts(other *cursor, field string, goesOn bool) error {
	switch {
	case other.kind != c.kind && (other.kind != ofPosition || c.kind != ofPull):
		return badCursor("%s: the cursor is of another operation; begin again without one", field)
	case other.inbox != c.inbox:
		return badCursor("%s: the cursor is of another inbox; begin again without one", field)
	case other.kind == ofPosition:
		return nil
	case other.selection != c.selection:
		return badCursor("%s: the cursor is of another sender or topic; give those of the request that it answers, or begin again without one", field)
	case other.newestFirst != c.newestFirst:
		return badCursor("%s: the cursor is of the other order; give the order of the request that it answers, or begin again without one", field)
	case !goesOn:
		return badCursor(`%s: a cursor of a page goes into "after" if the order is "asc", and into "before" if it is "desc"`, field)
	}
	return nil
}
