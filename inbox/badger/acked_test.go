package badger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// acking is what is acknowledged in an inbox that is nobody's, on disk and as it is to be.
type acking struct {
	*testing.T
	s    *Store
	want map[pair]inbox.Spans
}

const ackingIn incarnation = 1 << 20

// The pairs of the tests, by the names that entries have.
var (
	ackingNames = [][2]string{{"ann", "a"}, {"ann", "a/b"}, {"bob", "a"}}
	ackingPairs = []pair{everyPair, pairOf("ann", "a"), pairOf("ann", "a/b"), pairOf("bob", "a")}
)

func startAcking(t *testing.T) *acking {
	t.Helper()
	o := everythingOptions(t.TempDir())
	o.sweepEvery = time.Hour
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &acking{t, s, map[pair]inbox.Spans{}}
}

// write changes what is acknowledged, in one group.
func (x *acking) write(change func(g *commitGroup)) {
	x.Helper()
	if err := x.s.do(x.Context(), "test", func(g *commitGroup) error { change(g); return nil }); err != nil {
		x.Fatal(err)
	}
}

// mark acknowledges spans, here and on disk.
func (x *acking) mark(of pair, spans ...inbox.Span) {
	x.Helper()
	var all inbox.Spans
	for _, span := range spans {
		all = all.Add(span)
	}
	x.write(func(g *commitGroup) { g.markAcked(ackingIn, marks{of: all}) })
	x.want[of] = x.want[of].Union(all)
}

// pieces returns what is on disk of one pair, piece by piece, and looks at its form.
func (x *acking) pieces(of pair) (all []inbox.Spans) {
	x.Helper()
	err := x.s.view(func(txn *badger.Txn) error {
		return each(txn, numberKey(prefixAcked, uint64(ackingIn)), func(k, v []byte) error {
			if !isAckedOf(k, of) {
				return nil
			}
			piece, err := parseAcked(k, v)
			if err != nil {
				return err
			}
			if n := len(all); n > 0 && piece[0].After <= all[n-1][len(all[n-1])-1].Through {
				x.Errorf("piece %v follows %v", piece, all[n-1])
			}
			if len(piece) > mostSpans {
				x.Errorf("piece of %d spans", len(piece))
			}
			all = append(all, piece)
			return nil
		})
	})
	if err != nil {
		x.Error(err)
	}
	return all
}

