package badger

import (
	"bytes"
	"fmt"
	"math"

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

// recordReader reads the fields of a small record.
type recordReader struct {
	inbox.RecordReader
	what   string
	fields int  // with the version
	later  bool // some of them are not known to this program
}

// openRecord takes the version, and the number of fields, which includes it: so many
// at least. Where records have grown, the last number is how many they have now;
// those of later programs may have more.
func openRecord(what string, b []byte, version uint64, fields ...int) recordReader {
	r := recordReader{RecordReader: inbox.NewRecordReader(b), what: what}
	r.fields = r.Record(version, fields[0])
	r.later = r.fields > fields[len(fields)-1]
	return r
}

func (r *recordReader) number(field string) uint64 { return r.Uint(field, math.MaxUint64) }

// err returns the first error, after the last field.
func (r *recordReader) err() error {
	if err := r.End(r.later); err != nil {
		return fmt.Errorf("read %s record: %w", r.what, err)
	}
	return nil
}
