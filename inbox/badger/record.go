package badger

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

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

// recordReader reads the fields of a small record; the first error sticks.
type recordReader struct {
	what   string
	d      *msgpack.Decoder
	failed error
}

// openRecord checks the version and that at least fields are there; records of
// later versions may have more.
func openRecord(what string, b []byte, version, fields int) (*recordReader, error) {
	r := &recordReader{what: what, d: msgpack.NewDecoder(bytes.NewReader(b))}
	n, err := r.d.DecodeArrayLen()
	if err != nil || n < fields {
		return nil, fmt.Errorf("read %s record: not an array of %d fields: %w", what, fields, inbox.ErrDamaged)
	}
	v, err := r.d.DecodeInt()
	if err != nil {
		return nil, fmt.Errorf("read %s record: version: %w", what, inbox.ErrDamaged)
	}
	if err := checkVersion(what+" record", v, version); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *recordReader) string() string { return field(r, r.d.DecodeString) }
func (r *recordReader) uint() uint64   { return field(r, r.d.DecodeUint64) }
func (r *recordReader) int() int64     { return field(r, r.d.DecodeInt64) }
func (r *recordReader) bool() bool     { return field(r, r.d.DecodeBool) }
func (r *recordReader) bytes() []byte  { return field(r, r.d.DecodeBytes) }

func (r *recordReader) err() error {
	if r.failed == nil {
		return nil
	}
	return fmt.Errorf("read %s record: %w: %w", r.what, r.failed, inbox.ErrDamaged)
}

func field[T any](r *recordReader, decode func() (T, error)) (v T) {
	if r.failed != nil {
		return v
	}
	v, r.failed = decode()
	return v
}
