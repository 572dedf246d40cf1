package hooks

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// deadlineSlack is how much later than asked for a read deadline may fall, so
// that it need not be set anew for each packet.
const deadlineSlack = 250 * time.Millisecond

// inbound is the reading half of a link: it finds where frames begin and end.
type inbound struct {
	buf       *bufio.Reader
	pass      int           // bytes of the frame at hand that still go to the MQTT library
	connected bool          // the first frame, which is not ours to judge, has gone to the library
	idle      time.Duration // the most between two packets of the client; 0 for no limit
	armed     time.Time     // the deadline that is set
	maxPacket int           // bytes, 0 for no limit
	acked     bool          // acknowledgements have come that are not saved yet
}

// Read hands the client's frames to the MQTT library, except PUBACK, PUBREC,
// PUBREL and PUBCOMP, which it takes itself. It never returns bytes of two
// frames, so the library, which reads ahead, has worked off every frame by the
// time that one behind it is looked at.
//
// Runs on the connection's read goroutine. Cost per frame beside the copy: about
// 100 ns, no allocation.
func (l *link) Read(p []byte) (int, error) {
	for l.in.pass == 0 {
		if err := l.nextFrame(); err != nil {
			return 0, err
		}
	}
	n, err := l.in.buf.Read(p[:min(len(p), l.in.pass)])
	l.in.pass -= n
	return n, err
}

// nextFrame looks at the next frame, and takes it or lets it pass.
func (l *link) nextFrame() error {
	if l.in.buf.Buffered() == 0 && l.in.acked {
		l.in.acked = false
		l.session.save()
	}
	if err := l.arm(); err != nil {
		return err
	}

	header, frame, err := l.in.peekHeader()
	if errors.Is(err, os.ErrDeadlineExceeded) && l.hasLastLook() {
		header, frame, err = l.in.peekHeader()
	}
	if err != nil {
		return l.fail(err)
	}
	if l.in.maxPacket > 0 && frame > l.in.maxPacket { // [MQTT-3.2.2-15]
		return l.fail(packets.ErrPacketTooLarge)
	}

	switch kind := header[0] >> 4; {
	case !l.in.connected:
		l.in.connected = true
		l.in.pass = frame
		return nil
	case kind == packets.Puback, kind == packets.Pubrec, kind == packets.Pubrel, kind == packets.Pubcomp:
		return l.takeAck(len(header), frame)
	}
	l.in.pass = frame
	return nil
}

// peekHeader returns the fixed header of the next frame and the length of the
// whole frame. It waits for it.
func (in *inbound) peekHeader() (header []byte, frame int, err error) {
	remaining := 0
	for n := 2; n <= 5; n++ {
		header, err = in.buf.Peek(n)
		if err != nil {
			return nil, 0, err
		}
		last := header[n-1]
		remaining |= int(last&0x7F) << (7 * (n - 2))
		if last&0x80 == 0 {
			return header, n + remaining, nil
		}
	}
	return nil, 0, packets.ErrMalformedVariableByteInteger
}

// takeAck takes an acknowledgement of the client and acts on it.
func (l *link) takeAck(header, frame int) error {
	b, err := l.in.buf.Peek(min(frame, readBuffer))
	if err != nil {
		return err
	}
	ack, err := decodeAck(b, header, frame, l.v5)
	if err != nil {
		return l.fail(err)
	}
	if _, err := l.in.buf.Discard(frame); err != nil {
		return err
	}
	atomic.AddInt64(&l.hook.server.Info.PacketsReceived, 1)
	atomic.AddInt64(&l.hook.server.Info.BytesReceived, int64(frame))

	if err := l.session.take(ack); err != nil {
		return l.fail(err)
	}
	l.in.acked = true
	return nil
}

// ack is one acknowledgement of the client.
type ack struct {
	kind byte
	id   uint16
	code byte
}

// decodeAck decodes a PUBACK, PUBREC, PUBREL or PUBCOMP frame:
//
//	type and flags | remaining length | packet id | reason code | properties
//	                                    2           MQTT 5, each may be missing
//
// b may end before the frame does, within the properties.
func decodeAck(b []byte, header, frame int, v5 bool) (ack, error) {
	kind, flags := b[0]>>4, b[0]&0x0F
	if kind == packets.Pubrel && flags != 2 || kind != packets.Pubrel && flags != 0 {
		return ack{}, packets.ErrMalformedFlags // [MQTT-2.1.3-1]
	}
	remaining := frame - header
	if remaining < 2 || !v5 && remaining > 2 {
		return ack{}, packets.ErrMalformedPacketID
	}
	a := ack{kind: kind, id: binary.BigEndian.Uint16(b[header:])}
	if a.id == 0 {
		return ack{}, packets.ErrProtocolViolationNoPacketID // [MQTT-2.2.1-3]
	}
	if remaining >= 3 {
		a.code = b[header+2]
	}
	if remaining >= 4 {
		properties, n := binary.Uvarint(b[header+3 : min(len(b), header+7)])
		if n <= 0 || uint64(remaining) != 3+uint64(n)+properties {
			return ack{}, packets.ErrMalformedProperties
		}
	}
	return a, nil
}

// arm sets the read deadline for the next packet: one and a half times the
// client's keep alive from now [MQTT-3.1.2-22], and never more than the slack
// later. Every packet of the client counts, those that are taken here too, and
// none that are sent to it.
func (l *link) arm() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.armLastLocked()
	}
	var due time.Time
	if l.in.idle > 0 {
		due = time.Now().Add(l.in.idle)
		if late := l.in.armed.Sub(due); late >= 0 && late <= deadlineSlack {
			return nil
		}
		due = due.Add(deadlineSlack)
	}
	if due.Equal(l.in.armed) {
		return nil
	}
	l.in.armed = due
	return l.conn.SetReadDeadline(due)
}

// hasLastLook gives the reader that a closing connection has woken a moment for
// what has come already.
func (l *link) hasLastLook() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed && l.armLastLocked() == nil
}

func (l *link) armLastLocked() error {
	due := time.Now().Add(lastWords)
	if due.After(l.until) {
		return net.ErrClosed
	}
	return l.conn.SetReadDeadline(due)
}

// fail ends the connection for what the client sent. An MQTT 5 client is told
// the reason, if it is one that the protocol has.
func (l *link) fail(err error) error {
	var code packets.Code
	if errors.As(err, &code) {
		l.end(code)
	}
	return err
}
