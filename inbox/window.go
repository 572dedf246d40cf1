package inbox

import (
	"slices"
	"sort"
)

// MaxWindow is the largest size of a [Window]: the range of MQTT packet ids.
const MaxWindow = 65535

// Window is what one receiver has been sent and has not finished. It gives out
// packet ids, takes acknowledgements in any order, and is the [State] that is
// stored. It is plain data: the owner guards it.
//
// Packet ids go round from 1 to 65,535 and skip those that are open. After a
// crash the ids of what is recorded as open are the recorded ones; what was sent later
// gets the ids it had before, because the same entries follow in the same order.
//
// Cost: every method is O(1) for acknowledgements in order of sending, and
// O(size) otherwise.
type Window struct {
	size   int
	sent   Position
	lastID uint16
	open   []Delivery
	old    int // the first so many of open got their ids before the last time round
}

// NewWindow returns a window that continues from s, with room for size
// deliveries (1 to [MaxWindow]). It holds more if more were open in s.
func NewWindow(size int, s State) *Window {
	return &Window{
		size:   min(max(size, 1), MaxWindow),
		sent:   s.Sent,
		lastID: s.LastID,
		open:   append(make([]Delivery, 0, len(s.Open)), s.Open...),
		old:    len(s.Open),
	}
}

// Room returns how many more deliveries may be sent now, 0 or more.
func (w *Window) Room() int { return max(w.size-len(w.open), 0) }

// Len returns the number of open deliveries.
func (w *Window) Len() int { return len(w.open) }

// Open returns the open deliveries, ascending by position. The slice is valid
// until the next call of another method and must not be changed.
func (w *Window) Open() []Delivery { return w.open }

// Send records that the entry at p is about to be sent and returns its packet
// id. Positions must ascend, and [Window.Room] must not be 0.
func (w *Window) Send(p Position) uint16 {
	w.sent = p
	w.lastID = w.nextID()
	w.open = append(w.open, Delivery{Position: p, PacketID: w.lastID})
	return w.lastID
}

// Skip records that the entry at p needs no delivery: it is expired, too large
// for the receiver, or goes out at QoS 0. Positions must ascend.
func (w *Window) Skip(p Position) { w.sent = p }

// Ack finishes the delivery with this packet id (PUBACK, PUBCOMP, or a reason
// code that ends it) and reports whether there was one.
func (w *Window) Ack(id uint16) (Delivery, bool) {
	i, ok := w.find(id)
	if !ok {
		return Delivery{}, false
	}
	d := w.open[i]
	w.remove(i)
	return d, true
}

// Release notes that the receiver has the QoS 2 message with this packet id
// (PUBREC) and reports whether the id is open.
func (w *Window) Release(id uint16) bool {
	i, ok := w.find(id)
	if ok {
		w.open[i].Released = true
	}
	return ok
}

// Drop finishes the delivery at p without an acknowledgement: the entry is gone
// or must not be sent any more. It reports whether it was open.
func (w *Window) Drop(p Position) bool {
	i := sort.Search(len(w.open), func(i int) bool { return w.open[i].Position >= p })
	if i == len(w.open) || w.open[i].Position != p {
		return false
	}
	w.remove(i)
	return true
}

// State returns a copy of the state to be stored.
func (w *Window) State() State {
	return State{Sent: w.sent, LastID: w.lastID, Open: append([]Delivery(nil), w.open...)}
}

// nextID returns the id after the last one, without those that are open. Only
// ids from before the last time round can be met again.
func (w *Window) nextID() uint16 {
	id := w.lastID
	for {
		id++
		if id == 0 { // past 65,535; 0 is not a packet id [MQTT-2.2.1-3]
			id = 1
			w.old = len(w.open)
		}
		if !slices.ContainsFunc(w.open[:w.old], func(d Delivery) bool { return d.PacketID == id }) {
			return id
		}
	}
}

func (w *Window) find(id uint16) (int, bool) {
	for i := range w.open {
		if w.open[i].PacketID == id {
			return i, true
		}
	}
	return 0, false
}

// remove keeps the backing array: taking the first, the usual case, moves only
// the start of the slice, and append reuses the array once its end is reached.
func (w *Window) remove(i int) {
	if i < w.old {
		w.old--
	}
	if i == 0 {
		w.open = w.open[1:]
		return
	}
	w.open = append(w.open[:i], w.open[i+1:]...)
}
