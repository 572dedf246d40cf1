package badger

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Against a map, with sessions that come and go all the time.
func TestSessionsRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	type known struct {
		session
		m     inbox.Member
		owner *handle
		will  *inbox.Will
	}
	s, all := newSessions(), map[inbox.Receiver]*known{}
	receiver := func() inbox.Receiver {
		switch n := r.IntN(700); n {
		case 0:
			return ""
		case 1, 2, 3: // around the length from which a name has memory of its own
			return inbox.Receiver(strings.Repeat("x", longChunk-2+n))
		case 4, 5: // as long as a client id can be, and a group's name longer
			return inbox.Receiver(strings.Repeat("x", wholeChunk-4+n))
		default:
			return inbox.Receiver(fmt.Sprintf("%0*d", 1+n%40, n))
		}
	}
	for step := range 30_000 {
		name := receiver()
		k := all[name]
		switch {
		case k == nil && step%10_000 < 6000 || k == nil && r.IntN(3) == 0:
			k = &known{session: session{
				receiver: name, incarnation: incarnation(step + 1), ended: r.Int64(),
				expiry: inbox.Expiry(r.Uint32()), stored: r.IntN(2) == 0, pull: r.IntN(2) == 0,
			}}
			k.m = s.add(k.session)
			all[name] = k
		case k == nil:
		case r.IntN(3) == 0:
			s.remove(k.m)
			delete(all, name)
		case r.IntN(2) == 0:
			k.owner = []*handle{nil, {}}[r.IntN(2)]
			s.at(k.m).setOwner(k.owner)
		case r.IntN(2) == 0:
			k.pull = !k.pull
			mode := inbox.ModePush
			if k.pull {
				mode = inbox.ModePull
			}
			s.at(k.m).setMode(mode)
			s.at(k.m).setMode(inbox.ModeKept) // changes nothing
			s.at(k.m).setBlock(step)
			if i, ok := s.at(k.m).block(); i != step || !ok {
				t.Fatalf("block %d, %v, want %d", i, ok, step)
			}
			s.at(k.m).noBlock()
		default:
			k.will = []*inbox.Will{nil, {}}[r.IntN(2)]
			s.at(k.m).setWill(k.will)
		}
		if step%100 > 0 {
			continue
		}
		extras := 0
		for name, k := range all {
			at := s.at(k.m)
			got := known{
				session: session{at.receiver(), at.incarnation, at.ended, at.expiry, at.stored(), at.mode() == inbox.ModePull},
				m:       s.member(name), owner: at.owner(), will: at.will(),
			}
			if got != *k {
				t.Fatalf("step %d: %q: %+v, want %+v", step, name, got, *k)
			}
			if _, ok := at.block(); ok {
				t.Fatalf("step %d: %q has a block", step, name)
			}
			if k.owner != nil || k.will != nil || !k.stored {
				extras++
			}
		}
		if s.member("nobody") != 0 {
			t.Fatal("found somebody who is not there")
		}
		if got := len(s.extras) - 1 - len(s.freeExtras); got != extras || s.extras[0] != (extra{}) {
			t.Fatalf("step %d: %d sessions have more than a resting one, want %d", step, got, extras)
		}
	}
	for _, k := range all {
		s.remove(k.m)
	}
	if s.byReceiver.used != 0 || slices.Max(s.byReceiver.members) != 0 {
		t.Errorf("names of sessions that ended are still in the table")
	}
	if size := s.names.size; size > 8*namesChunk {
		t.Errorf("%d bytes of names are kept for no session", size)
	}
}

func TestSessionsInTheOrderOfIncarnations(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{0, 1, 2, 3, 10, 3000} {
		s := newSessions()
		for _, i := range r.Perm(n) {
			inc := incarnation(10 * (i + 1))
			s.addUnnamed(session{receiver: inbox.Receiver(fmt.Sprintf("r%d", inc)), incarnation: inc})
		}
		s.sortByIncarnation()
		s.nameAll()
		for i := range n {
			m, inc := inbox.Member(i+1), incarnation(10*(i+1))
			name := inbox.Receiver(fmt.Sprintf("r%d", inc))
			if s.at(m).incarnation != inc || s.at(m).receiver() != name || s.member(name) != m || s.ofIncarnation(inc) != m {
				t.Fatalf("%d sessions: number %d is %q of %d", n, m, s.at(m).receiver(), s.at(m).incarnation)
			}
			if s.ofIncarnation(inc+1) != 0 {
				t.Fatalf("%d sessions: incarnation %d is found", n, inc+1)
			}
		}
	}
}