// check compares what is on disk with what is to be there, and what readers make of it.
func (x *acking) check(when string) {
	x.Helper()
	for _, of := range ackingPairs {
		if got := slices.Concat(x.pieces(of)...); !slices.Equal(got, x.want[of]) {
			x.Fatalf("%s: pair %x has %v, want %v", when, of[:2], got, x.want[of])
		}
	}
	err := x.s.view(func(txn *badger.Txn) error {
		a := x.s.ackedIn(txn, ackingIn)
		defer a.close()
		for i, names := range ackingNames {
			all := x.want[everyPair].Union(x.want[ackingPairs[1+i]])
			for j := 0; j < len(all); j += 1 + len(all)/50 { // at the ends of some
				span := all[j]
				for _, p := range []inbox.Position{span.After, span.After + 1, span.Through, span.Through + 1} {
					e := &inbox.Entry{Position: p, Envelope: &inbox.Envelope{Client: names[0], Topic: names[1]}}
					if got := a != nil && a.covers(e); got != all.Contains(p) {
						x.Fatalf("%s: %d of %q is read: %v", when, p, names, got)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		x.Fatal(err)
	}
}

// singles returns n spans of one position, each so many behind the one before.
func singles(after inbox.Position, n int, step inbox.Position) (all []inbox.Span) {
	for i := range n {
		p := after + inbox.Position(i+1)*step
		all = append(all, inbox.Span{After: p - 1, Through: p})
	}
	return all
}

func TestAckedRecord(t *testing.T) {
	of := pairOf("ann", "a")
	for _, spans := range []inbox.Spans{
		{{After: 0, Through: 1}},
		{{After: 7, Through: endless}},
		{{After: 2, Through: 4}, {After: 1 << 40, Through: 1<<40 + 1}},
		singles(100, mostSpans, 3),
	} {
		key := ackedKey(7, of, spans[len(spans)-1].Through)
		if keyIncarnationOf(key) != 7 || ackedPair(key) != of || len(key) != ackedKeyLength {
			t.Errorf("key %x", key)
		}
		record := appendAcked(nil, spans)
		if got, err := parseAcked(key, record); err != nil || !slices.Equal(got, spans) {
			t.Errorf("%v became %v, %v", spans, got, err)
		}
	}
	spans := inbox.Spans{{After: 2, Through: 4}, {After: 6, Through: 9}}
	key, record := ackedKey(7, of, 9), appendAcked(nil, spans)
	for _, c := range []struct {
		name        string
		key, record []byte
		want        error
	}{
		{"empty", key, nil, inbox.ErrDamaged},
		{"version alone", key, record[:1], inbox.ErrDamaged},
		{"cut", key, record[:len(record)-1], inbox.ErrDamaged},
		{"longer", key, append(slices.Clone(record), 0), inbox.ErrDamaged},
		{"no spans", key, appendAcked(nil, nil), inbox.ErrDamaged},
		{"no version", key, append([]byte{0}, record[1:]...), inbox.ErrDamaged},
		{"a later version", key, append([]byte{ackedVersion + 1}, record[1:]...), inbox.ErrNewer},
		{"another end", ackedKey(7, of, 10), record, inbox.ErrDamaged},
		{"a shorter key", key[:len(key)-1], record, inbox.ErrDamaged},
		{"a longer key", append(slices.Clone(key), 0), record, inbox.ErrDamaged},
	} {
		if got, err := parseAcked(c.key, c.record); !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// What comes together is in few pieces, and what closes a gap makes one of several.
func TestAckedInPieces(t *testing.T) {
	x := startAcking(t)
	of := ackingPairs[1]
	has := func(when string, want ...int) {
		t.Helper()
		x.check(when)
		var got []int
		for _, piece := range x.pieces(of) {
			got = append(got, len(piece))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: pieces of %v spans, want %v", when, got, want)
		}
	}
	x.mark(of, singles(0, mostSpans, 10)...)
	has("as many as a piece has", mostSpans)
	x.mark(of, singles(10*mostSpans, 1, 10)...)
	has("and one more", mostSpans/2, mostSpans/2, 1)
	x.mark(of, singles(10_000, 1, 1)...)
	has("far away", mostSpans/2, mostSpans/2, 2)
	x.mark(of, inbox.Span{After: 4, Through: 5})
	has("in front", mostSpans/2+1, mostSpans/2, 2)
	x.mark(of, singles(0, mostSpans, 10)...)
	has("all of it again", mostSpans/2+1, mostSpans/2, 2)
	x.mark(of, singles(5, mostSpans/2-1, 10)...)
	has("between them", mostSpans, mostSpans/2, 2)
	x.mark(of, inbox.Span{After: 10*mostSpans/2 - 50, Through: 10*mostSpans/2 + 50}) // in place of 11 and 5
	has("over the end of one", mostSpans/2, mostSpans/2, mostSpans/2-15, 2)
	x.mark(of, inbox.Span{After: 3, Through: 10_001})
	has("over all", 1)
	x.mark(of, append(singles(20_000, 3*mostSpans, 2), singles(30_000, 10, 5)...)...)
	has("many behind", mostSpans/2, mostSpans/2, mostSpans/2, mostSpans/2, mostSpans/2, mostSpans/2, 11)
}

// Whatever is acknowledged and forgotten, in whatever order, it is there as in a set.
func TestAckedRandomly(t *testing.T) {
	x := startAcking(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const highest = 12_000
	random := func() inbox.Position { return inbox.Position(r.IntN(highest)) }
	some := func() (m marks) {
		m = marks{}
		for range 1 + r.IntN(3) {
			of := ackingPairs[r.IntN(len(ackingPairs))]
			for range 1 + r.IntN(250) {
				p, n := random(), inbox.Position(1)
				if r.IntN(400) == 0 {
					n = random() / 4
				}
				m.add(of, inbox.Span{After: p, Through: p + n})
			}
		}
		return m
	}
	remember := func(m marks) {
		for of, spans := range m {
			x.want[of] = x.want[of].Union(spans)
		}
	}
	most := 0
	for i := range 40 {
		what := fmt.Sprint("step ", i)
		switch p := random(); r.IntN(12) {
		case 0:
			what += fmt.Sprint(": forget behind ", p)
			x.write(func(g *commitGroup) { g.forgetAcked(ackingIn, p) })
			for of, spans := range x.want {
				x.want[of] = spans.Remove(inbox.Span{After: p, Through: endless})
			}
		case 1:
			p /= 4
			what += fmt.Sprint(": forget up to ", p)
			x.forgetUpTo(p, 2)
		case 2: // two of one group see each other
			m, o := some(), some()
			x.write(func(g *commitGroup) {
				g.markAcked(ackingIn, m)
				g.markAcked(ackingIn, o)
				g.forgetAcked(ackingIn, p)
			})
			remember(m)
			remember(o)
			for of, spans := range x.want {
				x.want[of] = spans.Remove(inbox.Span{After: p, Through: endless})
			}
		default:
			m := some()
			x.write(func(g *commitGroup) { g.markAcked(ackingIn, m) })
			remember(m)
		}
		x.check(what)
		most = max(most, len(x.pieces(ackingPairs[1])))
	}
	if most < 2 {
		t.Errorf("%d pieces at most: the test would test nothing", most)
	}
}

// forgetUpTo forgets, some pieces at a time. Of a piece that goes on behind the position nothing
// need go.
func (x *acking) forgetUpTo(p inbox.Position, most int) {
	x.Helper()
	before := 0
	for all := false; !all; {
		x.write(func(g *commitGroup) {
			w := g.writeAcked(ackingIn)
			defer w.close()
			all = w.forgetUpTo(p, most)
		})
		n := 0
		for _, of := range ackingPairs {
			for _, piece := range x.pieces(of) {
				if piece[len(piece)-1].Through <= p {
					n++
				}
			}
		}
		if before > 0 && n != max(before-most, 0) || all != (n == 0) {
			x.Fatalf("%d pieces up to %d are left, after %d, and all is %v", n, p, before, all)
		}
		before = n
	}
	for _, of := range ackingPairs {
		got := slices.Concat(x.pieces(of)...)
		if !slices.Equal(got.Remove(inbox.Span{Through: p}), x.want[of].Remove(inbox.Span{Through: p})) {
			x.Fatalf("behind %d is %v, was %v", p, got, x.want[of])
		}
		x.want[of] = got
	}
}

// A piece that cannot be read is reported, and goes when something is added to it. The others
// stay as they are.
func TestAckedDamaged(t *testing.T) {
	x := startAcking(t)
	of := ackingPairs[1]
	x.mark(everyPair, singles(0, 5, 10)...)
	x.mark(of, singles(0, 3*mostSpans, 10)...)
	pieces := x.pieces(of)
	damage := func(i int) {
		piece := pieces[i]
		end := piece[len(piece)-1].Through
		x.write(func(g *commitGroup) { g.put(ackedKey(ackingIn, of, end), []byte{ackedVersion, 1, 1}) })
		x.want[of] = x.want[of].Remove(inbox.Span{After: piece[0].After, Through: end})
	}
	read := func(want int64) {
		t.Helper()
		before := x.s.Stats().Damaged
		err := x.s.view(func(txn *badger.Txn) error {
			a := x.s.ackedIn(txn, ackingIn)
			defer a.close()
			if got := a.spans(of); !slices.Equal(got, x.want[of]) {
				t.Errorf("what is left reads as %v, want %v", got, x.want[of])
			}
			return nil
		})
		if got := x.s.Stats().Damaged - before; err != nil || got != want {
			t.Errorf("%d are damaged, %v, want %d", got, err, want)
		}
	}
	damage(1)
	damage(4)
	read(2)
	for _, span := range []inbox.Span{pieces[1][3], pieces[1][70], pieces[1][mostSpans/2-1]} { // the last has the key that it had
		x.mark(of, span)
	}
	read(1)
	x.mark(of, pieces[4][5], pieces[4][9], pieces[5][0])
	read(0)
	x.check("mended")
	damage(2)
	x.mark(of, inbox.Span{After: pieces[0][0].After, Through: pieces[5][7].Through})
	x.check("over all of them")
	damage(5)
	x.write(func(g *commitGroup) { g.forgetAcked(ackingIn, 5) })
	x.want = map[pair]inbox.Spans{}
	x.check("all forgotten")
}

// A commit of several transactions that ends after the first leaves what was acknowledged
// before, and that in form.
func TestAckedWholeAfterACrash(t *testing.T) {
	x := startAcking(t)
	of := ackingPairs[1]
	x.mark(of, singles(0, 3*mostSpans, 10)...)
	for room := range 12 {
		added := inbox.Span{After: inbox.Position(room*300 + 3), Through: inbox.Position(room*300 + 5)}
		m := marks{of: inbox.Spans{added, {After: 9000 + inbox.Position(room), Through: 9001 + inbox.Position(room)}}}
		for _, span := range singles(20_000+inbox.Position(room)*3000, mostSpans, 2) {
			m.add(of, span)
		}
		x.write(func(g *commitGroup) {
			if err := g.separate(); err != nil {
				t.Error(err)
			}
			for range int(x.s.db.MaxBatchCount()) - 2 - room {
				g.put(keyPadding, nil)
			}
			g.markAcked(ackingIn, m)
			if got := slices.Concat(x.pieces(of)...); len(inbox.Spans(got).Subtract(x.want[of].Union(m[of]))) > 0 || len(x.want[of].Subtract(got)) > 0 {
				t.Errorf("with room for %d: in the middle there is %v, want %v", room, got, x.want[of])
			}
		})
		x.want[of] = x.want[of].Union(m[of])
		x.check(fmt.Sprint("with room for ", room))
	}
}
