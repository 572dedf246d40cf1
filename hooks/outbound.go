package hooks

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/mochi-mqtt/server/v2/system"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// writeChunk is how much must reach the network within the write timeout.
const writeChunk = 64 << 10

// keptBuffer is the size above which a buffer is given back when all is quiet.
const keptBuffer = 16 << 10

// outbound is everything that waits to be written to one connection, whole
// frames in order. Goroutines that belong to the connection wait for room in
// it; all others append without waiting, or not at all. One goroutine, flush,
// writes what has gathered with one call.
//
// Until CONNACK has been appended nothing else is taken [MQTT-3.2.0-1].
type outbound struct {
	limit   int           // bytes above which writers wait
	timeout time.Duration // for each chunk
	info    *system.Info

	mu    sync.Mutex // guards everything below; held while encoding, never while writing
	room  sync.Cond  // for the connection's own goroutines: there may be room
	ready sync.Cond  // for flush: there is something to write, or an end
	buf   []byte

	aliases aliases

	v5     bool
	open   bool // an accepting CONNACK is in buf or beyond
	closed bool // nothing is taken any more; what is in buf is still written

	held  bool   // SUBACK is due: messages wait until it is in buf
	aside []byte // those of them whose writers do not wait

	// Messages of this client. A QoS 2 message that comes again counts once.
	storing  int                 // the store has not settled them
	unacked  int                 // no PUBACK, PUBCOMP or refusal is sent yet
	unending map[uint16]struct{} // packet ids of QoS 2 among those

	written []func() // called by flush when what is in buf is written, or cannot be
	flushed bool     // flush has ended

	relief  func() // called by flush when there is room again for what offerLater has refused
	refused bool   // there is something

	// What was appended beside the MQTT library, which counts its own packets.
	packets, messages, bytes int64
}

func newOutbound(limit int, timeout time.Duration, info *system.Info) *outbound {
	o := &outbound{limit: limit, timeout: timeout, info: info, unending: map[uint16]struct{}{}}
	o.room.L = &o.mu
	o.ready.L = &o.mu
	return o
}

// speak sets the protocol version, once it is known.
func (o *outbound) speak(v5 bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.v5 = v5
}

// alias allows topic aliases, at most so many, in packets at most so large.
func (o *outbound) alias(maximum uint16, maxPacket uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.aliases = aliases{maximum: min(int(maximum), maxAliases), maxPacket: int(maxPacket)}
}

// write takes a whole packet from the MQTT library, and waits for room. Packets
// that must not reach the client are dropped: all before CONNACK, and DISCONNECT
// before MQTT 5, where only clients send it.
func (o *outbound) write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kind := p[0] >> 4
	switch {
	case kind == packets.Connack:
		o.open = o.open || connackCode(p) == packets.CodeSuccess.Code
	case kind == packets.Auth:
		// Goes both ways before CONNACK.
	case !o.open, kind == packets.Disconnect && !o.v5:
		return len(p), nil
	}
	if o.waitLocked(len(p)) {
		if kind == packets.Publish && o.aliases.maximum > 0 {
			o.buf = o.aliases.appendAliased(o.buf, p)
		} else {
			o.buf = append(o.buf, p...)
		}
		o.ready.Signal()
	}
	if kind == packets.Suback {
		o.releaseLocked()
	}
	// What is written to a connection that ends goes nowhere. An error would
	// make the library stop reading before the client's last acknowledgements.
	return len(p), nil
}

// connackCode returns the reason code of a CONNACK frame.
func connackCode(p []byte) byte {
	i := 1
	for p[i]&0x80 != 0 {
		i++
	}
	return p[i+2]
}

// publish appends a message and waits for room: it is for the pump of this
// connection, and for what answers its requests. Cost: the frame is encoded where it waits, without a copy
// or an allocation.
func (o *outbound) publish(p *publication) error { return o.publishThen(p, nil) }

