package pull

import (
	"fmt"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Time is a moment, in Unix milliseconds. In JSON and msgpack it is a text: RFC 3339
// in UTC with milliseconds, always of the same length.
type Time int64

const timeLayout = "2006-01-02T15:04:05.000Z"

// The first and the last moment that RFC 3339 can write.
const (
	firstTime Time = -62_167_219_200_000 // 0000-01-01T00:00:00.000Z
	lastTime  Time = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
)

// Std returns t as the standard library has it, in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

func (t Time) String() string { return max(firstTime, min(t, lastTime)).Std().Format(timeLayout) }

// MarshalText implements [encoding.TextMarshaler].
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It takes any time of RFC 3339.
func (t *Time) UnmarshalText(b []byte) error {
	at, err := time.Parse(time.RFC3339, string(b))
	if err != nil {
		return fmt.Errorf("parse a time: %w", err)
	}
	*t = Time(at.UnixMilli())
	return nil
}

// EncodeMsgpack implements [msgpack.CustomEncoder].
func (t Time) EncodeMsgpack(enc *msgpack.Encoder) error { return enc.EncodeString(t.String()) }

// DecodeMsgpack implements [msgpack.CustomDecoder].
func (t *Time) DecodeMsgpack(dec *msgpack.Decoder) error {
	b, err := dec.DecodeBytes()
	if err != nil {
		return err
	}
	return t.UnmarshalText(b)
}
