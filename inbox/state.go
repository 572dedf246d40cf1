package inbox

import "slices"

// State is how far the delivery of one inbox has come. It is all that a
// receiver costs beside its entries: an entry up to Sent that is not Open is
// finished, whatever the order in which entries were acknowledged.
type State struct {
	Sent   Position   // every entry up to here has been handed out
	LastID uint16     // the packet id given last, 0 if none was
	Open   []Delivery // handed out and not finished, ascending by position

	// Releasing are packet ids of QoS 2 whose messages are not to be sent any more, and
	// that the receiver may hold: PUBREL is due, PUBCOMP is awaited. Usually none.
	Releasing []uint16

	// Resting are packet ids that are passed over though they may be free, so
	// that after a crash the same entries get the same ids. Usually none.
	Resting []uint16
}

// Delivery is one message on its way to its receiver.
type Delivery struct {
	Position Position
	PacketID uint16
	QoS      byte // 1 or 2; 0 if it is not known: the state was stored by an earlier version
	Released bool // QoS 2: received by the receiver, PUBREL is due, PUBCOMP is awaited
}

// MayBeHeld reports whether the receiver may take a later message with this packet
// id for a repeat, until it gets PUBREL [MQTT-4.3.3-10]. PUBACK leaves nothing behind.
func (d Delivery) MayBeHeld() bool { return d.QoS != 1 }

// Withdraw finishes the open deliveries that are meant, whose messages are not to be
// sent any more. What of their packet ids the receiver may hold is releasing. It
// writes to what s has, and costs O(n).
func (s *State) Withdraw(meant func(Delivery) bool) {
	s.Open = slices.DeleteFunc(s.Open, func(d Delivery) bool {
		gone := meant(d)
		if gone && d.MayBeHeld() {
			s.Releasing = append(s.Releasing, d.PacketID)
		}
		return gone
	})
}

// Clone returns a copy that shares nothing with s.
func (s State) Clone() State {
	s.Open = append([]Delivery(nil), s.Open...)
	s.Releasing = append([]uint16(nil), s.Releasing...)
	s.Resting = append([]uint16(nil), s.Resting...)
	return s
}
