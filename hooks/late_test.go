package hooks_test

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// lateReads is a listener on a machine that gets busy when a connection ends: what reads from
// it comes too late, some times one after the other.
type lateReads struct {
	net.Listener

	mu    sync.Mutex // guards what follows
	times int        // for each connection
	blind bool       // the read that waits when a connection ends is not told what has come
	last  *lateConn  // the one that was accepted last
}

// lateConn is one connection. A read that begins while it is held waits until the broker ends it.
type lateConn struct {
	net.Conn
	waits           func()        // tells waiting
	ends            func()        // and ending
	waiting, ending chan struct{} // closed when a read waits, and when the broker ends the connection

	mu    sync.Mutex // guards what follows
	held  bool
	due   time.Time // the deadline of the next read
	times int       // that reads are still late
	blind bool      // the read that is held ends at its deadline, whatever has come
}

func (l *lateReads) listen(inner net.Listener) net.Listener {
	l.Listener = inner
	return l
}

func (l *lateReads) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &lateConn{Conn: conn, waiting: make(chan struct{}), ending: make(chan struct{})}
	c.waits = sync.OnceFunc(func() { close(c.waiting) })
	c.ends = sync.OnceFunc(func() { close(c.ending) })
	l.mu.Lock()
	defer l.mu.Unlock()
	c.times, c.blind = l.times, l.blind
	l.last = c
	return c, nil
}

// hold has the last connection be held, which is that of a client without keep alive, and returns
// when a read of it waits.
func (l *lateReads) hold(client *mqtttest.Client) {
	l.mu.Lock()
	c := l.last
	l.mu.Unlock()
	c.mu.Lock()
	c.held = true
	c.mu.Unlock()
	client.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pingreq}}) // ends one that had begun
	<-c.waiting
}

func (c *lateConn) SetReadDeadline(t time.Time) error {
	err := c.Conn.SetReadDeadline(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = t
	if c.held {
		c.ends()
	}
	return err
}

func (c *lateConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if held {
		c.waits()
		<-c.ending
		if c.seesNothing() {
			return 0, os.ErrDeadlineExceeded
		}
		c.comeLate()
	}
	return c.Conn.Read(p)
}

// seesNothing reports whether this read is not told what has come. It waits until the deadline.
func (c *lateConn) seesNothing() bool {
	c.mu.Lock()
	wait, blind := time.Until(c.due), c.blind
	c.blind = false
	c.mu.Unlock()
	if blind {
		<-time.After(wait)
	}
	return blind
}

// comeLate waits until the deadline has long been over.
func (c *lateConn) comeLate() {
	c.mu.Lock()
	wait, late := time.Until(c.due), c.times > 0
	if late {
		c.times--
	}
	c.mu.Unlock()
	if late {
		<-time.After(max(wait, 0) + 20*time.Millisecond)
	}
}
