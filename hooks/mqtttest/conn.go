package mqtttest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Deadline bounds every wait and every write of this package. What takes so long on a busy
// machine never comes.
const Deadline = time.Minute

// ErrRefused is in the error of [Open] if the broker answered with a CONNACK
// whose code is not 0.
var ErrRefused = errors.New("connection refused by the broker")

// Conn is one link to a broker that speaks in packets. One goroutine may read
// while others write.
type Conn struct {
	Version byte
	Connack packets.Packet

	net net.Conn
	r   *bufio.Reader

	mu  sync.Mutex // one packet is written at a time
	out []byte     // bytes of buffered packets
}

// Open connects to addr (host:port, or unix: and a path), sends CONNECT and
// waits for CONNACK.
func Open(addr string, o Options) (*Conn, error) {
	c, err := dial(addr, o)
	if err != nil {
		return nil, err
	}
	if err := c.introduce(o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func dial(addr string, o Options) (*Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	conn, err := net.DialTimeout(network, addr, Deadline)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return newConn(conn, o), nil
}

func newConn(conn net.Conn, o Options) *Conn {
	return &Conn{Version: o.version(), net: conn, r: bufio.NewReaderSize(conn, 64<<10)}
}

// introduce sends CONNECT and waits for CONNACK.
func (c *Conn) introduce(o Options) error {
	if err := c.Write(o.packet()); err != nil {
		return err
	}
	pk, err := c.ReadWithin(Deadline)
	if err != nil {
		return fmt.Errorf("wait for CONNACK: %w", err)
	}
	if pk.FixedHeader.Type != packets.Connack {
		return fmt.Errorf("wait for CONNACK: got %s", Describe(pk))
	}
	c.Connack = pk
	if pk.ReasonCode != 0 {
		return fmt.Errorf("%w: code %#x", ErrRefused, pk.ReasonCode)
	}
	return nil
}

// Write sends a packet, after those that were buffered.
func (c *Conn) Write(pk packets.Packet) error {
	if err := c.Buffer(pk); err != nil {
		return err
	}
	return c.Flush()
}

// Buffer keeps a packet until the next Write or Flush.
func (c *Conn) Buffer(pk packets.Packet) error {
	pk.ProtocolVersion = c.Version
	b, err := Encode(pk)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, b...)
	return nil
}

// Flush sends what was buffered.
func (c *Conn) Flush() error { return c.WriteRaw(nil) }

// WriteRaw sends bytes as they are.
func (c *Conn) WriteRaw(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, b...)
	if len(c.out) == 0 {
		return nil
	}
	if err := c.net.SetWriteDeadline(time.Now().Add(Deadline)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	_, err := c.net.Write(c.out)
	c.out = c.out[:0]
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Read waits for the next packet, without a deadline.
func (c *Conn) Read() (packets.Packet, error) { return Decode(c.r, c.Version) }

// ReadWithin waits until the next packet begins, at most so long, and reads it.
// After os.ErrDeadlineExceeded the link is as good as before.
func (c *Conn) ReadWithin(d time.Duration) (packets.Packet, error) {
	if err := c.net.SetReadDeadline(time.Now().Add(d)); err != nil {
		return packets.Packet{}, fmt.Errorf("read: %w", err)
	}
	if _, err := c.r.Peek(1); err != nil {
		return packets.Packet{}, err
	}
	if err := c.net.SetReadDeadline(time.Now().Add(Deadline)); err != nil {
		return packets.Packet{}, fmt.Errorf("read: %w", err)
	}
	pk, err := c.Read()
	return pk, errors.Join(err, c.net.SetReadDeadline(time.Time{}))
}

// Pending reports whether bytes of a further packet are already here.
func (c *Conn) Pending() bool { return c.r.Buffered() > 0 }

// Close ends the link without DISCONNECT.
func (c *Conn) Close() error { return c.net.Close() }
