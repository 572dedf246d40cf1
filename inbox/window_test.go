package inbox

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// sendAll sends n entries from position p on and returns their packet ids.
func sendAll(w *Window, p Position, n int) []uint16 {
	ids := make([]uint16, n)
	for i := range ids {
		ids[i] = w.Send(p+Position(i), 1)
	}
	return ids
}

func positions(open []Delivery) []Position {
	var ps []Position
	for _, d := range open {
		ps = append(ps, d.Position)
	}
	return ps
}

func TestWindowAcknowledgements(t *testing.T) {
	for _, c := range []struct {
		name  string
		acks  []uint16
		known []bool
		left  []Position
	}{
		{"in order", []uint16{1, 2, 3}, []bool{true, true, true}, []Position{13, 14}},
		{"in reverse", []uint16{5, 4, 3}, []bool{true, true, true}, []Position{10, 11}},
		{"in any order", []uint16{3, 1, 5}, []bool{true, true, true}, []Position{11, 13}},
		{"all", []uint16{2, 1, 4, 3, 5}, []bool{true, true, true, true, true}, nil},
		{"twice", []uint16{2, 2}, []bool{true, false}, []Position{10, 12, 13, 14}},
		{"never sent", []uint16{6, 0, 65535}, []bool{false, false, false}, []Position{10, 11, 12, 13, 14}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := NewWindow(5, State{})
			if ids := sendAll(w, 10, 5); !slices.Equal(ids, []uint16{1, 2, 3, 4, 5}) {
				t.Fatalf("ids %v", ids)
			}
			if w.Room() != 0 {
				t.Fatalf("a full window has room for %d", w.Room())
			}
			for i, id := range c.acks {
				d, known := w.Ack(id)
				if known != c.known[i] {
					t.Errorf("ack %d known: %v, want %v", id, known, c.known[i])
				}
				if want := Position(id) + 9; known && d.Position != want {
					t.Errorf("ack %d finished position %d, want %d", id, d.Position, want)
				}
			}
			if got := positions(w.Open()); !slices.Equal(got, c.left) {
				t.Errorf("left open: %v, want %v", got, c.left)
			}
			if w.Len() != len(c.left) || w.Room() != 5-len(c.left) {
				t.Errorf("length %d and room %d with %d open of 5", w.Len(), w.Room(), len(c.left))
			}
			if got := w.State(); got.Sent != 14 || got.LastID != 5 {
				t.Errorf("state %+v, want sent 14 and last id 5", got)
			}
		})
	}
}

func TestWindowReleaseDropSkip(t *testing.T) {
	w := NewWindow(10, State{})
	for p := range Position(4) {
		w.Send(10+p, 2)
	}
	if !w.Release(2) || w.Release(7) {
		t.Error("release must know id 2 and not id 7")
	}
	if w.Drop(9) || !w.Drop(12) || w.Drop(12) || w.Drop(99) {
		t.Error("drop must know position 12, once")
	}
	w.Skip(20)
	if id := w.Send(21, 1); id != 6 {
		t.Errorf("id %d after one that was skipped, want 6", id)
	}
	want := State{Sent: 21, LastID: 6, Open: []Delivery{{10, 1, 2, false}, {11, 2, 2, true}, {13, 4, 2, false}, {21, 6, 1, false}}}
	if got := w.State(); !reflect.DeepEqual(got, want) {
		t.Errorf("state\n got %+v\nwant %+v", got, want)
	}
	if d, ok := w.Ack(2); !ok || !d.Released {
		t.Errorf("acknowledged %+v, %v; want the released one", d, ok)
	}
}

