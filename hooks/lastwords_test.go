package hooks_test

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// brittle is a connection of the broker that, as one over WebSocket, is never read again
// after a deadline has ended a read.
type brittle struct {
	net.Conn
	broken chan struct{} // closed by that deadline
	once   sync.Once

	mu     sync.Mutex
	ending func() // called once, when the connection is being ended; nil for nothing
}

// brittleListener is a listener whose connections are brittle.
type brittleListener struct {
	net.Listener
	accepted chan *brittle
}

func (l brittleListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &brittle{Conn: conn, broken: make(chan struct{})}
	l.accepted <- c
	return c, nil
}

func (c *brittle) Read(p []byte) (int, error) {
	select {
	case <-c.broken:
		return 0, os.ErrDeadlineExceeded
	default:
	}
	n, err := c.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.once.Do(func() { close(c.broken) })
	}
	return n, err
}

// SetReadDeadline has what comes when the connection is being ended come in the time that
// is left for reading, and not in it if there is none. It is called where nothing may wait.
func (c *brittle) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	ending := c.ending
	c.ending = nil
	c.mu.Unlock()
	if ending == nil {
		return c.Conn.SetReadDeadline(at)
	}
	inTime := at.After(time.Now())
	err := c.Conn.SetReadDeadline(at)
	if !inTime {
		<-c.broken
	}
	go ending()
	return err
}

// What a client has acknowledged while its connection is being taken over is read, and does
// not come again, on whatever connection (field case 027).
func TestLastAcknowledgementsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := make(chan *brittle, 10)
		b := start(t, setting{Memory: true, Listen: func(l net.Listener) net.Listener { return brittleListener{l, accepted} }})
		o := v3("receiver")
		o.ManualAck = true
		receiver := b.dial(o)
		conn := <-accepted
		receiver.Subscribe("a", 1)
		publisher := b.dial(clean("publisher"))
		<-accepted
		for _, payload := range numbers(1, 3) {
			publisher.PublishAndWait("a", payload, 1)
		}
		came := receiver.Collect(3)
		conn.mu.Lock()
		conn.ending = func() {
			for _, pk := range came {
				receiver.Ack(pk)
			}
		}
		conn.mu.Unlock()
		again := b.dial(o)
		publisher.PublishAndWait("a", "4", 1)
		if pk := again.NextPublish(); pk.FixedHeader.Dup || !again.SessionPresent {
			t.Errorf("%s comes again", mqtttest.Describe(pk))
		}
	})
}
