package broker

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/mochi-mqtt/server/v2/listeners"
)

// endpoint is one bound address, as mochi wants to see it. mochi's own
// listeners end in silence when accepting fails; this one goes on if it can,
// and reports it if it cannot. The hook wraps it and looks after the
// connections.
type endpoint struct {
	id       string
	protocol string // tcp, ws or unix
	listener net.Listener
	failed   func(error) // called at most once, from the accepting goroutine
	log      *slog.Logger

	closing sync.Once
	closed  chan struct{}  // closed by Close
	serving sync.WaitGroup // Serve; added to before mochi starts it
}

var _ listeners.Listener = (*endpoint)(nil)

func newEndpoint(id, protocol string, l net.Listener, log *slog.Logger, failed func(error)) *endpoint {
	return &endpoint{id: id, protocol: protocol, listener: l, failed: failed, log: log, closed: make(chan struct{})}
}

func (e *endpoint) ID() string              { return e.id }
func (e *endpoint) Protocol() string        { return e.protocol }
func (e *endpoint) Address() string         { return e.listener.Addr().String() }
func (e *endpoint) Init(*slog.Logger) error { return nil }

// Serve accepts connections until Close, or until accepting fails for good, and
// returns when the connections have ended. Runs on a goroutine that mochi
// starts.
func (e *endpoint) Serve(establish listeners.EstablishFn) {
	defer e.serving.Done()
	var conns sync.WaitGroup
	defer conns.Wait()
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		conn, err := e.listener.Accept()
		switch {
		case err == nil:
			pause = shortest
			conns.Go(func() { e.serve(conn, establish) })
		case e.isClosed():
			return
		case isTransient(err):
			e.log.Warn("cannot accept connections", "protocol", e.protocol, "address", e.Address(), "error", err)
			if !e.wait(pause) {
				return
			}
			pause = min(2*pause, longest)
		default:
			e.failed(err)
			return
		}
	}
}

// serve is the life of one connection.
func (e *endpoint) serve(conn net.Conn, establish listeners.EstablishFn) {
	if err := establish(e.id, conn); err != nil {
		e.log.Debug("connection ended", "protocol", e.protocol, "remote", conn.RemoteAddr(), "error", err)
	}
}

// Close stops accepting. The hook tells the clients, so closeClients is not
// needed; it takes a read lock twice, and can deadlock with a client that is
// just connecting.
func (e *endpoint) Close(listeners.CloseFn) {
	e.closing.Do(func() {
		close(e.closed)
		if err := e.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			e.log.Warn("cannot close listener", "protocol", e.protocol, "address", e.Address(), "error", err)
		}
	})
}

func (e *endpoint) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// wait reports whether the endpoint is still open after d.
func (e *endpoint) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.closed:
		return false
	case <-timer.C:
		return true
	}
}

// isTransient reports whether accepting may work again later: the client was
// gone, or the system is short of something.
func isTransient(err error) bool {
	for _, code := range []syscall.Errno{
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EINTR,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
