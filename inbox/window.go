package inbox

import (
	"cmp"
	"slices"
)

// MaxWindow is the largest size that may be asked of a [Window]: the range of
// MQTT packet ids, and so of Receive Maximum. A window that large sends 16,384
// at a time, so that most ids are free.
const MaxWindow = 65535

// MaxPacketID is the largest packet id that a [Window] gives out. Those above it
// are for messages that a client is sent from elsewhere than its own inbox.
const MaxPacketID = 3<<14 - 1

const (
	mostRoom = 1 << 14
	halfTurn = (MaxPacketID + 1) / 2 // the first packet id of the second half of a turn
)

// Window is what one receiver has been sent and has not finished. It gives out
// packet ids, takes acknowledgements in any order, and is the [State] that is
// stored. It is plain data: the owner guards it.
//
// Packet ids go round from 1 to 49,151 and pass over those that are open or
// releasing. After a crash the ids of what is recorded as open are the recorded
// ones, and what was sent later gets the ids that it had, so that a receiver of
// QoS 2 knows it again [MQTT-4.3.3-2]: the same entries follow in the same order,
// and which ids are passed over was decided a half turn before they come up. For
// that the state must have been stored less than 8,190 entries before the crash.
//
// Cost: O(1) for deliveries acknowledged in the order of sending, else O(size).
// Each half turn takes O(size log size) once.
type Window struct {
	size   int
	sent   Position
	lastID uint16
	all    []Delivery // from done on they are open
	done   int

	releasing []uint16 // see State

	// resting are the ids to be passed over in the rest of this half turn and
	// in the next one, in the order in which they come up. They were open or
	// releasing when the half turn before theirs began, and rest even if they are
	// free by now.
	resting []uint16
}

// NewWindow returns a window that continues from s, with room for size
// deliveries (1 to [MaxWindow], of which 16,384 count). It holds more if more
// were open in s.
func NewWindow(size int, s State) *Window {
	w := &Window{
		size:   min(max(size, 1), mostRoom),
		sent:   s.Sent,
		lastID: s.LastID,
		all:    slices.Clone(s.Open),

		releasing: slices.Clone(s.Releasing),
	}
	// A state of a window has everything in Resting that matters; one that was
	// made by hand is safe too.
	w.resting = slices.Concat(s.Resting, s.Releasing)
	for _, d := range s.Open {
		w.resting = append(w.resting, d.PacketID)
	}
	w.resting = slices.DeleteFunc(w.resting, func(id uint16) bool { return !w.ahead(id) })
	slices.SortFunc(w.resting, func(a, b uint16) int { return cmp.Compare(a-w.lastID, b-w.lastID) })
	w.resting = slices.Compact(w.resting)
	return w
}

// Room returns how many more deliveries may be sent now, 0 or more.
func (w *Window) Room() int { return max(w.size-w.Len(), 0) }

// Len returns the number of deliveries that are open or releasing.
func (w *Window) Len() int { return len(w.Open()) + len(w.releasing) }

// Open returns the open deliveries, ascending by position. The slice is valid
// until the next call of another method and must not be changed.
func (w *Window) Open() []Delivery { return w.all[w.done:] }

// Releasing returns the packet ids that are releasing. The slice is valid until the
// next call of another method and must not be changed.
func (w *Window) Releasing() []uint16 { return w.releasing }

// Send records that the entry at p is about to be sent at QoS 1 or 2 and returns its
// packet id. Positions must ascend, and [Window.Room] must not be 0.
func (w *Window) Send(p Position, qos byte) uint16 {
	w.sent = p
	w.lastID = w.nextID()
	if len(w.all) == cap(w.all) && w.done >= len(w.Open()) {
		w.all = w.all[:copy(w.all, w.Open())] // half or more is done: no need to grow
		w.done = 0
	}
	w.all = append(w.all, Delivery{Position: p, PacketID: w.lastID, QoS: qos})
	return w.lastID
}