// publishThen is publish, and without an error written is called once the message
// has been written or the connection has ended, if it is not nil.
func (o *outbound) publishThen(p *publication, written func()) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	size, _, _ := p.size(o.v5)
	for o.waitLocked(size) && o.held {
		o.room.Wait()
	}
	if o.closed || o.flushed {
		return net.ErrClosed
	}
	o.publishLocked(&o.buf, p, size)
	if written != nil {
		o.written = append(o.written, written)
	}
	return nil
}

// offer appends a message if there is room at once. Runs on any goroutine.
func (o *outbound) offer(p *publication) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.offerLocked(p)
}

// offerLater is offer for those who come again: if there is no room, what was
// given to onRelief is called when there is.
func (o *outbound) offerLater(p *publication) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.offerLocked(p)
	o.refused = o.refused || !taken
	return taken
}

func (o *outbound) offerLocked(p *publication) bool {
	size, _, _ := p.size(o.v5)
	b := &o.buf
	if o.held {
		b = &o.aside
	}
	if o.closed || !o.open || len(*b) > 0 && len(*b)+size > o.limit {
		return false
	}
	o.publishLocked(b, p, size)
	return true
}

// onRelief sets what is called, on the flusher and with no lock held.
func (o *outbound) onRelief(relief func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.relief = relief
}

// relieve calls what onRelief has set, if offerLater has refused a message since
// the last time. Runs on the flusher, no lock held.
func (o *outbound) relieve() {
	o.mu.Lock()
	due := o.refused
	o.refused = false
	o.mu.Unlock()
	if due {
		o.relief()
	}
}

// hold keeps messages back that are to come after a SUBACK: the retained ones
// that it brings. Runs on the connection's read goroutine, which calls release
// at the latest when it has worked off the SUBSCRIBE.
func (o *outbound) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = true
}

func (o *outbound) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseLocked()
}

func (o *outbound) releaseLocked() {
	if !o.held {
		return
	}
	o.held = false
	if !o.closed {
		o.buf = append(o.buf, o.aside...)
		o.ready.Signal()
	}
	o.aside = nil
	o.room.Broadcast()
}

// publishLocked appends a message, of this size without an alias. What is held
// back has none: something may be sent before it.
func (o *outbound) publishLocked(b *[]byte, p *publication, size int) {
	if b == &o.buf && o.aliases.maximum > 0 {
		p.alias, p.known = o.aliases.of(p.Topic, size)
	}
	before := len(*b)
	*b = appendPublish(*b, o.v5, p)
	o.packets++
	o.messages++
	o.bytes += int64(len(*b) - before)
	o.ready.Signal()
}

// ack appends an acknowledgement. Runs on any goroutine and never waits: there
// are never more of them than messages on their way, see admit.
func (o *outbound) ack(kind byte, id uint16, code byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ackLocked(kind, id, code)
}

func (o *outbound) ackLocked(kind byte, id uint16, code byte) {
	o.appendLocked(func(b []byte) []byte { return appendAck(b, o.v5, kind, id, code) })
}