// What is withdrawn leaves its packet id behind where the receiver may hold it.
func TestWindowWithdraw(t *testing.T) {
	w := NewWindow(5, State{Sent: 4, LastID: 4, Open: []Delivery{{1, 1, 0, false}, {2, 2, 1, false}, {3, 3, 2, false}, {4, 4, 2, true}}})
	for p, want := range []bool{false, true, true, true, true, false} {
		if _, ok := w.Withdraw(Position(p)); ok != want {
			t.Errorf("position %d was open: %v", p, ok)
		}
	}
	if got := w.Releasing(); !slices.Equal(got, []uint16{1, 3, 4}) || len(w.Open()) > 0 || w.Room() != 2 {
		t.Fatalf("releasing %v, open %v, room %d", got, w.Open(), w.Room())
	}
	again := NewWindow(5, w.State())
	if !again.Release(3) || again.Release(2) || again.Room() != 2 {
		t.Errorf("id 3 must be known, and id 2 not; room %d", again.Room())
	}
	for p := Position(5); p < 5+2*MaxPacketID; p++ {
		id := again.Send(p, 2)
		if slices.Contains(again.Releasing(), id) {
			t.Fatalf("position %d got id %d, which is releasing", p, id)
		}
		again.Ack(id)
	}
	if d, ok := again.Ack(3); !ok || d != (Delivery{PacketID: 3, QoS: 2, Released: true}) {
		t.Errorf("acknowledged %+v, %v", d, ok)
	}
	if _, ok := again.Ack(3); ok || again.Room() != 3 {
		t.Errorf("id 3 is known after it was acknowledged, or takes room: %d", again.Room())
	}
	if !slices.Equal(w.Releasing(), []uint16{1, 3, 4}) {
		t.Error("a window has written to the state it was made of")
	}

	s := State{Sent: 4, Open: []Delivery{{1, 1, 0, false}, {2, 2, 1, false}, {3, 3, 2, false}, {4, 4, 2, true}}, Releasing: []uint16{9}}
	s.Withdraw(func(d Delivery) bool { return d.Position != 3 })
	want := State{Sent: 4, Open: []Delivery{{3, 3, 2, false}}, Releasing: []uint16{9, 1, 4}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("state\n got %+v\nwant %+v", s, want)
	}
}

// One receiver leaves its first message open and acknowledges 66,000 others.
func TestWindowPassesOverOpenIDs(t *testing.T) {
	w := NewWindow(10, State{})
	first := w.Send(1, 1)
	for p := Position(2); p <= 66_001; p++ {
		id := w.Send(p, 1)
		if id == first || id == 0 {
			t.Fatalf("position %d got id %d while it was open", p, id)
		}
		w.Ack(id)
	}
	if got := w.Open(); !slices.Equal(got, []Delivery{{1, first, 1, false}}) {
		t.Fatalf("open: %v", got)
	}
	if got := w.State().LastID; got != 66_001-MaxPacketID+1 {
		t.Errorf("last id %d: ids were left out that nothing had", got)
	}

	// Once free, the id comes back, with the turn after the next at the latest.
	w.Ack(first)
	for p := Position(70_000); w.Send(p, 1) != first; p++ {
		w.Ack(w.State().LastID)
		if p > 70_000+2*MaxPacketID {
			t.Fatal("the id was free for two turns and did not come back")
		}
	}
}

func TestWindowSizes(t *testing.T) {
	for size, want := range map[int]int{-1: 1, 0: 1, 1: 1, 20: 20, mostRoom: mostRoom, MaxWindow: mostRoom, 1 << 20: mostRoom} {
		if got := NewWindow(size, State{}).Room(); got != want {
			t.Errorf("size %d has room for %d, want %d", size, got, want)
		}
	}
}

// The largest window stays full for several turns.
func TestWindowLargest(t *testing.T) {
	w := NewWindow(MaxWindow, State{LastID: 40_000})
	open := map[uint16]bool{}
	for p := Position(1); p <= 300_000; p++ {
		if w.Room() == 0 {
			d := w.Open()[0]
			w.Ack(d.PacketID)
			delete(open, d.PacketID)
		}
		id := w.Send(p, 1)
		if open[id] || id == 0 {
			t.Fatalf("position %d got id %d while it was open", p, id)
		}
		open[id] = true
	}
	if w.Len() != mostRoom {
		t.Errorf("%d open, want %d", w.Len(), mostRoom)
	}
}

// A state with every id open is not a window's, but it must not hang one.
func TestWindowOfAllIDs(t *testing.T) {
	s := State{Sent: MaxWindow, LastID: 40_000}
	for id := range MaxPacketID {
		s.Open = append(s.Open, Delivery{Position: Position(id + 1), PacketID: uint16(id + 1)})
	}
	w := NewWindow(10, s)
	w.Skip(70_000)
	w.Ack(77)
	w.Skip(70_001)
	if s := w.State(); s.Sent != 70_001 || s.LastID != 77 {
		t.Errorf("sent %d and last id %d, want 70001 and the only free id 77", s.Sent, s.LastID)
	}
}

