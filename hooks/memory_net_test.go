package hooks_test

import (
	"net"
	"sync"
)

// memoryNet is a listener of connections in memory. Tests of time run on it, in bubbles of
// synctest: there time goes on when everything waits, and what waits for the system's network
// does not count as waiting.
type memoryNet struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemoryNet() *memoryNet {
	return &memoryNet{accept: make(chan net.Conn), closed: make(chan struct{})}
}

func (m *memoryNet) Accept() (net.Conn, error) {
	select {
	case conn := <-m.accept:
		return conn, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memoryNet) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

func (m *memoryNet) Addr() net.Addr { return memoryAddr{} }

type memoryAddr struct{}

func (memoryAddr) Network() string { return "memory" }
func (memoryAddr) String() string  { return "memory" }

// link returns a connection to a broker in memory, on which nothing was said.
func (b *broker) link() net.Conn {
	b.t.Helper()
	ours, theirs := net.Pipe()
	select {
	case b.memory.accept <- theirs:
	case <-b.memory.closed:
		b.t.Fatal("the broker does not listen")
	}
	b.t.Cleanup(func() { ours.Close() })
	return ours
}