// appendLocked appends one packet.
func (o *outbound) appendLocked(frame func([]byte) []byte) {
	if o.closed || !o.open {
		return
	}
	before := len(o.buf)
	o.buf = frame(o.buf)
	o.packets++
	o.bytes += int64(len(o.buf) - before)
	o.ready.Signal()
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

// admit counts a message that this client has published, to be answered with
// kind, and that now goes to the store. An MQTT 5 client knows how many may be on
// their way, and admit returns false if it does not keep to it [MQTT-3.3.4-7].
// Older clients are made to wait, as is everyone who does not read the
// acknowledgements. Runs on the connection's read goroutine.
func (o *outbound) admit(kind byte, id uint16, maximum int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && (len(o.buf) > o.limit || !o.v5 && o.storing >= maximum) {
		o.room.Wait()
	}
	_, again := o.unending[id]
	if again = again && kind == packets.Pubrec; !again {
		if o.v5 && o.unacked >= maximum {
			return false
		}
		o.unacked++
	}
	if kind == packets.Pubrec {
		o.unending[id] = struct{}{}
	}
	o.storing++
	return true
}

// settle ends what admit began, with an acknowledgement; it tells the message's
// id unless that is zero. Runs on a goroutine of the store.
func (o *outbound) settle(kind byte, id uint16, code byte, named inbox.MessageID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.storing--
	switch {
	case kind == packets.Puback:
		o.unacked--
	case code >= packets.ErrUnspecifiedError.Code: // PUBREC that refuses
		o.finishLocked(id)
	}
	if named == (inbox.MessageID{}) {
		o.ackLocked(kind, id, code)
	} else {
		o.appendLocked(func(b []byte) []byte { return appendNamedAck(b, kind, id, code, named) })
	}
	o.room.Broadcast()
}

// complete appends the PUBCOMP that ends a QoS 2 message of this client.
func (o *outbound) complete(id uint16, code byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finishLocked(id)
	o.ackLocked(packets.Pubcomp, id, code)
}

// finishLocked counts the end of a QoS 2 message. It may be of an earlier
// connection, and then was never counted.
func (o *outbound) finishLocked(id uint16) {
	if _, ok := o.unending[id]; ok {
		delete(o.unending, id)
		o.unacked--
	}
}

// farewell appends the reason for which the connection ends, if the client
// can be told.
func (o *outbound) farewell(code byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || !o.open || !o.v5 {
		return
	}
	o.buf = appendDisconnect(o.buf, code)
	o.ready.Signal()
}

// close takes nothing more and wakes everyone. What waits is still written.
func (o *outbound) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.room.Broadcast()
	o.ready.Signal()
}

func (o *outbound) waitLocked(size int) bool {
	for !o.closed && !o.fitsLocked(size) {
		o.room.Wait()
	}
	return !o.closed
}

// fitsLocked lets a frame that is larger than the limit pass alone.
func (o *outbound) fitsLocked(size int) bool {
	return len(o.buf) == 0 || len(o.buf)+size <= o.limit
}

// flush writes what gathers until the outbound is closed and empty, or a write
// fails. It is a goroutine of the connection. A write that takes too long is
// ended by closing conn: a write deadline would do the same on TCP alone, for a
// WebSocket sets its own.
func (o *outbound) flush(conn net.Conn) error {
	late := time.AfterFunc(o.timeout, func() { conn.Close() })
	defer late.Stop()
	var batch []byte
	var written []func() // when the batch is
	defer func() {
		for _, f := range append(written, o.end()...) {
			f()
		}
	}()
	for {
		late.Stop()
		for _, f := range written {
			f()
		}
		if batch, written = o.take(batch); len(batch) == 0 {
			return nil
		}
		o.relieve()
		for rest := batch; len(rest) > 0; {
			n := min(len(rest), writeChunk)
			late.Reset(o.timeout)
			if _, err := conn.Write(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
}

// take waits for something to write and swaps it for the buffer that was
// written. It returns nothing at the end, and else also what is to be called when
// all of it is written.
func (o *outbound) take(last []byte) (batch []byte, written []func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) == 0 && !o.closed {
		if cap(o.buf) > keptBuffer {
			o.buf = nil
		}
		if cap(last) > keptBuffer {
			last = nil
		}
		o.ready.Wait()
	}
	batch, o.buf = o.buf, last[:0]
	written, o.written = o.written, nil
	atomic.AddInt64(&o.info.PacketsSent, o.packets)
	atomic.AddInt64(&o.info.MessagesSent, o.messages)
	atomic.AddInt64(&o.info.BytesSent, o.bytes)
	o.packets, o.messages, o.bytes = 0, 0, 0
	o.room.Broadcast()
	return batch, written
}

// end takes nothing more to be written, and returns what is to be called since it never will be.
func (o *outbound) end() (written []func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	written, o.written, o.flushed = o.written, nil, true
	return written
}
