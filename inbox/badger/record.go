package badger

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// appendRecord appends a small record: a msgpack array, version first.
func appendRecord(dst []byte, version int, fields ...any) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(buf)
	e.UseCompactInts(true)
	if err := e.EncodeArrayLen(1 + len(fields)); err != nil {
		return dst, err
	}
	if err := e.EncodeInt(int64(version)); err != nil {
		return dst, err
	}
	for _, f := range fields {
		if err := e.Encode(f); err != nil {
			return dst, err
		}
	}
	return buf.Bytes(), nil
}

// checkVersion compares a record's version with the one that this program knows.
func checkVersion(what string, v, known int) error {
	switch {
	case v > known:
		return fmt.Errorf("read %s: version %d, this program knows up to %d: %w", what, v, known, inbox.ErrNewer)
	case v < known:
		return fmt.Errorf("read %s: version %d: %w", what, v, inbox.ErrDamaged)
	default:
		return nil
	}
}

// recordReader reads the fields of a small record: the few shapes of msgpack
// that such records have, in any width. The first error sticks. The library's
// decoder takes several times as long, which counts for the sessions and
// subscriptions that are read when a store is opened.
type recordReader struct {
	what   string
	rest   []byte
	failed error
}

// openRecord checks the version and that at least fields are there; records of
// later versions may have more.
func openRecord(what string, b []byte, version, fields int) (recordReader, error) {
	r := recordReader{what: what, rest: b}
	if n := r.array(); r.failed != nil || n < fields {
		return r, fmt.Errorf("read %s record: not an array of %d fields: %w", what, fields, inbox.ErrDamaged)
	}
	v := r.int()
	if r.failed != nil {
		return r, fmt.Errorf("read %s record: version: %w", what, inbox.ErrDamaged)
	}
	if v != int64(version) {
		return r, checkVersion(what+" record", int(v), version)
	}
	return r, nil
}

var errField = errors.New("a field is not what it should be")

func (r *recordReader) fail() {
	if r.failed == nil {
		r.failed = errField
	}
	r.rest = nil
}

// take returns the next n bytes.
func (r *recordReader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// code returns the byte that says what follows; at the end one that says nothing.
func (r *recordReader) code() byte {
	if b := r.take(1); len(b) == 1 {
		return b[0]
	}
	return 0xc1
}

// number returns the big endian number in the next bytes, two to the power of log.
func (r *recordReader) number(log byte) (n uint64) {
	for _, c := range r.take(1 << log) {
		n = n<<8 | uint64(c)
	}
	return n
}

func (r *recordReader) uint() uint64 {
	switch c := r.code(); {
	case c <= msgpcode.PosFixedNumHigh:
		return uint64(c)
	case c >= msgpcode.Uint8 && c <= msgpcode.Uint64:
		return r.number(c - msgpcode.Uint8)
	}
	r.fail()
	return 0
}

func (r *recordReader) int() int64 {
	if len(r.rest) == 0 || r.rest[0] < msgpcode.Int8 {
		return int64(r.uint())
	}
	switch c := r.code(); {
	case c >= msgpcode.NegFixedNumLow:
		return int64(int8(c))
	case c <= msgpcode.Int64:
		log := c - msgpcode.Int8
		unused := 64 - 8<<log
		return int64(r.number(log)<<unused) >> unused // carries the sign up
	}
	r.fail()
	return 0
}

func (r *recordReader) bool() bool {
	c := r.code()
	if c != msgpcode.True && c != msgpcode.False {
		r.fail()
	}
	return c == msgpcode.True
}

func (r *recordReader) string() string { return strings.Clone(r.text()) }

// text returns a string that points into the record.
func (r *recordReader) text() string {
	var b []byte
	switch c := r.code(); {
	case c >= msgpcode.FixedStrLow && c <= msgpcode.FixedStrHigh:
		b = r.take(uint64(c & msgpcode.FixedStrMask))
	case c >= msgpcode.Str8 && c <= msgpcode.Str32:
		b = r.take(r.number(c - msgpcode.Str8))
	default:
		r.fail()
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// bytes returns bytes that point into the record.
func (r *recordReader) bytes() []byte {
	switch c := r.code(); {
	case c == msgpcode.Nil:
		return nil
	case c >= msgpcode.Bin8 && c <= msgpcode.Bin32:
		return r.take(r.number(c - msgpcode.Bin8))
	}
	r.fail()
	return nil
}

func (r *recordReader) array() int {
	switch c := r.code(); {
	case c >= msgpcode.FixedArrayLow && c <= msgpcode.FixedArrayHigh:
		return int(c & msgpcode.FixedArrayMask)
	case c == msgpcode.Array16 || c == msgpcode.Array32:
		return int(r.number(c - msgpcode.Array16 + 1))
	}
	r.fail()
	return 0
}

func (r *recordReader) err() error {
	if r.failed == nil {
		return nil
	}
	return fmt.Errorf("read %s record: %w: %w", r.what, r.failed, inbox.ErrDamaged)
}
