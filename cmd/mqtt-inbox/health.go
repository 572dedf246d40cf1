package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

type healthCommand struct {
	Address string        `default:"${address}" placeholder:"HOST:PORT" help:"Broker to ask, or the path of its unix socket (default: ${default})."`
	Timeout time.Duration `default:"5s" help:"How long it may take to answer (default: ${default})."`
}

// Run connects as a client and leaves again.
func (c *healthCommand) Run(env *environment) error {
	ctx, cancel := context.WithTimeout(env.ctx, c.Timeout)
	defer cancel()
	if err := checkHealth(ctx, c.Address); err != nil {
		return fmt.Errorf("%s is not healthy: %w", c.Address, err)
	}
	_, err := fmt.Fprintf(env.stdout, "%s is healthy\n", c.Address)
	return err
}

// checkHealth reports whether a broker answers a CONNECT. A refusal that is
// about the client, such as a missing password, is an answer.
func checkHealth(ctx context.Context, address string) error {
	const unavailable = 3
	network := "tcp"
	if strings.Contains(address, "/") {
		network = "unix"
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	// MQTT 3.1.1, clean session, 60 s keep-alive; the empty client id lets the broker choose.
	if _, err := conn.Write([]byte("\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")); err != nil {
		return err
	}
	connack := make([]byte, 4)
	if _, err := io.ReadFull(conn, connack); err != nil {
		return fmt.Errorf("no CONNACK came: %w", err)
	}
	if connack[0] != 0x20 || connack[1] != 2 {
		return errors.New("this is not an MQTT broker")
	}
	if connack[3] == unavailable {
		return errors.New("it is not available")
	}
	_, err = conn.Write([]byte{0xe0, 0}) // DISCONNECT
	if connack[3] != 0 {
		return nil // it has hung up
	}
	return err
}
