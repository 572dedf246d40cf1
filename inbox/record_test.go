package inbox

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares b with a file of testdata. Stores in the field hold these
// bytes: a change here needs a new version and code that reads both.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%s\n got %x\nwant %x", path, b, want)
	}
}

func plainEnvelope() *Envelope {
	return &Envelope{
		Time: 1_700_000_000_123, Topic: "inbox/bob/chat", Payload: []byte("hello"), QoS: 1, Client: "alice-phone",
	}
}

func fullEnvelope() *Envelope {
	return &Envelope{
		Time: 1_700_000_000_123, Topic: "inbox/bob/chat", Payload: bytes.Repeat([]byte("0123456789"), 30),
		QoS: 2, Retain: true, Client: "alice-phone", User: "alice", Expiry: 1_700_600_000_123,
		ContentType: "application/json; a long one so that its length takes a byte", ResponseTopic: "inbox/alice/receipts",
		CorrelationData: []byte{0, 1, 0xff}, PayloadFormat: FormatUTF8,
		UserProperties: []UserProperty{{"msg-id", "m1"}, {"tag", "b"}, {"tag", "a"}, {"", ""}},
	}
}

func markEnvelope() *Envelope {
	return &Envelope{Time: 1_700_000_000_123, Topic: "inbox/bob/chat", QoS: 1, Client: "alice-phone", User: "alice", Deleted: true}
}

func TestEnvelopeGolden(t *testing.T) {
	for name, e := range map[string]*Envelope{
		"envelope-plain.msgpack": plainEnvelope(), "envelope-full.msgpack": fullEnvelope(), "envelope-mark.msgpack": markEnvelope(),
	} {
		b := AppendEnvelope(nil, e)
		golden(t, name, b)
		got, err := ParseEnvelope(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%s\n got %+v\nwant %+v", name, got, e)
		}
	}
}

// The id is not part of the record.
func TestEnvelopeRecordHasNoID(t *testing.T) {
	e := plainEnvelope()
	e.ID = MessageID{7, 7}
	if !bytes.Equal(AppendEnvelope(nil, e), AppendEnvelope(nil, plainEnvelope())) {
		t.Error("the record changes with the id")
	}
}

func TestAppendEnvelopeAppends(t *testing.T) {
	b := AppendEnvelope([]byte("key"), plainEnvelope())
	if !bytes.Equal(b, append([]byte("key"), AppendEnvelope(nil, plainEnvelope())...)) {
		t.Errorf("%q", b)
	}
}

func randomEnvelope(r *rand.Rand) *Envelope {
	length := func() int { // around the borders between the forms of a length
		border := []int{0, 1, 31, 32, 255, 256, 65_535, 65_536}
		n := border[r.IntN(4+r.IntN(len(border)-3))]
		return max(0, n+r.IntN(3)-1)
	}
	text := func() string { return strings.Repeat("é", length()/2) + []string{"", "x"}[r.IntN(2)] }
	blob := func() []byte {
		if r.IntN(3) == 0 {
			return nil
		}
		return bytes.Repeat([]byte{byte(r.Uint32())}, length())
	}
	number := func() int64 { return int64(r.Uint64()) >> r.IntN(64) }
	e := &Envelope{
		Time: number(), Topic: text(), Payload: blob(), QoS: byte(r.IntN(3)), Retain: r.IntN(2) == 0,
		Client: text(), User: text(), Expiry: number(), ContentType: text(), ResponseTopic: text(),
		CorrelationData: blob(), PayloadFormat: PayloadFormat(r.IntN(3)), Deleted: r.IntN(8) == 0,
	}
	for range r.IntN(20) * r.IntN(2) {
		e.UserProperties = append(e.UserProperties, UserProperty{text(), text()})
	}
	return e
}

// libraryEnvelope reads a record with the decoder of the msgpack library.
func libraryEnvelope(b []byte) (*Envelope, error) {
	d := msgpack.GetDecoder()
	defer msgpack.PutDecoder(d)
	d.Reset(bytes.NewReader(b))
	e := &Envelope{}
	var failed error
	check := func(err error) { failed = errors.Join(failed, err) }
	number := func() int64 { v, err := d.DecodeInt64(); check(err); return v }
	text := func() string { v, err := d.DecodeString(); check(err); return v }
	blob := func() []byte { v, err := d.DecodeBytes(); check(err); return v }
	array := func() int { v, err := d.DecodeArrayLen(); check(err); return v }

	n := array()
	if n != envelopeFields && n != markFields {
		return nil, fmt.Errorf("%d fields", n)
	}
	if v := number(); v != envelopeVersion {
		return nil, fmt.Errorf("version %d", v)
	}
	e.Time, e.Topic, e.Payload = number(), text(), blob()
	e.QoS = byte(number())
	retain, err := d.DecodeBool()
	check(err)
	e.Retain = retain
	e.Client, e.User, e.Expiry = text(), text(), number()
	e.ContentType, e.ResponseTopic, e.CorrelationData = text(), text(), blob()
	e.PayloadFormat = PayloadFormat(number())
	for range array() / 2 {
		e.UserProperties = append(e.UserProperties, UserProperty{Key: text(), Value: text()})
	}
	if n == markFields {
		e.Deleted, err = d.DecodeBool()
		check(err)
	}
	return e, failed
}

