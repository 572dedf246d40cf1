package inbox

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

func TestMessageIDString(t *testing.T) {
	for id, want := range map[MessageID]string{
		{Sequence: 1, Store: 0xabc}:      "0000000000000001-00000abc",
		{math.MaxUint64, math.MaxUint32}: "ffffffffffffffff-ffffffff",
	} {
		if got := id.String(); got != want {
			t.Errorf("%d of store %d is %q, want %q", id.Sequence, id.Store, got, want)
		}
		if got, err := ParseMessageID(want); got != id || err != nil {
			t.Errorf("%q is parsed as %v, %v", want, got, err)
		}
	}
}

// Only what String writes is an id, so that two of them are equal as texts if
// they are as values.
func TestParseMessageIDRefusesOtherForms(t *testing.T) {
	for _, s := range []string{
		"", "0", "-", "0000000000000000-00000000", "0000000000000000-00000abc", "0000000000000001", "0000000000000001-", "-00000abc", "0000000000000001-00000ABC",
		"000000000000001-00000abc", "00000000000000001-00000abc", "0000000000000001-00000abc ", "0000000000000001_00000abc",
		"000000000000000g-00000abc", "0000000000000001-0000-abc", "0000000000000001-00000abc00",
	} {
		if id, err := ParseMessageID(s); !errors.Is(err, ErrUnknownID) {
			t.Errorf("%q is parsed as %v, %v", s, id, err)
		}
	}
}

// Users sort ids as strings; that must be the order of storing.
func TestMessageIDsSortAsStrings(t *testing.T) {
	var sequences []Position
	for bit := range 64 {
		p := Position(1) << bit
		sequences = append(sequences, p-1, p, p+1, p|p>>1)
	}
	slices.Sort(sequences)
	for i, a := range sequences {
		for _, b := range sequences[i:] {
			x, y := MessageID{a, 0xfedcba98}, MessageID{b, 0xfedcba98}
			if got, want := cmp.Compare(x.String(), y.String()), cmp.Compare(a, b); got != want {
				t.Fatalf("%v and %v compare %d, their sequences %d", x, y, got, want)
			}
		}
	}
}

func TestEnvelopeExpired(t *testing.T) {
	const expiry = 1_700_000_000_123
	for _, c := range []struct {
		name   string
		expiry int64
		now    time.Time
		want   bool
	}{
		{"never", 0, time.UnixMilli(math.MaxInt64), false},
		{"a millisecond before", expiry, time.UnixMilli(expiry - 1), false},
		{"a nanosecond before", expiry, time.UnixMilli(expiry).Add(-1), false},
		{"at the time", expiry, time.UnixMilli(expiry), true},
		{"after", expiry, time.UnixMilli(expiry + 1), true},
	} {
		e := Envelope{Expiry: c.expiry}
		if got := e.Expired(c.now); got != c.want {
			t.Errorf("%s: expired %v, want %v", c.name, got, c.want)
		}
	}
}
