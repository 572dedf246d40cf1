package badger

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The readers of a stream are a sorted map.
func TestReaders(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var got readers
	want := map[inbox.Member]inbox.Position{}
	for step := range 60_000 {
		m := inbox.Member(1 + random.IntN(8000))
		if step < 5000 { // at first in order
			m = inbox.Member(step + 1)
		}
		p := inbox.Position(random.Uint64() >> 16)
		_, there := want[m]
		switch r := got.of(m); {
		case (r != nil) != there:
			t.Fatalf("seed %d, step %d: member %d is there: %v, want %v", seed, step, m, r != nil, there)
		case !there:
			got.add(m, p)
			want[m] = p
		case random.IntN(3) == 0:
			r.set(p)
			want[m] = p
		default:
			got.remove(m)
			delete(want, m)
		}
	}
	var members []inbox.Member
	for r := range got.all() {
		members = append(members, r.member())
		if r.position() != want[r.member()] {
			t.Errorf("seed %d: member %d is at %d, want %d", seed, r.member(), r.position(), want[r.member()])
		}
	}
	if !slices.Equal(members, slices.Sorted(maps.Keys(want))) || got.len != len(want) {
		t.Errorf("seed %d: %d members (%d), want %d", seed, len(members), got.len, len(want))
	}
	for range 100 {
		from := inbox.Member(random.IntN(8100))
		n := 0
		for r := range got.from(from) {
			if i, _ := slices.BinarySearch(members, from); r.member() != members[i+n] {
				t.Fatalf("seed %d: behind %d comes %d, want %d", seed, from, r.member(), members[i+n])
			}
			n++
		}
		if i, _ := slices.BinarySearch(members, from); n != len(members)-i {
			t.Fatalf("seed %d: %d from %d on, want %d", seed, n, from, len(members)-i)
		}
	}
	for m := range want {
		got.remove(m)
	}
	if len(got.parts) != 0 || got.len != 0 {
		t.Errorf("seed %d: %d parts are left", seed, len(got.parts))
	}
	if size := unsafe.Sizeof(reader{}); size != 10 {
		t.Errorf("a reader takes %d bytes", size)
	}
}
