package clienttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// script is a client library that a script of testdata runs, one process a
// visit.
//
// The first line of its input is an order. It tells, one line each, when it has
// subscribed, when everything it published is acknowledged, and each message
// that came. When its input ends, it publishes one more message of QoS 2, so
// that the broker has all its acknowledgements, and disconnects.
type script struct {
	program
	version byte
	scheme  string
}

// program is how a script is run, and how to find out whether it can be.
type program struct{ run, check []string }

var (
	mqttjs = program{
		run:   []string{"node", "testdata/client.mjs"},
		check: []string{"node", "testdata/client.mjs"}, // without an order, it only imports
	}
	// Debian's packages are those of its own Python.
	pahoPython = program{
		run:   []string{"/usr/bin/python3", "testdata/client.py"},
		check: []string{"/usr/bin/python3", "-c", "import paho.mqtt.client"},
	}
)

// order is what a script is to do.
type order struct {
	URL      string   `json:"url"`
	Version  byte     `json:"version"`
	ID       string   `json:"id"`
	QoS      byte     `json:"qos"`
	Filter   string   `json:"filter"`
	Topic    string   `json:"topic"`
	Payloads [][]byte `json:"payloads"` // null for none
	Pause    int64    `json:"pause"`    // milliseconds
}

// line is what a script tells: an event, or a message.
type line struct {
	Event   string `json:"event"` // "subscribed", "published", or empty
	Topic   string `json:"topic"`
	QoS     byte   `json:"qos"` // granted, or of the message
	Payload []byte `json:"payload"`
}

func (s script) visit(ctx context.Context, v visit) error {
	cmd := exec.CommandContext(ctx, s.run[0], s.run[1:]...) //nolint:gosec // constant arguments
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	published, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- listen(out, v, published) }()

	err = json.NewEncoder(in).Encode(order{v.url(s.scheme), s.version, v.client, v.qos, v.filter, v.topic, v.payloads, v.pause.Milliseconds()})
	if err == nil {
		err = s.talk(ctx, v, published)
	}
	_ = in.Close()                              // it is closed if the script has failed
	err = errors.Join(err, <-ended, cmd.Wait()) // in this order: Wait closes the pipe
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", s.run[1], err, stderr.String())
	}
	return nil
}

// talk waits for everything that a visit is for.
func (s script) talk(ctx context.Context, v visit, published <-chan struct{}) error {
	select {
	case <-published:
	case <-ctx.Done():
		return fmt.Errorf("not everything was acknowledged: %w", ctx.Err())
	}
	return v.stay(ctx)
}

// listen takes what a script tells, until it has ended.
func listen(out io.Reader, v visit, published chan<- struct{}) error {
	for lines := json.NewDecoder(bufio.NewReader(out)); ; {
		var l line
		err := lines.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a line: %w", err)
		case l.Event == "subscribed" && l.QoS != v.qos:
			return fmt.Errorf("granted %#x, want %d", l.QoS, v.qos)
		case l.Event == "published":
			close(published)
		case l.Event == "":
			v.received.add(message{l.Topic, l.QoS, string(l.Payload)})
		}
	}
}
