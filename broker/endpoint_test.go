package broker

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"
)

// script is a listener that returns from Accept what the test sends it.
type script struct {
	net.Listener
	accept chan any // a net.Conn or an error
	closed chan struct{}
}

func newScript() *script {
	return &script{accept: make(chan any), closed: make(chan struct{})}
}

func (s *script) Accept() (net.Conn, error) {
	select {
	case a := <-s.accept:
		if conn, ok := a.(net.Conn); ok {
			return conn, nil
		}
		return nil, a.(error)
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *script) Addr() net.Addr { return &net.TCPAddr{} }
func (s *script) Close() error   { close(s.closed); return nil }

// serveScript runs an endpoint on a script. A connection lives until its other
// end is closed; its arrival is told on the channel.
func serveScript(t *testing.T, s *script) (e *endpoint, failed chan error, arrived chan net.Conn) {
	t.Helper()
	failed, arrived = make(chan error, 1), make(chan net.Conn)
	e = newEndpoint("id", "tcp", s, slog.New(slog.DiscardHandler), func(err error) { failed <- err })
	e.serving.Add(1)
	go func() {
		e.Serve(func(_ string, conn net.Conn) error {
			arrived <- conn
			_, err := conn.Read(make([]byte, 1))
			return err
		})
	}()
	t.Cleanup(func() {
		e.Close(nil)
		e.serving.Wait()
	})
	return e, failed, arrived
}

func TestEndpointGoesOnAfterTransientErrors(t *testing.T) {
	s := newScript()
	_, failed, arrived := serveScript(t, s)
	s.accept <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
	s.accept <- &net.OpError{Op: "accept", Err: syscall.ECONNABORTED}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	s.accept <- ours
	<-arrived
	select {
	case err := <-failed:
		t.Errorf("it failed: %v", err)
	default:
	}
}

func TestEndpointReportsFailure(t *testing.T) {
	s := newScript()
	_, failed, _ := serveScript(t, s)
	broken := errors.New("the network is gone")
	s.accept <- broken
	if err := <-failed; !errors.Is(err, broken) {
		t.Errorf("failed with %v, want %v", err, broken)
	}
}

func TestEndpointClose(t *testing.T) {
	s := newScript()
	e, failed, arrived := serveScript(t, s)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	s.accept <- ours
	<-arrived

	e.Close(nil)
	e.Close(nil) // twice is once
	if _, err := theirs.Write([]byte{1}); err != nil {
		t.Errorf("Close has ended a connection: %v", err)
	}
	e.serving.Wait()
	select {
	case err := <-failed:
		t.Errorf("Close counts as failure: %v", err)
	default:
	}
}
