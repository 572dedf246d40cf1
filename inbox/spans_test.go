package inbox

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSpans(t *testing.T) {
	some := Spans{{2, 4}, {6, 7}, {9, 12}}
	for _, c := range []struct {
		name      string
		got, want Spans
	}{
		{"add to none", Spans(nil).Add(Span{3, 5}), Spans{{3, 5}}},
		{"add nothing", some.Add(Span{5, 5}), some},
		{"add backwards", some.Add(Span{5, 3}), some},
		{"add between", some.Add(Span{7, 8}), Spans{{2, 4}, {6, 8}, {9, 12}}},
		{"add apart", some.Add(Span{13, 14}), Spans{{2, 4}, {6, 7}, {9, 12}, {13, 14}}},
		{"add in front", some.Add(Span{0, 1}), Spans{{0, 1}, {2, 4}, {6, 7}, {9, 12}}},
		{"add what closes a gap", some.Add(Span{4, 6}), Spans{{2, 7}, {9, 12}}},
		{"add what is there", some.Add(Span{9, 11}), some},
		{"add over all", some.Add(Span{0, 20}), Spans{{0, 20}}},
		{"add over some", some.Add(Span{3, 10}), Spans{{2, 12}}},
		{"remove nothing", some.Remove(Span{4, 6}), some},
		{"remove backwards", some.Remove(Span{6, 2}), some},
		{"remove from within", some.Remove(Span{10, 11}), Spans{{2, 4}, {6, 7}, {9, 10}, {11, 12}}},
		{"remove over some", some.Remove(Span{3, 10}), Spans{{2, 3}, {10, 12}}},
		{"remove all", some.Remove(Span{0, math.MaxUint64}), nil},
		{"union", some.Union(Spans{{4, 5}, {11, 20}}), Spans{{2, 5}, {6, 7}, {9, 20}}},
		{"union with none", some.Union(nil), some},
		{"union of none", Spans(nil).Union(some), some},
		{"union over all", some.Union(Spans{{0, 30}}), Spans{{0, 30}}},
		{"subtract none", some.Subtract(nil), some},
		{"subtract itself", some.Subtract(some), nil},
		{"subtract", Spans{{0, 20}}.Subtract(some), Spans{{0, 2}, {4, 6}, {7, 9}, {12, 20}}},
		{"subtract more", some.Subtract(Spans{{0, 3}, {6, 8}, {11, 40}}), Spans{{3, 4}, {9, 11}}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestSpansNeighbours(t *testing.T) {
	some := Spans{{2, 4}, {6, 7}}
	for _, c := range []struct {
		p              Position
		in             bool
		before, behind Position // 0 for none
	}{
		{0, false, 0, 3},
		{2, false, 0, 3},
		{3, true, 3, 3},
		{4, true, 4, 4},
		{5, false, 4, 7},
		{6, false, 4, 7},
		{7, true, 7, 7},
		{8, false, 7, 0},
		{math.MaxUint64, false, 7, 0},
	} {
		if in := some.Contains(c.p); in != c.in {
			t.Errorf("contains %d: %v", c.p, in)
		}
		if p, ok := some.AtOrBefore(c.p); p != c.before || ok != (c.before > 0) {
			t.Errorf("at or before %d: %d, %v, want %d", c.p, p, ok, c.before)
		}
		if p, ok := some.AtOrBehind(c.p); p != c.behind || ok != (c.behind > 0) {
			t.Errorf("at or behind %d: %d, %v, want %d", c.p, p, ok, c.behind)
		}
	}
	if _, ok := Spans(nil).AtOrBefore(5); ok {
		t.Error("something is before 5 in nothing")
	}
}

// Against a map, with all that can be done; what was there before stays as it was.
func TestSpansRandomly(t *testing.T) {
	const highest = 40
	r := rand.New(rand.NewPCG(1, 2))
	random := func() Span { return Span{Position(r.IntN(highest)), Position(r.IntN(highest))} }
	for range 200 {
		var s Spans
		in := map[Position]bool{}
		set := func(span Span, to bool) {
			for p := span.After + 1; p <= span.Through; p++ {
				in[p] = to
			}
		}
		for range 30 {
			was, copied := s, slices.Clone(s)
			other := Spans(nil).Add(random()).Add(random())
			switch span := random(); r.IntN(4) {
			case 0:
				s = s.Add(span)
				set(span, true)
			case 1:
				s = s.Remove(span)
				set(span, false)
			case 2:
				s = s.Union(other)
				for _, span := range other {
					set(span, true)
				}
			default:
				s = s.Subtract(other)
				for _, span := range other {
					set(span, false)
				}
			}
			if !slices.Equal(was, copied) {
				t.Fatalf("%v became %v", copied, was)
			}
			checkSpans(t, s, func(p Position) bool { return in[p] }, highest)
		}
	}
}

// checkSpans compares a set with what is to be in it, and looks at its form.
func checkSpans(t *testing.T, s Spans, in func(Position) bool, highest Position) {
	t.Helper()
	for i, span := range s {
		if span.Through <= span.After || i > 0 && span.After <= s[i-1].Through {
			t.Fatalf("not in form: %v", s)
		}
	}
	for p := range highest + 2 {
		if s.Contains(p) != in(p) {
			t.Fatalf("contains %d: %v, in %v", p, s.Contains(p), s)
		}
	}
}

func TestParseSpansDamaged(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty":            {},
		"no spans":         {1},
		"cut":              {1, 5},
		"empty span":       {1, 5, 0},
		"touching":         {2, 1, 1, 0, 1},
		"very many":        {0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1},
		"beyond the end":   append([]byte{1}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1),
		"number too large": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		if s, _, err := ParseSpans(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func FuzzParseSpans(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendSpans(nil, Spans{{0, 1}}))
	f.Add(append(AppendSpans(nil, Spans{{2, 4}, {1 << 40, math.MaxUint64}}), 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := ParseSpans(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("error %v", err)
			}
			return
		}
		for i, span := range s {
			if span.Through <= span.After || i > 0 && span.After <= s[i-1].Through {
				t.Fatalf("not in form: %v", s)
			}
		}
		again, left, err := ParseSpans(append(AppendSpans(nil, s), rest...))
		if err != nil || !slices.Equal(again, s) || !slices.Equal(left, rest) {
			t.Fatalf("%v and %x became %v and %x, %v", s, rest, again, left, err)
		}
	})
}
