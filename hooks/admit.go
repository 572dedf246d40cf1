package hooks

import (
	"math"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// admitted counts the messages that a client has published on one connection and that
// are not finished. One of QoS 2 that comes again counts once.
type admitted struct {
	storing  int                 // the store has not settled them
	unacked  int                 // no PUBACK, PUBCOMP or refusal is sent yet
	unending map[uint16]struct{} // packet ids of QoS 2 among those
}

// add counts a message that is answered with kind, and returns false if it is one more
// than may be unacknowledged.
func (a *admitted) add(kind byte, id uint16, maximum int) bool {
	_, again := a.unending[id]
	again = again && kind == packets.Pubrec
	if !again && a.unacked >= maximum {
		return false
	}
	if !again {
		a.unacked++
	}
	if kind == packets.Pubrec {
		if a.unending == nil {
			a.unending = map[uint16]struct{}{}
		}
		a.unending[id] = struct{}{}
	}
	a.storing++
	return true
}

// settle notes that the store has settled a message, and how it is answered: QoS 1 ends
// with that, and QoS 2 if the answer refuses it.
func (a *admitted) settle(kind byte, id uint16, code byte) {
	a.storing--
	switch {
	case kind == packets.Puback:
		a.unacked--
	case code >= packets.ErrUnspecifiedError.Code:
		a.complete(id)
	}
}

// complete notes the end of a QoS 2 message. It may be of an earlier connection, and
// then was never counted.
func (a *admitted) complete(id uint16) {
	if _, ok := a.unending[id]; ok {
		delete(a.unending, id)
		a.unacked--
	}
}

// admit counts a message that this client has published, to be answered with
// kind, and that now goes to the store. An MQTT 5 client knows how many may be on
// their way, and admit returns false if it does not keep to it [MQTT-3.3.4-7].
// Older clients are made to wait, as is everyone who does not read the
// acknowledgements. Runs on the connection's read goroutine.
func (o *outbound) admit(kind byte, id uint16, maximum int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && (len(o.buf) > o.limit || !o.v5 && o.admitted.storing >= maximum) {
		o.room.Wait()
	}
	if !o.v5 {
		maximum = math.MaxInt // it has waited instead
	}
	return o.admitted.add(kind, id, maximum)
}

// settle ends what admit began, with an acknowledgement; it tells the message's
// id unless that is zero. Runs on any goroutine and never waits.
func (o *outbound) settle(kind byte, id uint16, code byte, named inbox.MessageID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admitted.settle(kind, id, code)
	if named == (inbox.MessageID{}) {
		o.ackLocked(kind, id, code)
	} else {
		o.appendLocked(func(b []byte) []byte { return appendNamedAck(b, kind, id, code, named) })
	}
	o.room.Broadcast()
}

// complete appends the PUBCOMP that ends a QoS 2 message of this client. Runs on a
// goroutine of the store and never waits.
func (o *outbound) complete(id uint16, code byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admitted.complete(id)
	o.ackLocked(packets.Pubcomp, id, code)
}

// drain makes the client wait that sends what is to be answered and does not
// read the answers. Runs on the connection's read goroutine.
func (o *outbound) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && len(o.buf) > o.limit {
		o.room.Wait()
	}
}
