package killtest

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// delivered is a message that was delivered.
type delivered struct {
	packetID uint16
	id       string
}

// listen takes what is delivered for a time.
func (x *puller) listen(d time.Duration) error {
	for until := time.Now().Add(d); time.Now().Before(until); {
		pk, err := x.conn.ReadWithin(time.Until(until))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err == nil {
			err = x.take(pk)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take takes a delivery, and acknowledges it, or leaves it to be pulled, or acknowledges
// an earlier one.
func (x *puller) take(pk packets.Packet) error {
	switch pk.FixedHeader.Type {
	case packets.Publish:
		if !x.receive(pk) {
			return nil
		}
	case packets.Pubrel:
		return x.release(pk.PacketID)
	default:
		return x.run.unasked(x.id, x.conn, pk)
	}
	return x.confirm(false)
}

// confirm acknowledges what was delivered: all of it, or as much as is drawn.
func (x *puller) confirm(all bool) error {
	kind := byte(packets.Puback)
	if x.run.QoS == 2 {
		kind = packets.Pubrec
	}
	for len(x.open) > 0 && (all || x.drawn.IntN(4) > 0) {
		d := x.open[0]
		x.open = x.open[1:]
		ack := packets.Packet{FixedHeader: packets.FixedHeader{Type: kind}, PacketID: d.packetID}
		if err := x.conn.Write(ack); err != nil {
			return err
		}
		if kind == packets.Puback {
			x.run.ledger.ConfirmedID(x.id, d.id, time.Now())
		}
	}
	return nil
}

// receive accounts for a delivery, unless it was seen before, and reports whether it is as
// it should be.
func (x *puller) receive(pk packets.Packet) bool {
	m, err := parse(pk.Payload)
	i := slices.IndexFunc(pk.Properties.User, func(p packets.UserProperty) bool { return p.Key == "inbox-id" })
	if err != nil || i < 0 || pk.FixedHeader.Qos != x.run.QoS {
		x.run.ledger.Violate("%s: got %s: %v", x.id, mqtttest.Describe(pk), err)
		return false
	}
	id := pk.Properties.User[i].Val
	known, seen := x.unfinished[pk.PacketID]
	switch {
	case seen && known != id:
		x.run.ledger.Violate("%s: packet id %d of %s was given to %s", x.id, pk.PacketID, known, id)
	case !seen:
		x.run.ledger.Delivered(x.id, id, m)
	}
	if x.run.QoS == 2 {
		x.unfinished[pk.PacketID] = id
	}
	x.open = append(x.open, delivered{pk.PacketID, id})
	return true
}

// release completes a QoS 2 message, which may have been acknowledged by a request before
// PUBREC was sent.
func (x *puller) release(packetID uint16) error {
	id, ok := x.unfinished[packetID]
	delete(x.unfinished, packetID)
	x.open = slices.DeleteFunc(x.open, func(d delivered) bool { return d.packetID == packetID })
	complete := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubcomp}, PacketID: packetID}
	if err := x.conn.Write(complete); err != nil {
		return err
	}
	if ok {
		x.run.ledger.ConfirmedID(x.id, id, time.Now())
	}
	return nil
}
