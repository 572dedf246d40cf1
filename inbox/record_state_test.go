package inbox

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func fullState() State {
	return State{
		Sent: 1_000_000_300, LastID: 3,
		Open: []Delivery{
			{1_000_000_000, 65_534, 2, true}, {1_000_000_001, 65_535, 2, false}, {1_000_000_002, 1, 2, true},
			{1_000_000_200, 2, 1, false}, {1_000_000_300, 3, 0, false},
		},
		Releasing: []uint16{7, 49_151},
		Resting:   []uint16{40_000, 65_534},
	}
}

func TestStateGolden(t *testing.T) {
	for name, s := range map[string]State{"state-empty.msgpack": {}, "state-full.msgpack": fullState()} {
		b := AppendState(nil, s)
		golden(t, name, b)
		got, err := ParseState(b)
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%s\n got %+v, %v\nwant %+v", name, got, err, s)
		}
	}
}

// A window full of deliveries one after the other takes 3 bytes for each.
func TestStateIsSmall(t *testing.T) {
	s := State{Sent: 1 << 40, LastID: 30_000}
	for i := range 1000 {
		s.Open = append(s.Open, Delivery{Position: s.Sent - 3000 + Position(3*i), PacketID: uint16(29_000 + i)})
	}
	if got := len(AppendState(nil, s)); got > 3*1000+30 {
		t.Errorf("%d bytes for 1000 deliveries", got)
	}
}

func TestStateRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		s := State{LastID: uint16(r.Uint32())}
		p := Position(r.Uint64() >> r.IntN(64))
		for range r.IntN(30) {
			next := p + Position(1+r.Uint64()>>r.IntN(64))
			if next <= p { // past the last position
				break
			}
			p = next
			d := Delivery{Position: p, PacketID: uint16(1 + r.IntN(65_535)), QoS: byte(r.IntN(3))}
			d.Released = d.QoS == 2 && r.IntN(2) == 0
			s.Open = append(s.Open, d)
		}
		for range r.IntN(4) * r.IntN(2) {
			s.Resting = append(s.Resting, uint16(r.Uint32()))
		}
		for range r.IntN(4) * r.IntN(2) {
			s.Releasing = append(s.Releasing, uint16(r.Uint32()))
		}
		s.Sent = max(p, Position(r.Uint64()>>r.IntN(64)))
		b := AppendState([]byte("before"), s)[len("before"):]
		if got, err := ParseState(b); err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("record %x\n got %+v, %v\nwant %+v", b, got, err, s)
		}
	}
}

func TestParseStateDamaged(t *testing.T) {
	const below = uint64(math.MaxUint64)
	for _, c := range []struct {
		field string
		in    []byte
	}{
		{"record", nil},
		{"version", raw(t, 0, 1, 1, []any{}, []any{}, []any{})},
		{"number of fields", raw(t, 2, 1, 1, []any{}, []any{})},
		{"number of fields", raw(t, 1, 1, 1, []any{})},
		{"sent", raw(t, 2, -1, 1, []any{}, []any{}, []any{})},
		{"last id", raw(t, 2, 1, 65_536, []any{}, []any{}, []any{})},
		{"open", raw(t, 2, 1, 1, nil, []any{}, []any{})},
		{"open", raw(t, 2, 1, 1, []any{0, 1}, []any{}, []any{})},
		{"open", []byte{0x96, 2, 1, 1, 0xdd, 0xff, 0xff, 0xff, 0xff}},
		{"position", raw(t, 2, 9, 1, []any{9, 1, 1}, []any{}, []any{})},              // at 0
		{"position", raw(t, 2, 9, 1, []any{10, 1, 1}, []any{}, []any{})},             // below 0
		{"position", raw(t, 2, 9, 1, []any{2, 1, 1, 0, 1, 1}, []any{}, []any{})},     // twice
		{"position", raw(t, 2, 9, 1, []any{2, 1, 1, 3, 1, 1}, []any{}, []any{})},     // above sent
		{"position", raw(t, 2, 9, 1, []any{2, 1, 1, below, 1, 1}, []any{}, []any{})}, // back
		{"packet id", raw(t, 2, 9, 1, []any{2, 0, 1}, []any{}, []any{})},
		{"packet id", raw(t, 2, 9, 1, []any{2, 65_536, 1}, []any{}, []any{})},
		{"packet id", raw(t, 2, 9, 1, []any{2, 5, 1, 1, -5, 1}, []any{}, []any{})},
		{"packet id", raw(t, 2, 9, 1, []any{2, 5, 1, 1, int64(math.MaxInt64), 1}, []any{}, []any{})},
		{"stage", raw(t, 2, 9, 1, []any{2, 5, 4}, []any{}, []any{})},
		{"stage", raw(t, 2, 9, 1, []any{2, 5, true}, []any{}, []any{})},
		{"released", raw(t, 1, 9, 1, []any{2, 5, 1}, []any{})},
		{"resting ids", raw(t, 2, 9, 1, []any{}, []any{-1}, []any{})},
		{"resting ids", raw(t, 2, 9, 1, []any{}, "ids", []any{})},
		{"releasing ids", raw(t, 2, 9, 1, []any{}, []any{}, []any{-1})},
		{"releasing ids", raw(t, 2, 9, 1, []any{}, []any{}, "ids")},
		{"bytes after the record", append(raw(t, 2, 1, 1, []any{}, []any{}, []any{}), 0)},
	} {
		s, err := ParseState(c.in)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.field+":") || !reflect.DeepEqual(s, State{}) {
			t.Errorf("%x: %+v, %v; want damage of %q", c.in, s, err, c.field)
		}
	}
}

// What an earlier version has stored is read: of what is not released it has not said
// at which QoS it is.
func TestParseStateOfFirstVersion(t *testing.T) {
	want := fullState()
	want.Releasing = nil
	for i := range want.Open {
		if !want.Open[i].Released {
			want.Open[i].QoS = 0
		}
	}
	b, err := os.ReadFile(filepath.Join("testdata", "state-1.msgpack"))
	if err != nil {
		t.Fatal(err)
	}
	later := append(slices.Clone(b), 0xc0)
	later[0]++ // a field that is not known
	for _, b := range [][]byte{b, later} {
		if got, err := ParseState(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	}
}

func FuzzParseState(f *testing.F) {
	f.Add(AppendState(nil, State{}))
	f.Add(AppendState(nil, fullState()))
	f.Add([]byte{0x95, 1, 9, 6, 0x93, 2, 5, 0xc2, 0x91, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(b)
		if err != nil {
			if !reflect.DeepEqual(s, State{}) || errors.Is(err, ErrDamaged) == errors.Is(err, ErrNewer) {
				t.Fatalf("%+v, %v", s, err)
			}
			return
		}
		again, err := ParseState(AppendState(nil, s))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("again %+v, %v\n from %+v", again, err, s)
		}
	})
}

func BenchmarkState(b *testing.B) {
	w := NewWindow(20, State{Sent: 1 << 40})
	sendAll(w, 1<<40+1, 20)
	record := AppendState(nil, w.State())
	b.Run("append/open=20", func(b *testing.B) {
		s, dst := w.State(), make([]byte, 0, 2*len(record))
		b.ReportAllocs()
		for b.Loop() {
			AppendState(dst, s)
		}
		b.ReportMetric(float64(len(record)), "B/record")
	})
	b.Run("parse/open=20", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseState(record); err != nil {
				b.Fatal(err)
			}
		}
	})
}
