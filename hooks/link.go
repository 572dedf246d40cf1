package hooks

import (
	"bufio"
	"context"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// linger is how long a connection that ends may take to write what waits.
const linger = time.Second

// lastWords is how long the reader of a connection that ends waits for more.
// What the client has sent may be in this machine already, and a message whose
// acknowledgement is not read will be sent again. A connection that takes over
// waits as long, or twice.
const lastWords = 5 * time.Millisecond

// readBuffer is how much is read from the network at once.
const readBuffer = 4 << 10

// link is one network connection, as the MQTT library sees it: it is the
// net.Conn that the library reads from and writes to.
//
// What the library writes goes through out, and so joins what the pump and the
// store's callbacks append. What it reads comes through in, which keeps to
// itself the acknowledgements that are not the library's business.
type link struct {
	hook *Hook
	conn net.Conn
	out  *outbound
	in   inbound // for the read goroutine alone

	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	// Set on the read goroutine, before anyone else can see the link.
	client      *mqtt.Client
	connect     packets.ConnectParams // for the will
	v5          bool
	metadata    bool                // messages say their id, time and sender
	wishes      wishes              // how its inbox is to be served
	namesAcks   bool                // acknowledgements may say the id of the message
	bridge      bool                // another broker's, which is not to get back what it has sent
	refused     packets.Code        // why the client does not get its session
	goodbye     bool                // the client has taken its leave
	noLocal     bool                // has had a subscription with No Local
	plainStored bool                // its messages of QoS 0 go through the store
	misindexed  map[string]struct{} // its filters that count in Hook.misindexed
	turn        bool                // holds the turn of its client id
	session     *session            // nil until it is open
	restoring   *restoring          // its subscriptions, until the MQTT library's index has them
	subscribing subscribing
	requests    requests
	watch       *watch // nil for one that does not

	blamed  atomic.Bool   // the connection ends for what the client has sent
	read    chan struct{} // the read goroutine reads no more
	done    chan struct{} // the session is given back, and the library knows the client no more
	flushed chan struct{} // the flusher has ended, and conn is closed

	mu     sync.Mutex // guards the following, and arming the read deadline
	closed bool
	until  time.Time   // once closed: when reading ends at the latest
	looked time.Time   // and when the last moment for what has come began
	hard   *time.Timer // closes conn if what waits cannot be written
}

func newLink(h *Hook, conn net.Conn) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		hook: h,
		conn: conn,
		out:  newOutbound(h.options.OutBytes, h.options.WriteTimeout, h.server.Info),
		in: inbound{
			buf:       bufio.NewReaderSize(conn, readBuffer),
			idle:      h.options.ConnectTimeout,
			maxPacket: int(h.server.Options.Capabilities.MaximumPacketSize),
		},
		ctx:     ctx,
		cancel:  cancel,
		read:    make(chan struct{}),
		done:    make(chan struct{}),
		flushed: make(chan struct{}),
	}
	l.requests.link = l
	return l
}

// linkOf returns the link of a client, or nil if its connection did not come
// through [Hook.Listener], as is so for the inline client.
func linkOf(cl *mqtt.Client) *link {
	l, _ := cl.Net.Conn.(*link)
	return l
}

// name is the client's id, if it has said it. For the read goroutine alone.
func (l *link) name() string {
	if l.client == nil {
		return ""
	}
	return l.client.ID
}

// flush is the flusher, a goroutine of the connection.
func (l *link) flush() {
	defer close(l.flushed)
	defer l.survive()
	if err := l.out.flush(l.conn); err != nil {
		l.hook.log.Debug("write failed", "remote", l.conn.RemoteAddr(), "error", err)
		l.out.close()
	}
	l.readOn()
	l.Close()
	l.hearOut()
	l.conn.Close() // the peer may have closed it before; there is nobody to tell

	l.mu.Lock()
	defer l.mu.Unlock()
	l.hard.Stop()
}

// survive ends the connection, and nothing else, if one of its goroutines
// panics. To be deferred.
func (l *link) survive() {
	if reason := recover(); reason != nil {
		l.hook.log.Error("panic on a connection", "remote", l.RemoteAddr(), "panic", reason, "stack", string(debug.Stack()))
		l.end(packets.ErrUnspecifiedError)
	}
}

// readOn waits, before the connection is closed, until the read goroutine has
// come to the end of what the client has sent; a second at most. A client that
// takes one message, acknowledges it and goes leaves unread what else was sent
// to it: that makes writing fail before the acknowledgement is read.
func (l *link) readOn() {
	t := time.NewTimer(linger)
	defer t.Stop()
	select {
	case <-l.read:
	case <-t.C:
	}
}

// hearOut gives a client that was told off the time to hear it, until it closes
// the connection or a second has passed. It may be sending still, and closing
// the connection would make it fail before it reads why.
func (l *link) hearOut() {
	half, ok := l.conn.(interface{ CloseWrite() error })
	if !ok || !l.blamed.Load() || half.CloseWrite() != nil {
		return
	}
	l.mu.Lock()
	err := l.conn.SetReadDeadline(l.until)
	l.mu.Unlock()
	if err == nil {
		_, _ = io.Copy(io.Discard, l.conn) // the end is the same, however it comes
	}
}

// patience returns a context for a call that the connection's end must not cut
// short: the client's last acknowledgements may be behind it.
func (l *link) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(l.ctx), handover)
}

// end tells the client why, if it speaks MQTT 5, and ends the connection. Runs
// on any goroutine and never waits.
func (l *link) end(code packets.Code) {
	l.out.farewell(code.Code)
	l.Close()
}

// Close ends the connection: reading ends within a moment, what waits to be
// written has a second. It never waits and may be called again.
func (l *link) Close() error {
	l.out.close()

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.cancel()
	l.hard = time.AfterFunc(linger, func() { l.conn.Close() })
	l.until = time.Now().Add(linger)
	return l.armLastLocked() // not at once: a connection over WebSocket cannot be read after a deadline
}

// Write takes a packet from the MQTT library and returns when it is in the
// outbound buffer.
func (l *link) Write(p []byte) (int, error) { return l.out.write(p) }

// LocalAddr implements net.Conn.
func (l *link) LocalAddr() net.Addr { return l.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (l *link) RemoteAddr() net.Addr { return l.conn.RemoteAddr() }

// NetConn returns the connection that the listener accepted, for hooks that
// look at its TLS state.
func (l *link) NetConn() net.Conn { return l.conn }

// SetDeadline does nothing: the link keeps its own time, see arm and
// outbound.flush. The MQTT library would set both deadlines at each packet.
func (l *link) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing, as SetDeadline.
func (l *link) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing, as SetDeadline.
func (l *link) SetWriteDeadline(time.Time) error { return nil }
