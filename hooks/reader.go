package hooks

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// deadlineSlack is how much later than asked for a read deadline may fall, so
// that it need not be set anew for each packet.
const deadlineSlack = 250 * time.Millisecond

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
	n, err := l.in.Read(p[:min(len(p), l.in.pass)])
	l.in.pass -= n
	return n, err
}

// nextFrame looks at the next frame, and refuses it, takes it or lets it pass.
func (l *link) nextFrame() error {
	if l.in.connected && l.session == nil {
		return net.ErrClosed // the client was refused
	}
	if l.in.buf.Buffered() == 0 && l.in.acked {
		l.in.acked = false
		l.session.save()
	}
	if err := l.arm(); err != nil {
		return err
	}

	waits, began := l.in.buf.Buffered() == 0, time.Now()
	header, frame, err := l.in.peekHeader()
	if waits && err == nil && header[0]>>4 == packets.Publish {
		giveWay()
	}
	for errors.Is(err, os.ErrDeadlineExceeded) && l.looksAgain(began) {
		began = time.Now()
		header, frame, err = l.in.peekHeader()
	}
	if err != nil {
		return l.fail(err)
	}
	if l.in.maxPacket > 0 && frame > l.in.maxPacket { // [MQTT-3.2.2-15]
		return l.fail(packets.ErrPacketTooLarge)
	}

	b, err := l.in.look(len(header), frame, l.v5)
	if err != nil {
		return err
	}
	if !l.in.connected {
		if l.in.seen, err = inspectConnect(b, len(header)); err != nil {
			return l.refuseConnect(b, len(header), err)
		}
		l.bridge = clearBridge(b, len(header))
		l.in.connected, l.in.old = true, oldConnect(b, len(header))
		l.in.pass = frame
		return nil
	}
	if l.in.old {
		oldFlags(b)
	}
	if l.in.seen, err = inspect(b, len(header), frame, l.v5); err != nil {
		return l.fail(err)
	}
	switch b[0] >> 4 {
	case packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp:
		return l.takeAck(b, len(header))
	case packets.Disconnect:
		return l.passDisconnect(b, len(header))
	}
	l.in.pass = frame
	return nil
}

// giveWay lets the connections run first whose packets came before the one that
// has ended the wait. Of goroutines that wake up together Go runs the last one
// first, so without this a PUBLISH often overtakes the SUBSCRIBE that another
// connection sent just before it. It is no promise: that is SUBACK. Cost: about
// 0.2 µs, for a PUBLISH that was waited for and none that came behind it.
func giveWay() { runtime.Gosched() }

// takeAck takes an acknowledgement of the client, a whole frame that is well
// formed, and acts on it.
func (l *link) takeAck(b []byte, header int) error {
	ack, frame := decodeAck(b, header), len(b)
	if err := l.in.skip(frame); err != nil {
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

// passDisconnect lets a DISCONNECT pass, a whole frame that is well formed, in
// words that the MQTT library understands: to it every reason but 0x04 takes the
// will away, where only 0 does [MQTT-3.14.4-3], and a reason without properties is
// none.
func (l *link) passDisconnect(b []byte, header int) error {
	frame := len(b)
	if reason := b[header:]; len(reason) > 0 && reason[0] != packets.CodeDisconnect.Code {
		reason[0] = packets.CodeDisconnectWillMessage.Code
		if len(reason) == 1 {
			if err := l.in.skip(frame); err != nil {
				return err
			}
			l.in.ahead = appendDisconnect(nil, packets.CodeDisconnectWillMessage.Code)
			frame = len(l.in.ahead)
		}
	}
	l.in.pass = frame
	return nil
}

// ack is one acknowledgement of the client.
type ack struct {
	kind byte
	id   uint16
	code byte
}

// decodeAck decodes a PUBACK, PUBREC, PUBREL or PUBCOMP frame that is well formed:
//
//	type and flags | remaining length | packet id | reason code | properties
//	                                    2           MQTT 5, each may be missing
func decodeAck(b []byte, header int) ack {
	a := ack{kind: b[0] >> 4, id: binary.BigEndian.Uint16(b[header:])}
	if len(b) > header+2 {
		a.code = b[header+2]
	}
	return a
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

// armLastLocked gives the reader of a connection that ends a moment for what has come
// already.
func (l *link) armLastLocked() error {
	l.looked = time.Now()
	due := l.looked.Add(lastWords)
	if due.After(l.until) {
		return net.ErrClosed
	}
	return l.conn.SetReadDeadline(due)
}

// looksAgain gives the moment anew if a read that began then did not use it: it had begun before,
// it hardly had any of it, or took twice as long as it may. A read looks once when it begins, and
// then waits to be told that something has come; on a busy machine it is told of its deadline first.
func (l *link) looksAgain(began time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := began.Before(l.looked) || began.Sub(l.looked) > lastWords/2 || time.Since(l.looked) > 2*lastWords
	return l.closed && late && l.armLastLocked() == nil
}

// fail ends the connection for what the client sent, or did not send in time. An
// MQTT 5 client is told the reason, if it is one that the protocol has.
func (l *link) fail(err error) error {
	var code packets.Code
	switch {
	case errors.As(err, &code):
		l.hook.log.Info("connection ended for what the client sent", "client", l.name(), "remote", l.RemoteAddr(), "reason", code.Reason)
		l.blamed.Store(true)
		l.end(code)
	case errors.Is(err, os.ErrDeadlineExceeded) && l.session != nil:
		l.end(packets.ErrKeepAliveTimeout) // if it is closed already, nothing is said
	}
	return err
}

// refuseConnect ends the connection for its first frame, and says why where the
// protocol has words for it.
func (l *link) refuseConnect(b []byte, header int, err error) error {
	if connack := connackRefusing(b, header, err); connack != nil {
		_, _ = l.out.write(connack) // takes it without waiting: it is the first packet
	}
	l.blamed.Store(true)
	l.Close()
	return err
}
