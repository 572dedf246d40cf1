package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// DefaultTimeout is how long a [Client] waits for an answer if nothing else is said.
const DefaultTimeout = 15 * time.Second

// mostUnderWay is how many requests of one client are under way: the broker refuses
// more on one connection.
const mostUnderWay = 4

// Options are the options of a [Client]. The zero value is good.
type Options struct {
	Timeout time.Duration // for one answer; 0 for DefaultTimeout
	Log     *slog.Logger  // nil for slog.Default()

	// Acknowledged is told that messages were acknowledged by another way: over HTTP, or
	// by another device of the same user. CONNECT asks for that by PropertyWatch. It is
	// called as what OnPublishReceived has is, so it must not ask the inbox itself.
	Acknowledged func(pull.Notice)
}

// Error is what the broker says of a request that has failed. Its codes are those of
// package pull, such as [pull.CodeNoSession].
type Error = pull.Error

// Client asks the inbox of one MQTT client, over a connection of Paho for MQTT 5. All
// methods may be called concurrently; but not by a function that Paho calls with a
// message, which holds up the answer.
//
// Errors of all requests are an [Error] of the broker, ErrNotConnected, ErrNoAnswer, or
// those of the connection or the context. A request that has failed may have been carried
// out. All may be made again: they change nothing more.
type Client struct {
	timeout      time.Duration
	log          *slog.Logger
	acknowledged func(pull.Notice) // see Options; nil if nobody is to be told
	slots        chan struct{}     // holds one for each request that is under way

	mu       sync.Mutex // guards what follows
	conn     Publisher
	last     uint64
	expected map[uint64]chan<- []byte // where the answer goes to, by the request's number
}

// New returns a client that has no connection yet. Put its [Client.Received] into
// OnPublishReceived of the connection's configuration, make the connection, and
// give it to [Client.Use].
func New(o Options) *Client {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Client{
		timeout: o.Timeout, log: o.Log, acknowledged: o.Acknowledged,
		slots: make(chan struct{}, mostUnderWay), expected: map[uint64]chan<- []byte{},
		last: rand.Uint64(), // so that two clients can share a connection
	}
}

// Use has requests go over a connection from now on. One that connects again by itself
// is given once.
func (c *Client) Use(conn Publisher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
}

// Received takes answers and notices out of what a connection receives, and reports whether
// p is one. It goes into OnPublishReceived of [paho.ClientConfig], before what takes
// messages.
func (c *Client) Received(p paho.PublishReceived) (bool, error) {
	topic, ok := strings.CutPrefix(p.Packet.Topic, topicPrefix)
	if ok && topic == pull.NoticeAcknowledged {
		c.notice(p.Packet.Payload)
		return true, nil
	}
	if !ok || !strings.HasSuffix(topic, answerEnd) {
		return false, nil
	}
	if p.Packet.Properties == nil || len(p.Packet.Properties.CorrelationData) != numberSize {
		return true, nil // of somebody else on this connection
	}
	number := binary.BigEndian.Uint64(p.Packet.Properties.CorrelationData)
	c.mu.Lock()
	answered := c.expected[number]
	delete(c.expected, number)
	c.mu.Unlock()
	if answered != nil { // else nobody waits any more
		answered <- p.Packet.Payload
	}
	return true, nil
}

// notice tells the program of a notice.
func (c *Client) notice(payload []byte) {
	var n pull.Notice
	if err := json.Unmarshal(payload, &n); err != nil {
		c.log.Warn("notice of the broker not understood", "error", err)
		return
	}
	if c.acknowledged != nil {
		c.acknowledged(n)
	}
}

// Where requests are published, and their answers.
const (
	topicPrefix = "$inbox/"
	answerEnd   = "/answer"
	numberSize  = 8
	contentType = "application/msgpack"
)

// request makes a request until the broker has time for it.
func (c *Client) request(ctx context.Context, operation string, request, answer any) error {
	body, err := msgpack.Marshal(request)
	if err != nil {
		return fmt.Errorf("%s: encode: %w", operation, err)
	}
	err = c.patiently(ctx, func(conn Publisher) error {
		b, err := c.ask(ctx, conn, operation, body)
		if err != nil {
			return err
		}
		return decode(b, answer)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// connection returns the one that is used now.
func (c *Client) connection() (Publisher, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil, ErrNotConnected
	}
	return c.conn, nil
}

// patiently calls try until it returns something else than that the broker is busy.
func (c *Client) patiently(ctx context.Context, try func(conn Publisher) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		conn, err := c.connection()
		if err != nil {
			return err
		}
		err = try(conn)
		var told *Error
		if !errors.As(err, &told) || told.Code != pull.CodeBusy {
			return err
		}
		if err := rest(ctx, conn, jitter(pause), err); err != nil {
			return err
		}
	}
}

// ask sends one request and waits for its answer.
func (c *Client) ask(ctx context.Context, conn Publisher, operation string, body []byte) ([]byte, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, ErrNoAnswer)
	defer cancel()
	number, answered := c.expect()
	defer c.forget(number)
	if _, err := conn.Publish(ctx, &paho.Publish{
		Topic:   topicPrefix + operation,
		Payload: body,
		Properties: &paho.PublishProperties{
			ContentType:     contentType,
			CorrelationData: binary.BigEndian.AppendUint64(nil, number),
		},
	}); err != nil {
		return nil, err
	}
	select {
	case b := <-answered:
		return b, nil
	case <-over(conn):
		return nil, ErrConnectionOver
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// expect returns a number for a request, and where its answer will be.
func (c *Client) expect() (uint64, <-chan []byte) {
	answered := make(chan []byte, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.expected[c.last] = answered
	return c.last, answered
}

func (c *Client) forget(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.expected, number)
}

// decode reads an answer, or the error that it is.
func decode(b []byte, answer any) error {
	var failed pull.ErrorAnswer
	if err := msgpack.Unmarshal(b, &failed); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	if err := msgpack.Unmarshal(b, answer); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}
