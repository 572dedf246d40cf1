package hooks

import (
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// Listener returns a listener that hands the connections of l to the hook. Add
// it to the server in the place of l; a connection that comes another way is
// refused. It may be called before Attach, for any number of listeners.
func (h *Hook) Listener(l listeners.Listener) listeners.Listener {
	return &listener{Listener: l, hook: h, links: map[*link]struct{}{}}
}

// listener wraps every connection into a link. The return of the MQTT library's
// establish function is the only sure sign that it has left a connection.
type listener struct {
	listeners.Listener
	hook *Hook

	mu      sync.Mutex // guards the following
	closing bool
	links   map[*link]struct{}
	open    sync.WaitGroup // connections; added to with mu held and closing false
}

// Serve implements listeners.Listener.
func (ln *listener) Serve(establish listeners.EstablishFn) {
	ln.Listener.Serve(func(id string, conn net.Conn) error {
		l, err := ln.accept(conn)
		if err != nil {
			conn.Close()
			return err
		}
		defer ln.leave(l)
		return ln.serve(id, l, establish)
	})
}

// accept makes a link of a connection, unless the listener is closing.
func (ln *listener) accept(conn net.Conn) (*link, error) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.closing {
		return nil, net.ErrClosed
	}
	if ln.hook.server == nil {
		return nil, errNotAttached
	}
	l := newLink(ln.hook, conn)
	ln.links[l] = struct{}{}
	ln.open.Add(1)
	ln.hook.links.Add(1)
	go l.flush()
	return l, nil
}

// serve runs the MQTT library on a link, on the connection's read goroutine. The
// library's decoder can panic at what a client sends; that ends the connection
// and nothing else.
func (ln *listener) serve(id string, l *link, establish listeners.EstablishFn) error {
	defer l.survive()
	return establish(id, l)
}

// leave ends everything that belongs to a connection.
func (ln *listener) leave(l *link) {
	ln.hook.finish(l)

	ln.mu.Lock()
	delete(ln.links, l)
	ln.mu.Unlock()
	ln.open.Done()
	ln.hook.links.Done()
}

// Close implements listeners.Listener. It tells the clients that the server
// ends, and returns when the last of their connections has ended, the sessions
// given back. The MQTT library's way of closing clients is not used: it takes a
// read lock within the same read lock, which is a deadlock if a client leaves
// in between, and it may wait for a client that does not read.
func (ln *listener) Close(listeners.CloseFn) {
	ln.mu.Lock()
	ln.closing = true
	links := slices.Collect(maps.Keys(ln.links))
	ln.mu.Unlock()
	for _, l := range links {
		l.end(packets.ErrServerShuttingDown)
	}

	ln.Listener.Close(func(string) {})
	ln.open.Wait()
}
