package broker

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// wsListener is a net.Listener whose connections carry MQTT in WebSocket
// messages. mochi's binds only once it serves, and drops the error.
type wsListener struct {
	net.Listener // the TCP listener below; Addr comes from it
	server       *http.Server
	upgraded     chan net.Conn

	closing  sync.Once
	closed   chan struct{} // closed by Close
	finished chan struct{} // closed when the HTTP server has ended
	err      error         // why it ended; to be read after finished
}

// listenWebSocket serves HTTP on l and takes it over. It owns one goroutine,
// which ends with Close.
func listenWebSocket(l net.Listener, origins []string, timeout time.Duration) *wsListener {
	w := &wsListener{
		Listener: l,
		upgraded: make(chan net.Conn),
		closed:   make(chan struct{}),
		finished: make(chan struct{}),
	}
	upgrader := &websocket.Upgrader{
		Subprotocols: []string{"mqtt", "mqttv3.1"}, // [MQTT-6.0.0-4]
		CheckOrigin:  func(r *http.Request) bool { return originAllowed(r, origins) },
	}
	w.server = &http.Server{
		// A connection that asks for something else, or for nothing more, is not
		// kept. That of an upgraded one the hook looks after.
		ReadTimeout:    timeout,
		IdleTimeout:    timeout,
		MaxHeaderBytes: httpHeaderBytes, // of whoever it is, before CONNECT
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			ws, err := upgrader.Upgrade(rw, r, nil)
			if err != nil {
				return // Upgrade has answered
			}
			w.hand(&wsConn{Conn: ws.NetConn(), ws: ws})
		}),
	}
	go func() {
		defer close(w.finished)
		w.err = w.server.Serve(l)
	}()
	return w
}

// hand gives a connection to Accept, or closes it.
func (w *wsListener) hand(conn net.Conn) {
	select {
	case w.upgraded <- conn:
	case <-w.closed:
		_ = conn.Close() // never used
	}
}

// Accept returns the next connection whose handshake has been done.
func (w *wsListener) Accept() (net.Conn, error) {
	select {
	case conn := <-w.upgraded:
		return conn, nil
	case <-w.finished:
		return nil, w.err
	}
}

// Close stops listening and ends handshakes; connections handed out live on.
func (w *wsListener) Close() error {
	var err error
	w.closing.Do(func() {
		close(w.closed)
		err = w.server.Close()
		<-w.finished
	})
	return err
}

// originAllowed keeps pages of foreign sites from using a visitor's browser to
// reach the broker. Programs other than browsers send no Origin.
func originAllowed(r *http.Request, allowed []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(allowed, "*") || slices.Contains(allowed, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

var errNotBinary = errors.New("WebSocket message is not binary")

// wsConn is a stream of bytes over WebSocket messages; packets may begin and
// end anywhere in them.
type wsConn struct {
	net.Conn // the connection below
	ws       *websocket.Conn
	message  io.Reader // the rest of the message being read; used by Read only

	deadline atomic.Pointer[time.Time] // of writes, nil for none
}

func (c *wsConn) Read(p []byte) (int, error) {
	for {
		if c.message == nil {
			kind, r, err := c.ws.NextReader()
			if err != nil {
				return 0, plain(err)
			}
			if kind != websocket.BinaryMessage { // [MQTT-6.0.0-1]
				return 0, errNotBinary
			}
			c.message = r
		}
		n, err := c.message.Read(p)
		if errors.Is(err, io.EOF) {
			c.message = nil
			err = nil
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, plain(err)
		}
	}
}

// plain returns the error of a read as other connections have it: the WebSocket layer
// hides that it is that of a deadline. Unlike them it reads no more after one.
func plain(err error) error {
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Write sends one message. It is for one goroutine at a time, as the hook keeps
// it: the flusher of the connection.
func (c *wsConn) Write(p []byte) (int, error) {
	var deadline time.Time
	if t := c.deadline.Load(); t != nil {
		deadline = *t
	}
	if err := c.ws.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	if err := c.ws.WriteMessage(websocket.BinaryMessage, p); err != nil { // [MQTT-6.0.0-1]
		return 0, err
	}
	return len(p), nil
}

// SetWriteDeadline bounds writes to come and the one that is under way.
func (c *wsConn) SetWriteDeadline(t time.Time) error {
	c.deadline.Store(&t) // the WebSocket layer sets its own with every write
	return c.Conn.SetWriteDeadline(t)
}

func (c *wsConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}