// Any msgpack library reads what is stored, and reads the same as we do.
func TestEnvelopeAsTheLibraryReadsIt(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		want := randomEnvelope(r)
		b := AppendEnvelope(nil, want)
		got, err := ParseEnvelope(b)
		if err != nil {
			t.Fatal(err)
		}
		library, err := libraryEnvelope(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(library, want) {
			t.Fatalf("record %x\n   wrote %+v\n    read %+v\n library %+v", b, want, got, library)
		}
	}
}

// Numbers and lengths may be wider than they need to be.
func TestReaderTakesAnyWidth(t *testing.T) {
	for _, c := range []struct {
		name string
		in   string
		read func(*RecordReader) any
		want any
	}{
		{"fixint", "\x7f", func(r *RecordReader) any { return r.Int("") }, int64(127)},
		{"negative fixint", "\xe0", func(r *RecordReader) any { return r.Int("") }, int64(-32)},
		{"uint8", "\xcc\x01", func(r *RecordReader) any { return r.Int("") }, int64(1)},
		{"uint16", "\xcd\x00\x01", func(r *RecordReader) any { return r.Int("") }, int64(1)},
		{"uint32", "\xce\xff\xff\xff\xff", func(r *RecordReader) any { return r.Int("") }, int64(math.MaxUint32)},
		{"uint64", "\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", func(r *RecordReader) any { return r.Int("") }, int64(math.MaxInt64)},
		{"int8", "\xd0\x80", func(r *RecordReader) any { return r.Int("") }, int64(-128)},
		{"int16", "\xd1\xff\xff", func(r *RecordReader) any { return r.Int("") }, int64(-1)},
		{"int32", "\xd2\x80\x00\x00\x00", func(r *RecordReader) any { return r.Int("") }, int64(math.MinInt32)},
		{"int64", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", func(r *RecordReader) any { return r.Int("") }, int64(math.MinInt64)},
		{"largest", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", func(r *RecordReader) any { return r.Uint("", math.MaxUint64) }, uint64(math.MaxUint64)},
		{"str8", "\xd9\x01a", func(r *RecordReader) any { return r.Text("") }, "a"},
		{"str16", "\xda\x00\x01a", func(r *RecordReader) any { return r.Text("") }, "a"},
		{"str32", "\xdb\x00\x00\x00\x01a", func(r *RecordReader) any { return r.Text("") }, "a"},
		{"bin16", "\xc5\x00\x01a", func(r *RecordReader) any { return r.Bytes("") }, []byte("a")},
		{"bin32", "\xc6\x00\x00\x00\x01a", func(r *RecordReader) any { return r.Bytes("") }, []byte("a")},
		{"nil", "\xc0", func(r *RecordReader) any { return r.Bytes("") }, []byte(nil)},
		{"array16", "\xdc\x00\x01\xc0", func(r *RecordReader) any { n := r.Array(""); r.Bytes(""); return n }, 1},
		{"array32", "\xdd\x00\x00\x00\x01\xc0", func(r *RecordReader) any { n := r.Array(""); r.Bytes(""); return n }, 1},
	} {
		r := NewRecordReader([]byte(c.in))
		if got := c.read(&r); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if err := r.End(false); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// raw is a record of any values at all.
func raw(t *testing.T, values ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	if err := enc.Encode(values); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fields are the values of a good envelope record with one of them changed.
func fields(at int, v any) []any {
	f := []any{1, 5, "topic", []byte("p"), 1, false, "client", "", 0, "", "", nil, 0, []string{"k", "v"}}
	f[at] = v
	return f
}

func TestParseEnvelopeDamaged(t *testing.T) {
	for _, c := range []struct {
		field string
		in    []byte
	}{
		{"record", nil},
		{"record", []byte("text")},
		{"record", []byte{0xdd, 0xff, 0xff, 0xff, 0xff}},
		{"version", raw(t, fields(0, "1")...)},
		{"version", raw(t, fields(0, 0)...)},
		{"number of fields", raw(t, fields(0, 1)[:13]...)},
		{"time", raw(t, fields(1, "now")...)},
		{"time", raw(t, fields(1, uint64(math.MaxUint64))...)},
		{"topic", raw(t, fields(2, []byte("topic"))...)},
		{"payload", raw(t, fields(3, "text")...)},
		{"payload", slices.Replace(raw(t, fields(3, nil)...), 9, 10, 0xc6, 0xff, 0xff, 0xff, 0xff)}, // of 4 GiB
		{"QoS", raw(t, fields(4, 3)...)},
		{"QoS", raw(t, fields(4, -1)...)},
		{"retain", raw(t, fields(5, 1)...)},
		{"client", raw(t, fields(6, nil)...)},
		{"user", raw(t, fields(7, 1)...)},
		{"expiry", raw(t, fields(8, 1.5)...)},
		{"content type", raw(t, fields(9, true)...)},
		{"response topic", raw(t, fields(10, 0)...)},
		{"correlation data", raw(t, fields(11, "x")...)},
		{"payload format", raw(t, fields(12, 3)...)},
		{"user properties", raw(t, fields(13, nil)...)},
		{"user properties", raw(t, fields(13, []string{"k"})...)},
		{"user properties", raw(t, fields(13, []any{"k", 1})...)},
		{"bytes after the record", append(raw(t, fields(0, 1)...), 0)},
	} {
		e, err := ParseEnvelope(c.in)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.field+":") || e != nil {
			t.Errorf("%x: %+v, %v; want damage of %q", c.in, e, err, c.field)
		}
	}
}

// Wherever a record ends too early, that is damage and never a panic.
func TestParseRecordsCutShort(t *testing.T) {
	b := AppendEnvelope(nil, fullEnvelope())
	for n := range b {
		if _, err := ParseEnvelope(b[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("envelope of %d bytes: %v", n, err)
		}
	}
	b = AppendState(nil, fullState())
	for n := range b {
		if _, err := ParseState(b[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("state of %d bytes: %v", n, err)
		}
	}
}

func TestParseRecordsOfLaterVersions(t *testing.T) {
	e, err := ParseEnvelope(raw(t, append(fields(0, 1), true, "new", map[string]any{"a": []int{1}}, nil)...))
	if err != nil || e.Topic != "topic" || len(e.UserProperties) != 1 || !e.Deleted {
		t.Errorf("with new fields: %+v, %v", e, err)
	}
	s, err := ParseState(raw(t, 2, 9, 3, []any{1, 2, 1}, []int{}, []int{}, "new"))
	if err != nil || s.Sent != 9 || len(s.Open) != 1 {
		t.Errorf("with new fields: %+v, %v", s, err)
	}
	if _, err := ParseEnvelope(raw(t, fields(0, 2)...)); !errors.Is(err, ErrNewer) || errors.Is(err, ErrDamaged) {
		t.Errorf("version 2: %v", err)
	}
	if _, err := ParseEnvelope(raw(t, 300)); !errors.Is(err, ErrNewer) {
		t.Errorf("version 300, short: %v", err)
	}
	if _, err := ParseState(raw(t, 3)); !errors.Is(err, ErrNewer) {
		t.Errorf("version 3, short: %v", err)
	}
}

// sameEnvelope compares envelopes, but for whether no user properties have room for some.
func sameEnvelope(a, b *Envelope) bool {
	x, y := *a, *b
	x.UserProperties, y.UserProperties = append([]UserProperty{}, x.UserProperties...), append([]UserProperty{}, y.UserProperties...)
	return reflect.DeepEqual(x, y)
}

func FuzzParseEnvelope(f *testing.F) {
	f.Add(AppendEnvelope(nil, plainEnvelope()))
	f.Add(AppendEnvelope(nil, fullEnvelope()))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEnvelope(b)
		if err != nil {
			if e != nil || errors.Is(err, ErrDamaged) == errors.Is(err, ErrNewer) {
				t.Fatalf("%+v, %v", e, err)
			}
			return
		}
		into := fullEnvelope()
		if err := ParseEnvelopeInto(into, b); err != nil || !sameEnvelope(into, e) {
			t.Fatalf("into another %+v, %v\n  want %+v", into, err, e)
		}
		again, err := ParseEnvelope(AppendEnvelope(nil, e))
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("again %+v, %v\n  from %+v", again, err, e)
		}
	})
}

func TestRecordsAllocate(t *testing.T) {
	plain, full, state := plainEnvelope(), fullEnvelope(), fullState()
	dst := make([]byte, 0, 1024)
	plainRecord, fullRecord := AppendEnvelope(nil, plain), AppendEnvelope(nil, full)
	for _, c := range []struct {
		name string
		run  func()
		want float64
	}{
		{"append plain", func() { AppendEnvelope(dst, plain) }, 0},
		{"append full", func() { AppendEnvelope(dst, full) }, 0},
		{"append state", func() { AppendState(dst, state) }, 0},
		{"parse plain", func() { _, _ = ParseEnvelope(plainRecord) }, 1},
		{"parse full", func() { _, _ = ParseEnvelope(fullRecord) }, 2},
	} {
		if raceEnabled && c.want == 0 {
			continue // the race detector empties pools at random
		}
		if got := testing.AllocsPerRun(200, c.run); got != c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
	}
}

func BenchmarkEnvelope(b *testing.B) {
	plain := plainEnvelope()
	plain.Payload = bytes.Repeat([]byte("x"), 256)
	for _, c := range []struct {
		name string
		e    *Envelope
	}{{"plain", plain}, {"full", fullEnvelope()}} {
		record := AppendEnvelope(nil, c.e)
		b.Run("append/"+c.name, func(b *testing.B) {
			dst := make([]byte, 0, 2*len(record))
			b.ReportAllocs()
			for b.Loop() {
				AppendEnvelope(dst, c.e)
			}
		})
		b.Run("parse/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseEnvelope(record); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("parse with the library/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := libraryEnvelope(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