// Ids above the bound, which states of earlier versions have, stay open and are
// not given again.
func TestWindowOfIDsAboveItsOwn(t *testing.T) {
	for _, last := range []uint16{1, halfTurn, 32_767, MaxPacketID, MaxPacketID + 1, 65_534, 65_535} {
		s := State{Sent: 10, LastID: last, Resting: []uint16{65_535, MaxPacketID + 1, 7, 30_000}}
		for i, id := range []uint16{65_535, 7, MaxPacketID + 1, 30_000, MaxPacketID, halfTurn} {
			s.Open = append(s.Open, Delivery{Position: Position(i + 1), PacketID: id})
		}
		w := NewWindow(20, s)
		given := map[uint16]int{}
		for p := Position(11); p < 11+3*MaxPacketID; p++ {
			id := w.Send(p, 1)
			given[id]++
			w.Ack(id)
		}
		for _, d := range s.Open {
			if given[d.PacketID] > 0 {
				t.Errorf("from last id %d: id %d was given while it was open", last, d.PacketID)
			}
		}
		if given[0] > 0 || len(given) != MaxPacketID-4 {
			t.Errorf("from last id %d: %d different ids were given, want %d", last, len(given), MaxPacketID-4)
		}
		for _, d := range s.Open {
			if got, ok := w.Ack(d.PacketID); !ok || got != d {
				t.Errorf("ack %d: %v, %v", d.PacketID, got, ok)
			}
		}
	}
}

func TestWindowOfMoreThanItsSize(t *testing.T) {
	open := []Delivery{{5, 65_534, 2, true}, {6, 65_535, 1, false}, {9, 1, 1, false}, {10, 2, 2, false}}
	w := NewWindow(2, State{Sent: 12, LastID: 3, Open: open})
	if w.Room() != 0 || w.Len() != 4 || !slices.Equal(w.Open(), open) {
		t.Fatalf("room %d, open %v", w.Room(), w.Open())
	}
	for i, id := range []uint16{65_534, 2} {
		w.Ack(id)
		if w.Room() != 0 {
			t.Errorf("room %d with %d open of 2", w.Room(), 3-i)
		}
	}
	w.Ack(1)
	if w.Room() != 1 {
		t.Errorf("room %d with 1 open of 2", w.Room())
	}
	if id := w.Send(13, 1); id != 4 {
		t.Errorf("id %d after last id 3", id)
	}
	if open[0] != (Delivery{5, 65_534, 2, true}) || open[3] != (Delivery{10, 2, 2, false}) {
		t.Errorf("the window wrote to the state it was made of: %v", open)
	}
}

func TestWindowStateIsACopy(t *testing.T) {
	w := NewWindow(3, State{})
	sendAll(w, 1, 3)
	s := w.State()
	w.Ack(1)
	w.Release(2)
	w.Send(4, 1)
	want := State{Sent: 3, LastID: 3, Open: []Delivery{{1, 1, 1, false}, {2, 2, 1, false}, {3, 3, 1, false}}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("state changed to %+v", s)
	}
}

// windowModel is a window as a map of open ids. It knows which ids may be given,
// not which one is.
type windowModel struct {
	size  int
	sent  Position
	open  map[uint16]Delivery
	held  map[uint16]bool // releasing
	freed map[uint16]int  // how many ids had come up when it was finished
	last  uint16
	up    int // how many ids have come up
}

// took checks the id that the window gave after the last one.
func (m *windowModel) took(t *testing.T, id uint16) {
	t.Helper()
	if _, open := m.open[id]; open || m.held[id] || id == 0 {
		t.Fatalf("id %d was given while it was taken", id)
	}
	for m.last != id {
		if m.last++; m.last > MaxPacketID {
			m.last = 1
		}
		m.up++
		_, open := m.open[m.last]
		if freed, ok := m.freed[m.last]; m.last != id && !open && !m.held[m.last] && (!ok || m.up-freed > MaxPacketID) {
			t.Fatalf("id %d was passed over although it was free for a turn", m.last)
		}
	}
}

