package badger

import (
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestPostingsRecord(t *testing.T) {
	for _, c := range []struct {
		name          string
		sender, topic string
		before        tally
		all           []posting
		record        string // stores in the field hold these
	}{
		{
			"one", "", "", tally{}, []posting{{5, 5, 0, 0, 0}},
			"01" + "00" + "00" + "00000000" + "010000" + "05" + "00" + "0000" + "0000000000",
		},
		{
			"several", "ann", "a/b", tally{7, 300, 1, 2},
			[]posting{{1000, 1000, 20, 1_700_000_000_000, 0}, {1003, 1003, 300, 1_700_000_000_100, 1_700_000_060_100}, {1300, 1300, 0, 1_700_000_000_050, 0}},
			"01" + "03616e6e" + "03612f62" + "07ac020102" + "030001" + "e807" + "80d095ffbc31" + "0064" + "c4a599ffbc31c4a599ffbc31" +
				"02" + "00000003012c" + "02" + "001401400140" + "01" + "006432" + "01" + "000100" + "00",
		},
		{
			"copies", "b", "x", tally{},
			[]posting{{10, 4, 1, -5, 0}, {11, 11, 1, 3, -1}},
			"01" + "0162" + "0178" + "00000000" + "020101" + "0a" + "fbffffffffffffffff01" + "0808" + "ffffffffffffffffff01ffffffffffffffffff01" +
				"010001" + "010102" + "010008" + "010001" + "010600",
		},
	} {
		b := appendPostings(nil, c.sender, c.topic, c.before, c.all)
		if got := hex.EncodeToString(b); got != c.record {
			t.Errorf("%s: record\n%s, want\n%s", c.name, got, c.record)
		}
		r, err := parsePostings(b)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if all := r.appendTo(nil); !slices.Equal(all, c.all) || string(r.sender) != c.sender || string(r.topic) != c.topic || r.before != c.before {
			t.Errorf("%s: %q %q %v %v", c.name, r.sender, r.topic, r.before, all)
		}
	}
}

func TestPostingsDamaged(t *testing.T) {
	whole := appendPostings(nil, "ann", "a/b", tally{1, 2, 0, 0}, []posting{{1000, 1000, 20, 12, 0}, {1001, 1000, 20, 12, 99}})
	for n := range whole {
		if _, err := parsePostings(whole[:n]); !errors.Is(err, inbox.ErrDamaged) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := parsePostings(append(slices.Clone(whole), 0)); !errors.Is(err, inbox.ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := parsePostings(append([]byte{recordVersion + 1}, whole[1:]...)); !errors.Is(err, inbox.ErrNewer) {
		t.Errorf("later version: %v", err)
	}
}

func FuzzParsePostings(f *testing.F) {
	f.Add([]byte{}, uint64(1))
	f.Add(appendPostings(nil, "ann", "a/b", tally{1, 2, 0, 0}, []posting{{1000, 1000, 20, 12, 0}, {1001, 1000, 20, 12, 99}}), uint64(1000))
	f.Add(appendPostings(nil, "", "", tally{}, []posting{{1, 1, 1 << 40, math.MinInt64, 1}, {1 << 60, 2, 0, math.MaxInt64, math.MaxInt64}}), uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, p uint64) {
		r, err := parsePostings(b)
		if err != nil {
			if !errors.Is(err, inbox.ErrDamaged) && !errors.Is(err, inbox.ErrNewer) {
				t.Fatalf("error %v", err)
			}
			return
		}
		n := r.upTo(inbox.Position(p)) // whatever it holds, nothing panics
		r.tally(n)
		r.over(0, n, deadline{now: int64(p), old: int64(p)})
		if all := r.appendTo(nil); len(all) != r.n || r.n == 0 || r.n > mostPostings {
			t.Fatalf("%d postings of %d", len(all), r.n)
		}
	})
}

// What a record says in numbers is what its postings come to.
func TestPostingsCount(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 60 {
		all := somePostings(r, 1+r.IntN(200), inbox.Position(r.IntN(50)), round)
		before := tally{r.Uint64N(10), r.Uint64N(1000), r.Uint64N(3), r.Uint64N(3)}
		record, err := parsePostings(appendPostings(nil, "s", "t", before, all))
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			from, to := inbox.Position(r.IntN(1200)), inbox.Position(r.IntN(1200))
			d := someDeadline(r)
			i, j := record.upTo(from), record.upTo(to)
			if want := before.plus(tallyOf(all, 0, from, nil)); record.tally(i) != want {
				t.Fatalf("up to %d: %v, want %v", from, record.tally(i), want)
			}
			if got, want := record.over(i, j, d), tallyOf(all, from, to, &d); got != want {
				t.Fatalf("over in (%d, %d] at %v: %v, want %v", from, to, d, got, want)
			}
		}
		if want := before.plus(tallyOf(all, 0, endless, nil)); record.total() != want {
			t.Fatalf("in all %v, want %v", record.total(), want)
		}
	}
}

// somePostings returns n postings behind a position. What they are like depends on
// how: whether some, all or none are copies, or expire.
func somePostings(r *rand.Rand, n int, after inbox.Position, how int) (all []posting) {
	for range n {
		after += inbox.Position(1 + r.IntN(5))
		p := posting{position: after, id: after, bytes: r.Uint64N(300), time: 1000 + int64(after)*10 - r.Int64N(300)}
		if how%3 == 1 && r.IntN(4) == 0 {
			p.id -= inbox.Position(1 + r.IntN(int(after)))
			p.time -= r.Int64N(1000)
		}
		if how%4 == 1 || how%4 == 2 && r.IntN(3) == 0 {
			p.expiry = 1000 + r.Int64N(10_000)
		}
		all = append(all, p)
	}
	return all
}

func someDeadline(r *rand.Rand) deadline {
	d := deadline{now: r.Int64N(13_000), old: math.MinInt64}
	if r.IntN(2) == 0 {
		d.old = r.Int64N(13_000)
	}
	return d
}

// tallyOf counts the postings behind one position and up to another: all, or those
// that are over.
func tallyOf(all []posting, after, upTo inbox.Position, d *deadline) (t tally) {
	for i := range all {
		p := &all[i]
		if p.position > after && p.position <= upTo && (d == nil || d.isOver(p)) {
			t = t.plus(p.tally())
		}
	}
	return t
}
