package hooks

import (
	"net"
	"sync"
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

	admitted admitted // messages of this client

	unwritten []unwritten // the messages of the inbox in buf, in order
	written   []func()    // called by flush when what is in buf is written, or cannot be
	flushed   bool        // flush has ended

	// Set before the first message of the inbox is appended.
	withdrawn func() uint64                                 // see inbox.Inbox
	withdraw  func([]unwritten) map[inbox.Position]struct{} // see session.withdraw

	relief  func() // called by flush when there is room again for what offerLater has refused
	refused bool   // there is something

	// What was appended beside the MQTT library, which counts its own packets.
	packets, messages, bytes int64
}

func newOutbound(limit int, timeout time.Duration, info *system.Info) *outbound {
	o := &outbound{limit: limit, timeout: timeout, info: info}
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

// onWithdrawal sets how the flusher finds out what is not to be written any more.
func (o *outbound) onWithdrawal(withdrawn func() uint64, withdraw func([]unwritten) map[inbox.Position]struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.withdrawn, o.withdraw = withdrawn, withdraw
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
	if p.position != 0 {
		o.unwritten = append(o.unwritten, unwritten{p.position, p.seen, uint32(before), p.packetID, p.dup})
	}
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