func (m *windowModel) finish(id uint16) {
	delete(m.open, id)
	delete(m.held, id)
	m.freed[id] = m.up
}

func (m *windowModel) check(t *testing.T, w *Window) {
	t.Helper()
	var open []Delivery
	for _, d := range m.open {
		open = append(open, d)
	}
	slices.SortFunc(open, func(a, b Delivery) int { return int(a.Position) - int(b.Position) })
	room := m.size - len(open) - len(m.held)
	if !slices.Equal(w.Open(), open) || w.Room() != max(room, 0) {
		t.Fatalf("room %d, open %v\nwant room %d, open %v", w.Room(), w.Open(), room, open)
	}
	if held := slices.Sorted(maps.Keys(m.held)); !slices.Equal(slices.Sorted(slices.Values(w.Releasing())), held) {
		t.Fatalf("releasing %v, want %v", w.Releasing(), held)
	}
	if s := w.State(); s.Sent != m.sent || s.LastID != m.last {
		t.Fatalf("state %+v, want sent %d and last id %d", s, m.sent, m.last)
	}
}

func TestWindowRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{1, 2, 7, 100, 3000} {
		w := NewWindow(size, State{})
		m := windowModel{size: size, open: map[uint16]Delivery{}, held: map[uint16]bool{}, freed: map[uint16]int{}}
		for step := range 200_000 {
			some := func() Delivery { // an open one: often the first, the last, or stuck near the start
				open := w.Open()
				return open[min(len(open)-1, []int{0, 1, 2, len(open) - 1, r.IntN(len(open))}[r.IntN(5)])]
			}
			switch op := r.IntN(100); {
			case op < 45 && w.Room() > 0:
				m.sent += Position(1 + r.IntN(3))
				qos := byte(1 + r.IntN(2))
				id := w.Send(m.sent, qos)
				m.took(t, id)
				m.open[id] = Delivery{Position: m.sent, PacketID: id, QoS: qos}
			case op < 50:
				m.sent += Position(1 + r.IntN(3))
				w.Skip(m.sent)
				m.took(t, w.State().LastID)
			case op < 90 && len(w.Open()) > 0:
				want := some()
				if d, ok := w.Ack(want.PacketID); !ok || d != want {
					t.Fatalf("ack %v: %v, %v", want, d, ok)
				}
				m.finish(want.PacketID)
			case op < 92:
				id := uint16(r.IntN(1 << 16))
				if held := w.Releasing(); len(held) > 0 && r.IntN(4) > 0 {
					id = held[r.IntN(len(held))]
				}
				_, want := m.open[id]
				want = want || m.held[id]
				if _, ok := w.Ack(id); ok != want {
					t.Fatalf("ack %d known: %v, want %v", id, ok, want)
				}
				if want {
					m.finish(id)
				}
			case op < 95 && len(w.Open()) > 0:
				if d := some(); d.QoS == 2 {
					w.Release(d.PacketID)
					d.Released = true
					m.open[d.PacketID] = d
				}
			case op < 96 && len(w.Open()) > 0:
				d := some()
				if got, ok := w.Withdraw(d.Position); !ok || got != d {
					t.Fatalf("withdraw %v: %v, %v", d, got, ok)
				}
				m.finish(d.PacketID)
				if d.QoS == 2 {
					delete(m.freed, d.PacketID)
					m.held[d.PacketID] = true
				}
			case op < 97 && len(w.Open()) > 0:
				d := some()
				if w.Drop(d.Position+1<<40) || !w.Drop(d.Position) {
					t.Fatalf("drop %v", d)
				}
				m.finish(d.PacketID)
			case op < 98:
				m.size = 1 + r.IntN(2*size)
				w = NewWindow(m.size, w.State())
			}
			if step%64 == 0 {
				m.check(t, w)
			}
		}
	}
}