// What is appended is what is read, of a later version's record too.
func TestRecordReader(t *testing.T) {
	for _, c := range []struct {
		text string
		uint uint64
		int  int64
		bool bool
	}{
		{"", 0, 0, false},
		{"a", 127, -1, true},
		{strings.Repeat("b", 31), 128, -32, false},
		{strings.Repeat("c", 32), 255, -33, true},
		{strings.Repeat("d", 255), 256, math.MinInt8, true},
		{strings.Repeat("e", 256), math.MaxUint16, math.MinInt16, true},
		{strings.Repeat("f", math.MaxUint16), math.MaxUint16 + 1, math.MinInt32, true},
		{strings.Repeat("g", math.MaxUint16+1), math.MaxUint64, math.MinInt64, true},
		{"h", math.MaxUint32, math.MaxInt64, true},
		{"i", math.MaxUint32 + 1, math.MaxInt32 + 1, true},
	} {
		b, err := appendRecord(nil, 3, c.text, c.uint, c.int, c.bool, []byte(c.text), "later")
		if err != nil {
			t.Fatal(err)
		}
		d := openRecord("test", b, 3, 6)
		if s := d.Text("text"); s != c.text {
			t.Errorf("%q, want %q", s, c.text)
		}
		if u := d.number("uint"); u != c.uint {
			t.Errorf("%d, want %d", u, c.uint)
		}
		if i := d.Int("int"); i != c.int {
			t.Errorf("%d, want %d", i, c.int)
		}
		if v := d.Bool("bool"); v != c.bool {
			t.Errorf("%v, want %v", v, c.bool)
		}
		if s := d.Bytes("bytes"); string(s) != c.text {
			t.Errorf("bytes %q, want %q", s, c.text)
		}
		if err := d.err(); err != nil {
			t.Error(err)
		}
		for cut := range min(len(b), 40) {
			d := openRecord("test", b[:cut], 3, 6)
			d.Text("text")
			d.number("uint")
			d.Int("int")
			d.Bool("bool")
			d.Bytes("bytes")
			d.Text("later")
			if err := d.err(); !errors.Is(err, inbox.ErrDamaged) {
				t.Errorf("the first %d bytes of a record: %v", cut, err)
			}
		}
	}
}

// Sessions and subscriptions come back as they were, whichever of them were
// opened, ended and subscribed in what order.
func TestLoadFindsWhatThereWas(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	o := fleet{}.options(t.TempDir())
	want := map[inbox.Receiver]map[string]inbox.Subscription{}
	for range 3 {
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			name := inbox.Receiver(fmt.Sprint("r", r.IntN(40)))
			fresh := r.IntN(4) == 0
			in, _, err := s.Open(t.Context(), name, inbox.OpenOptions{Expiry: inbox.ExpiryNever, Fresh: fresh})
			if err != nil {
				t.Fatal(err)
			}
			if fresh || want[name] == nil {
				want[name] = map[string]inbox.Subscription{}
			}
			sub := inbox.Subscription{
				Filter: []string{"all", "a/b/c", "a/b/#", "a/+/c", "device/" + string(name) + "/command"}[r.IntN(5)],
				QoS:    byte(1 + r.IntN(2)), NoLocal: r.IntN(2) == 0, Identifier: uint32(r.IntN(3)),
			}
			if _, err := in.Subscribe(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
			want[name][sub.Filter] = sub
			end := inbox.Ending{Expiry: inbox.ExpiryNever}
			if r.IntN(8) == 0 {
				end.Expiry = inbox.ExpiryAtOnce
				delete(want, name)
			}
			if err := in.Close(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	names := map[inbox.Receiver]bool{}
	for sess, err := range s.Sessions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names[sess.Receiver] = true
		in, _, err := s.Open(t.Context(), sess.Receiver, inbox.OpenOptions{Expiry: inbox.ExpiryNever, Resume: true})
		if err != nil {
			t.Fatal(err)
		}
		subs, err := in.Subscriptions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]inbox.Subscription{}
		for _, sub := range subs {
			got[sub.Filter] = sub
		}
		if !maps.Equal(got, want[sess.Receiver]) {
			t.Errorf("%s has %v, want %v", sess.Receiver, got, want[sess.Receiver])
		}
	}
	if len(names) != len(want) {
		t.Errorf("%d sessions, want %d", len(names), len(want))
	}
}
