package mqtttest

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Client is one connected client of a test. Its methods end the test when they
// fail, so they belong to the test's goroutine.
type Client struct {
	ID             string
	SessionPresent bool
	ReasonCode     byte // of CONNACK
	Properties     packets.Properties

	t       testing.TB
	conn    *Conn
	options Options
	lastID  uint16
	gate    chan struct{} // full while the client is frozen; the reader passes it before each packet
	frozen  bool          // the test holds gate
	arrived chan struct{} // holds one: there is something new in received or ended
	done    chan struct{} // closed when the reader has returned

	mu       sync.Mutex // guards what follows
	received []packets.Packet
	ended    error // why the reader stopped
}

// Dial connects to addr (host:port, or unix: and a path) and returns after an
// accepting CONNACK.
func Dial(t testing.TB, addr string, o Options) *Client {
	t.Helper()
	c, err := dial(addr, o)
	if err != nil {
		t.Fatalf("client %q: %v", o.ClientID, err)
	}
	return connect(t, c, o)
}

// Connect introduces a client over a link that the test has made.
func Connect(t testing.TB, link net.Conn, o Options) *Client {
	t.Helper()
	return connect(t, newConn(link, o), o)
}

// Refused connects, expects a CONNACK that refuses, and returns it. A link
// that is closed without CONNACK fails the test.
func Refused(t testing.TB, addr string, o Options) packets.Packet {
	t.Helper()
	c, err := dial(addr, o)
	if err != nil {
		t.Fatalf("client %q: %v", o.ClientID, err)
	}
	defer func() { _ = c.Close() }()
	if err := c.introduce(o); !errors.Is(err, ErrRefused) {
		t.Fatalf("client %q: connected with %v, want a CONNACK that refuses", o.ClientID, err)
	}
	return c.Connack
}

// DialRaw opens a link and sends nothing. The options say how packets are
// encoded and acknowledged.
func DialRaw(t testing.TB, addr string, o Options) *Client {
	t.Helper()
	c, err := dial(addr, o)
	if err != nil {
		t.Fatalf("raw client: %v", err)
	}
	return start(t, c, o)
}

func connect(t testing.TB, conn *Conn, o Options) *Client {
	t.Helper()
	if err := conn.introduce(o); err != nil {
		_ = conn.Close()
		t.Fatalf("client %q: %v", o.ClientID, err)
	}
	return start(t, conn, o)
}

func start(t testing.TB, conn *Conn, o Options) *Client {
	c := &Client{
		ID:             o.ClientID,
		SessionPresent: conn.Connack.SessionPresent,
		ReasonCode:     conn.Connack.ReasonCode,
		Properties:     conn.Connack.Properties,
		t:              t,
		conn:           conn,
		options:        o,
		gate:           make(chan struct{}, 1),
		arrived:        make(chan struct{}, 1),
		done:           make(chan struct{}),
	}
	if o.Frozen {
		c.Freeze()
	}
	go c.read()
	t.Cleanup(c.Cut)
	return c
}

// read is the client's goroutine. It keeps what arrives until the link ends.
func (c *Client) read() {
	defer close(c.done)
	for {
		c.awaitThaw()
		pk, err := c.conn.Read()
		if err == nil && !c.answer(pk) {
			continue
		}
		c.keep(pk, err)
		if err != nil {
			return
		}
	}
}

// awaitThaw waits while the client is frozen.
func (c *Client) awaitThaw() {
	c.gate <- struct{}{}
	<-c.gate
}

// keep notes what came, or why nothing will come any more, and wakes the test.
func (c *Client) keep(pk packets.Packet, err error) {
	c.mu.Lock()
	if err == nil {
		c.received = append(c.received, pk)
	}
	c.ended = err
	c.mu.Unlock()
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

// answer acknowledges what the options leave to the client, and reports whether
// the packet is shown to the test. An answer that cannot be written means that
// the link is gone, which the next read tells.
func (c *Client) answer(pk packets.Packet) (shown bool) {
	switch pk.FixedHeader.Type {
	case packets.Publish:
		if !c.options.ManualAck && pk.FixedHeader.Qos > 0 {
			_ = c.conn.Write(ackOf(pk))
		}
	case packets.Pubrel:
		if !c.options.ManualAck {
			_ = c.conn.Write(short(packets.Pubcomp, pk.PacketID))
			return false
		}
	case packets.Pubrec:
		if !c.options.ManualRelease && pk.ReasonCode < 0x80 {
			_ = c.conn.Write(short(packets.Pubrel, pk.PacketID))
			return false
		}
	}
	return true
}

// ackOf is the first acknowledgement of a received message.
func ackOf(pk packets.Packet) packets.Packet {
	if pk.FixedHeader.Qos == 2 {
		return short(packets.Pubrec, pk.PacketID)
	}
	return short(packets.Puback, pk.PacketID)
}

func short(kind byte, id uint16) packets.Packet {
	return packets.Packet{FixedHeader: packets.FixedHeader{Type: kind}, PacketID: id}
}

// take waits for the first packet that matches and takes it out. It returns
// false when the time is over or the link has ended.
func (c *Client) take(d time.Duration, match func(packets.Packet) bool) (packets.Packet, bool) {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		i := slices.IndexFunc(c.received, match)
		if i >= 0 {
			pk := c.received[i]
			c.received = slices.Delete(c.received, i, i+1)
			c.mu.Unlock()
			return pk, true
		}
		ended := c.ended
		c.mu.Unlock()
		if ended != nil {
			return packets.Packet{}, false
		}
		select {
		case <-c.arrived:
		case <-timeout.C:
			return packets.Packet{}, false
		}
	}
}

// await is take for what must come.
func (c *Client) await(what string, match func(packets.Packet) bool) packets.Packet {
	c.t.Helper()
	pk, ok := c.take(Deadline, match)
	if !ok {
		c.t.Fatalf("client %q: waited for %s, but %s", c.ID, what, c.situation())
	}
	return pk
}

// situation says what has come and whether the link is still there.
func (c *Client) situation() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	if c.ended != nil {
		b.WriteString("the link ended (" + c.ended.Error() + ")")
	} else {
		b.WriteString("nothing more came")
	}
	for i, pk := range c.received {
		if i == 5 {
			b.WriteString(", ...")
			break
		}
		b.WriteString(", not taken: " + Describe(pk))
	}
	return b.String()
}
