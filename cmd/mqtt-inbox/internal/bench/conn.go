package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// bufferSize bounds the packets that a load client can read.
const bufferSize = 64 << 10

// conn is one MQTT connection of the load. It is used by one goroutine.
type conn struct {
	net.Conn
	r       *bufio.Reader
	unhook  func() bool   // lets go of the context
	idle    time.Duration // the longest silence that is waited for, 0 for no limit
	resumed bool          // CONNACK said that there was a session
}

// dial connects a client. When ctx ends, everything that waits on the
// connection returns.
func dial(ctx context.Context, address, clientID string, clean bool) (*conn, error) {
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &conn{Conn: nc, r: bufio.NewReaderSize(nc, bufferSize)}
	c.unhook = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	if err := c.handshake(clientID, clean); err != nil {
		c.close()
		return nil, fmt.Errorf("connect %s: %w", clientID, err)
	}
	return c, nil
}

func (c *conn) handshake(clientID string, clean bool) error {
	if _, err := c.Write(connectFrame(clientID, clean)); err != nil {
		return err
	}
	first, body, err := readPacket(c.r)
	if err != nil {
		return err
	}
	if first != kindConnack || len(body) != 2 {
		return errMalformed
	}
	if body[1] != 0 {
		return fmt.Errorf("broker refused with code %d", body[1])
	}
	c.resumed = body[0]&1 == 1
	return nil
}

// subscribe adds one filter and waits until the broker has granted it.
func (c *conn) subscribe(filter string, qos byte) error {
	if _, err := c.Write(subscribeFrame(filter, qos)); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	first, body, err := readPacket(c.r)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if first != kindSuback || len(body) != 3 {
		return fmt.Errorf("subscribe: %w", errMalformed)
	}
	if body[2] != qos {
		return fmt.Errorf("subscribe %s: QoS %d wanted, broker answered %#x", filter, qos, body[2])
	}
	return nil
}

// next reads a packet, for no longer than the idle time.
func (c *conn) next() (byte, []byte, error) {
	if c.idle > 0 && !isBuffered(c.r) {
		if err := c.SetReadDeadline(time.Now().Add(c.idle)); err != nil {
			return 0, nil, err
		}
	}
	return readPacket(c.r)
}

// leave says goodbye and waits until the broker has closed the connection, so
// that the receiver is certainly away afterwards.
func (c *conn) leave() {
	defer c.close()
	if _, err := c.Write([]byte{kindDisconnect, 0}); err != nil {
		return // gone already
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return
	}
	for {
		if _, err := c.r.Discard(1); err != nil {
			return
		}
	}
}

// close drops the connection without a goodbye.
func (c *conn) close() {
	c.unhook()
	_ = c.Conn.Close() // nothing is waiting to be sent
}