// Skip records that the entry at p needs no delivery: it is expired, too large
// for the receiver, or goes out at QoS 0. Positions must ascend.
//
// It uses up a packet id. Before a crash the entry may have been sent, and what
// follows it must get the ids that it had then.
func (w *Window) Skip(p Position) {
	w.sent = p
	if w.Len() < MaxPacketID {
		w.lastID = w.nextID()
	}
}

// Ack finishes the delivery with this packet id (PUBACK, PUBCOMP, or a reason
// code that ends it) and reports whether there was one. One that was releasing has no
// position.
func (w *Window) Ack(id uint16) (Delivery, bool) {
	if i := w.find(id); i >= 0 {
		d := w.Open()[i]
		w.remove(i)
		return d, true
	}
	if i := slices.Index(w.releasing, id); i >= 0 {
		w.releasing = slices.Delete(w.releasing, i, i+1)
		return Delivery{PacketID: id, QoS: 2, Released: true}, true
	}
	return Delivery{}, false
}

// Release notes that the receiver has the QoS 2 message with this packet id
// (PUBREC) and reports whether the id is open or releasing.
func (w *Window) Release(id uint16) bool {
	i := w.find(id)
	if i < 0 {
		return slices.Contains(w.releasing, id)
	}
	w.Open()[i].Released = true
	return true
}

// Drop finishes the delivery at p, of which nothing was sent. It reports whether it was
// open.
func (w *Window) Drop(p Position) bool {
	_, ok := w.take(p)
	return ok
}

// Withdraw finishes the delivery at p without an acknowledgement: its message is gone,
// or must not be sent any more. If the receiver may hold the packet id, that is
// releasing, until Ack. It returns the delivery, and whether it was open.
func (w *Window) Withdraw(p Position) (d Delivery, ok bool) {
	d, ok = w.take(p)
	if ok && d.MayBeHeld() {
		w.releasing = append(w.releasing, d.PacketID)
	}
	return d, ok
}

// take takes out the open delivery at p.
func (w *Window) take(p Position) (d Delivery, ok bool) {
	i, ok := slices.BinarySearchFunc(w.Open(), p, func(d Delivery, p Position) int { return cmp.Compare(d.Position, p) })
	if ok {
		d = w.Open()[i]
		w.remove(i)
	}
	return d, ok
}

// State returns a copy of the state to be stored.
func (w *Window) State() State {
	s := State{Sent: w.sent, LastID: w.lastID, Open: w.Open(), Releasing: w.releasing, Resting: w.resting}
	return s.Clone()
}

// nextID returns the id after the last one, without those that rest. They
// include all that are open or releasing. One id at least must not be; it is found within
// two turns, however many rest.
func (w *Window) nextID() uint16 {
	id := w.lastID
	for {
		id++
		if id == 0 || id > MaxPacketID {
			id = 1 // 0 is not a packet id [MQTT-2.2.1-3]
		}
		if id == 1 || id == halfTurn {
			w.rest(id == 1)
		}
		if len(w.resting) == 0 || w.resting[0] != id {
			return id
		}
		w.resting = w.resting[1:]
	}
}

// rest lets the ids rest that are taken in the next half turn: the second if
// the first begins now.
func (w *Window) rest(second bool) {
	decided := len(w.resting)
	add := func(id uint16) {
		if second == (id >= halfTurn) && id <= MaxPacketID {
			w.resting = append(w.resting, id)
		}
	}
	for _, d := range w.Open() {
		add(d.PacketID)
	}
	for _, id := range w.releasing {
		add(id)
	}
	slices.Sort(w.resting[decided:])
}

// ahead reports whether id comes up in the rest of this half turn or the next.
func (w *Window) ahead(id uint16) bool {
	return id <= MaxPacketID && (id > w.lastID || w.lastID >= halfTurn && id < halfTurn)
}

func (w *Window) find(id uint16) int {
	return slices.IndexFunc(w.Open(), func(d Delivery) bool { return d.PacketID == id })
}

// remove takes out the open delivery i. The first, the usual case, stays where
// it is and is left behind.
func (w *Window) remove(i int) {
	if i == 0 {
		w.done++
		return
	}
	w.all = slices.Delete(w.all, w.done+i, w.done+i+1)
}
