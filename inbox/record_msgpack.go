package inbox

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// appender is a msgpack encoder that appends to a slice.
type appender struct {
	encoder *msgpack.Encoder
	dst     []byte
}

func (a *appender) Write(b []byte) (int, error) {
	a.dst = append(a.dst, b...)
	return len(b), nil
}

func (a *appender) WriteByte(b byte) error {
	a.dst = append(a.dst, b)
	return nil
}

var appenders = sync.Pool{New: func() any {
	a := &appender{}
	a.encoder = msgpack.NewEncoder(a)
	return a
}}

// appendRecord appends what encode writes to dst. Appending to memory cannot
// fail, so an error is a fault of the program.
func appendRecord(dst []byte, encode func(*msgpack.Encoder) error) []byte {
	a := appenders.Get().(*appender)
	a.dst = dst
	err := encode(a.encoder)
	dst, a.dst = a.dst, nil
	appenders.Put(a)
	if err != nil {
		panic(fmt.Sprintf("inbox: append a record: %v", err))
	}
	return dst
}

// RecordReader takes the values of a small record of msgpack from its front: the few
// shapes that records have, in any width. It is for engines, whose own records are
// such arrays too. At the first value that is not as it should be it
// notes the field and gives up the rest, so that all values after it are zero;
// [RecordReader.End] tells. What is read points into the record.
//
// The library's decoder reads the same bytes, and tests hold the two together.
// But it takes two to three times as long, more the larger the payload that it
// copies, with 5 to 16 allocations in place of 1 or 2. That would be most of
// the cost of a page, and of loading very many sessions.
type RecordReader struct {
	rest []byte
	err  error
}

// NewRecordReader returns a reader of b, which must not change afterwards.
func NewRecordReader(b []byte) RecordReader { return RecordReader{rest: b} }

// Record takes the start of a record and returns its number of fields, the
// version included, which is at least the given one.
func (r *RecordReader) Record(version uint64, fields int) int {
	_, n := r.record(version, version)
	if n < fields {
		r.fail("number of fields")
	}
	return n
}

// record takes the start of a record of one of some versions, and returns which, and its
// number of fields.
func (r *RecordReader) record(oldest, newest uint64) (version uint64, fields int) {
	fields = r.Array("record")
	version = r.Uint("version", math.MaxUint64)
	switch {
	case r.err != nil:
	case version > newest:
		r.stop(fmt.Errorf("version %d, known up to %d: %w", version, newest, ErrNewer))
	case version < oldest:
		r.fail("version")
	}
	return version, fields
}

// End returns the first error, which wraps [ErrDamaged] and names the field, or
// wraps [ErrNewer]. Bytes that are left are one too, unless the
// record has fields that this version does not know.
func (r *RecordReader) End(unknown bool) error {
	if len(r.rest) > 0 && !unknown {
		r.fail("bytes after the record")
	}
	return r.err
}

func (r *RecordReader) fail(field string) { r.stop(fmt.Errorf("%s: %w", field, ErrDamaged)) }

func (r *RecordReader) stop(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

// take returns the next n bytes.
func (r *RecordReader) take(n uint64, field string) []byte {
	if n > uint64(len(r.rest)) {
		r.fail(field)
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// never is the one byte that msgpack gives no meaning.
const never = 0xc1

// code returns the next byte, which says what follows, or never at the end.
func (r *RecordReader) code() byte {
	if len(r.rest) == 0 {
		return never
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

// bigEndian returns the number in the next 1, 2, 4 or 8 bytes: two to the power
// of log.
func (r *RecordReader) bigEndian(log byte, field string) uint64 {
	b := r.take(1<<log, field)
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Bool returns true or false.
func (r *RecordReader) Bool(field string) bool {
	c := r.code()
	if c != msgpcode.True && c != msgpcode.False {
		r.fail(field)
	}
	return c == msgpcode.True
}

// Uint returns a number that is not negative and at most limit.
func (r *RecordReader) Uint(field string, limit uint64) uint64 {
	var v uint64
	switch c := r.code(); {
	case c <= msgpcode.PosFixedNumHigh:
		v = uint64(c)
	case c >= msgpcode.Uint8 && c <= msgpcode.Uint64:
		v = r.bigEndian(c-msgpcode.Uint8, field)
	default:
		r.fail(field)
	}
	if v > limit {
		r.fail(field)
		return 0
	}
	return v
}

// Int returns a number of either sign.
func (r *RecordReader) Int(field string) int64 {
	if len(r.rest) == 0 || r.rest[0] < msgpcode.Int8 {
		return int64(r.Uint(field, math.MaxInt64))
	}
	switch c := r.code(); {
	case c >= msgpcode.NegFixedNumLow:
		return int64(int8(c))
	case c <= msgpcode.Int64:
		log := c - msgpcode.Int8
		unused := 64 - 8<<log
		return int64(r.bigEndian(log, field)<<unused) >> unused // carries the sign up
	}
	r.fail(field)
	return 0
}

// Text returns a string that points into the record.
func (r *RecordReader) Text(field string) string {
	var b []byte
	switch c := r.code(); {
	case c >= msgpcode.FixedStrLow && c <= msgpcode.FixedStrHigh:
		b = r.take(uint64(c&msgpcode.FixedStrMask), field)
	case c >= msgpcode.Str8 && c <= msgpcode.Str32:
		b = r.take(r.bigEndian(c-msgpcode.Str8, field), field)
	default:
		r.fail(field)
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Bytes returns bytes that point into the record, nil for none.
func (r *RecordReader) Bytes(field string) []byte {
	switch c := r.code(); {
	case c == msgpcode.Nil:
		return nil
	case c >= msgpcode.Bin8 && c <= msgpcode.Bin32:
		return r.take(r.bigEndian(c-msgpcode.Bin8, field), field)
	}
	r.fail(field)
	return nil
}

// Array returns the number of values that follow, which is at most the number
// of bytes, so that it is safe to make room for them.
func (r *RecordReader) Array(field string) int {
	var n uint64
	switch c := r.code(); {
	case c >= msgpcode.FixedArrayLow && c <= msgpcode.FixedArrayHigh:
		n = uint64(c & msgpcode.FixedArrayMask)
	case c == msgpcode.Array16 || c == msgpcode.Array32:
		n = r.bigEndian(c-msgpcode.Array16+1, field)
	default:
		r.fail(field)
	}
	if n > uint64(len(r.rest)) {
		r.fail(field)
		return 0
	}
	return int(n)
}
