package killtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// glance is how often a receiver that is drained looks whether it has all.
const glance = 50 * time.Millisecond

// visit is one link of a receiver.
type visit struct {
	*receiver
	conn  *conn
	leave time.Time // zero for never
	held  int       // messages received and not acknowledged on this link
	acks  []ack
}

// ack is an acknowledgement that is owed.
type ack struct {
	kind    byte
	id      uint16
	final   bool // message will then be finished
	message Message
}

// subscribe subscribes to every topic of the habit. A resumed session has the
// subscriptions already, and keeps them so.
func (v *visit) subscribe() error {
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: 1}
	for _, p := range v.publishers {
		pk.Filters = append(pk.Filters, packets.Subscription{Filter: topic(p), Qos: v.run.QoS, RetainHandling: 2})
	}
	if err := v.conn.Write(pk); err != nil {
		return err
	}
	for {
		pk, err := v.next(time.Now().Add(mqtttest.Deadline))
		if errors.Is(err, errLeft) {
			v.run.ledger.Violate("%s: no SUBACK in %s", v.id, mqtttest.Deadline)
		}
		if err != nil {
			return err
		}
		if pk.FixedHeader.Type == packets.Suback {
			return v.suback(pk)
		}
		if err := v.take(pk); err != nil {
			return err
		}
	}
}

// suback notes what was granted. A refusal ends the visit: the broker cannot
// store the subscription now.
func (v *visit) suback(pk packets.Packet) error {
	for i, code := range pk.ReasonCodes {
		if code >= 0x80 {
			return fmt.Errorf("subscription %d refused: %#x", i, code)
		}
		if code != v.run.QoS {
			v.run.ledger.Violate("%s: subscription %d granted %#x", v.id, i, code)
		}
		v.run.ledger.Subscribed(v.id, v.publishers[i])
	}
	if !v.confirmed {
		v.confirmed = true
		close(v.subscribed)
		v.run.trigger.passed(suback)
	}
	return nil
}

// next reads one packet until a time, and returns errLeft when it has come.
func (v *visit) next(until time.Time) (packets.Packet, error) {
	if until.IsZero() {
		return v.conn.Read()
	}
	pk, err := v.conn.ReadWithin(time.Until(until))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errLeft, err)
	}
	return pk, err
}

// receive takes what comes until the stay is over or the context ends.
func (v *visit) receive(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = v.conn.Close() }) // ends a read that waits
	defer stop()
	for v.leave.IsZero() || time.Now().Before(v.leave) {
		pk, err := v.next(v.leave)
		if err != nil {
			return err
		}
		if err := v.take(pk); err != nil {
			return err
		}
	}
	return errLeft
}

// receiveAll takes what comes until nothing is missing.
func (v *visit) receiveAll(ctx context.Context) error {
	for v.run.ledger.Lacks(v.id) {
		v.leave = time.Now().Add(glance)
		if err := v.receive(ctx); !errors.Is(err, errLeft) {
			return err
		}
	}
	return errLeft
}

// take deals with one packet, and answers when no more is here or the Receive
// Maximum is reached.
func (v *visit) take(pk packets.Packet) error {
	var err error
	switch pk.FixedHeader.Type {
	case packets.Publish:
		err = v.publish(pk)
	case packets.Pubrel:
		v.release(pk.PacketID)
	case packets.Puback, packets.Pubrec, packets.Pubcomp:
		err = v.echoes.answer(v.conn, pk)
	default:
		err = v.run.unasked(v.id, v.conn, pk)
	}
	if err != nil {
		return err
	}
	if v.conn.Pending() && (v.window == 0 || v.held < int(v.window)) {
		return nil
	}
	return v.answer()
}

// publish takes a message.
func (v *visit) publish(pk packets.Packet) error {
	m, err := parse(pk.Payload)
	if err != nil || pk.FixedHeader.Qos != v.run.QoS {
		v.run.ledger.Violate("%s: got %s: %v", v.id, mqtttest.Describe(pk), err)
		return nil
	}
	if v.held++; v.window > 0 && v.held > int(v.window) {
		v.run.ledger.Violate("%s: %d messages at once, Receive Maximum is %d", v.id, v.held, v.window) // [MQTT-3.3.4-9]
	}
	kind := packets.Puback
	if pk.FixedHeader.Qos == 2 {
		kind = packets.Pubrec
		if known, ok := v.unfinished[pk.PacketID]; ok {
			if known != m {
				v.run.ledger.Violate("%s: packet id %d of %s was given to %s", v.id, pk.PacketID, known, m)
			}
			v.acks = append(v.acks, ack{kind: kind, id: pk.PacketID})
			return nil // seen before: exactly once [MQTT-4.3.3-10]
		}
		v.unfinished[pk.PacketID] = m
	}
	v.run.ledger.Received(v.id, m)
	v.acks = append(v.acks, ack{kind: kind, id: pk.PacketID, final: kind == packets.Puback, message: m})
	if v.visits > 1 {
		v.run.trigger.passed(replay)
	}
	if v.echo && m.Publisher == 0 && !v.echoes.uses(pk.PacketID) {
		_, err = v.echoes.send(v.conn, pk.PacketID)
	}
	return err
}

// release forgets a QoS 2 message, so that its packet id may come again.
func (v *visit) release(id uint16) {
	m, ok := v.unfinished[id]
	delete(v.unfinished, id)
	v.acks = append(v.acks, ack{kind: packets.Pubcomp, id: id, final: ok, message: m})
}

// answer sends the acknowledgements that are owed.
func (v *visit) answer() error {
	if v.delay > 0 && len(v.acks) > 0 {
		pause(v.run.habits, v.delay)
	}
	for _, a := range v.acks {
		if a.kind != packets.Pubrec {
			v.held = max(v.held-1, 0) // a PUBREL may be of an earlier link
		}
		pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: a.kind}, PacketID: a.id}
		if err := v.conn.Buffer(pk); err != nil {
			return err
		}
	}
	if err := v.conn.Flush(); err != nil {
		return err
	}
	now := time.Now()
	for _, a := range v.acks {
		if a.final {
			v.run.ledger.Confirmed(v.id, a.message, now)
			v.run.trigger.passed(confirm)
		}
	}
	v.acks = v.acks[:0]
	return nil
}

// farewell sends what is owed and DISCONNECT, and waits until the broker has
// read both and closed the link.
func (v *visit) farewell() error {
	if err := v.answer(); err != nil {
		return err
	}
	if err := v.conn.Write(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect}}); err != nil {
		return err
	}
	for {
		if _, err := v.conn.ReadWithin(mqtttest.Deadline); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("wait for the end of the link: %w", err)
		}
	}
}