// After a crash a window begins with an older state, and the same entries get
// the same ids, though acknowledgements were forgotten, and entries that had
// been sent are expired now.
func TestWindowGivesTheSameIDsAgain(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))

	type saved struct {
		State
		next int // the first entry after it
	}
	for range 30 {
		// A window close to the end of a half turn, with old deliveries open
		// whose ids come up soon, or a half turn later.
		start := State{Sent: 100, LastID: []uint16{halfTurn - 1, MaxPacketID}[r.IntN(2)] - uint16(r.IntN(40))}
		taken := map[uint16]bool{0: true}
		for i := range r.IntN(60) {
			id := (int(start.LastID) + []int{1, halfTurn - 8}[r.IntN(2)] + r.IntN(200)) % (MaxPacketID + 1)
			if id := uint16(id); !taken[id] {
				taken[id] = true
				if d := (Delivery{Position: Position(i + 1), PacketID: id}); r.IntN(4) > 0 {
					start.Open = append(start.Open, d)
				} else {
					start.Releasing = append(start.Releasing, id)
				}
			}
		}
		w, p := NewWindow(MaxWindow, start), start.Sent
		patience := []int{30, 1000}[r.IntN(2)]
		var ids []uint16 // by entry; entries are at all positions from 101 on
		var states []saved
		for range []int{300, halfTurn + 2000}[r.IntN(2)] {
			if r.IntN(20) == 0 {
				states = append(states, saved{w.State(), len(ids)})
			}
			p++
			if r.IntN(20) == 0 {
				w.Skip(p)
			} else {
				w.Send(p, 1)
			}
			ids = append(ids, w.lastID)
			for n := len(w.Open()); n > 20 && r.IntN(20) > 0 || n > 0 && r.IntN(2) == 0; n = len(w.Open()) {
				w.Ack(w.Open()[n-1-r.IntN(min(n, 8))].PacketID)
			}
			if len(w.Open()) > 0 && r.IntN(patience) == 0 {
				if old := w.Open()[0]; r.IntN(2) == 0 {
					w.Ack(old.PacketID)
				} else {
					w.Withdraw(old.Position) // its id stays taken
				}
			}
		}
		for range 10 {
			s := states[max(0, len(states)-1-r.IntN(100))] // within the last 8,190 entries
			// Through its stored form.
			state, err := ParseState(AppendState(nil, s.State))
			if err != nil {
				t.Fatal(err)
			}
			again := NewWindow(MaxWindow, state)
			for i := s.next; i < len(ids); i++ {
				if p := 101 + Position(i); r.IntN(20) == 0 {
					again.Skip(p)
				} else {
					again.Send(p, 1)
				}
				if got := again.lastID; got != ids[i] {
					t.Fatalf("from last id %d: entry %d got id %d, had %d before", s.LastID, i, got, ids[i])
				}
				if r.IntN(10) == 0 && len(again.Open()) > 0 {
					again.Ack(again.Open()[0].PacketID)
				}
			}
		}
	}
}

func TestWindowAllocatesNothing(t *testing.T) {
	for _, size := range []int{1, 20, 100} {
		w, p := NewWindow(size, State{}), Position(0)
		send := func() {
			if w.Room() == 0 {
				w.Ack(w.Open()[0].PacketID)
			}
			p++
			w.Send(p, 1)
		}
		for range 4 * size {
			send()
		}
		if n := testing.AllocsPerRun(1000, send); n != 0 {
			t.Errorf("size %d: %v allocations", size, n)
		}
	}
}

func BenchmarkWindow(b *testing.B) {
	for _, size := range []int{1, 100, mostRoom} {
		b.Run(fmt.Sprintf("in order/size=%d", size), func(b *testing.B) {
			w, p := NewWindow(size, State{}), Position(0)
			b.ReportAllocs()
			for b.Loop() {
				if w.Room() == 0 {
					w.Ack(w.Open()[0].PacketID)
				}
				p++
				w.Send(p, 1)
			}
		})
	}
	for _, size := range []int{100, mostRoom} {
		b.Run(fmt.Sprintf("last first/size=%d", size), func(b *testing.B) {
			w := NewWindow(size, State{})
			sendAll(w, 1, size)
			p := Position(size)
			b.ReportAllocs()
			for b.Loop() {
				w.Ack(w.Open()[w.Len()-1].PacketID)
				p++
				w.Send(p, 1)
			}
		})
	}
}
