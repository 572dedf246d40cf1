package broker

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// What a connection over HTTP may take. The time for a header is ConnectTimeout.
const (
	httpHeaderBytes = 32 << 10         // request line and header
	httpReadTime    = 30 * time.Second // from the first byte of a request to its last
	httpWriteTime   = 60 * time.Second // from the end of its header to the last byte of the answer
	httpIdleTime    = 2 * time.Minute  // between two requests

	// httpGrace is how long requests that have begun may take when the broker
	// stops, if StopTimeout allows it.
	httpGrace = 2 * time.Second
)

// httpListener serves HTTP on one address. It owns the goroutine that accepts,
// and the connections.
type httpListener struct {
	listener net.Listener
	server   *http.Server
	cancel   context.CancelFunc // ends what is asked of the store

	accepting sync.WaitGroup // the goroutine that accepts

	mu       sync.Mutex            // guards what follows
	silent   map[net.Conn]struct{} // connections that have not sent a byte yet
	stopping bool
}

// newHTTPListener serves on l, once it is started, and takes it over.
func newHTTPListener(l net.Listener, handler http.Handler, o Options) *httpListener {
	ctx, cancel := context.WithCancel(context.Background())
	h := &httpListener{
		listener: l,
		cancel:   cancel,
		silent:   make(map[net.Conn]struct{}),
	}
	h.server = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: min(o.ConnectTimeout, httpReadTime),
		ReadTimeout:       httpReadTime,
		WriteTimeout:      httpWriteTime,
		IdleTimeout:       httpIdleTime,
		MaxHeaderBytes:    httpHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState:         h.note,
		ErrorLog:          quietLog(o.Log),
	}
	h.server.RegisterOnShutdown(h.cutSilent)
	return h
}

// quietLog is for what the HTTP server says about clients that misbehave.
func quietLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// start accepts connections until stop, and calls failed if it cannot any more.
func (h *httpListener) start(failed func(error)) {
	h.accepting.Go(func() {
		if err := h.server.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	})
}

// note keeps account of the connections that have not asked for anything: the
// server would wait for them when it stops. Runs on goroutines of the server.
func (h *httpListener) note(conn net.Conn, state http.ConnState) {
	h.mu.Lock()
	late := h.stopping && state == http.StateNew
	if state == http.StateNew {
		h.silent[conn] = struct{}{}
	} else {
		delete(h.silent, conn)
	}
	h.mu.Unlock()
	if late {
		_ = conn.Close() // nothing was said on it
	}
}

// cutSilent closes those connections. Runs on a goroutine of the server.
func (h *httpListener) cutSilent() {
	h.mu.Lock()
	h.stopping = true
	silent := slices.Collect(maps.Keys(h.silent))
	h.mu.Unlock()
	for _, conn := range silent {
		_ = conn.Close() // nothing was said on it
	}
}

// stop takes no more requests, waits for those that have begun until ctx ends,
// and then cuts off what is left.
func (h *httpListener) stop(ctx context.Context) {
	if err := h.server.Shutdown(ctx); err != nil {
		_ = h.server.Close() // the same error, or that of a connection that is gone
	}
	_ = h.listener.Close() // closed already, unless it was never started
	h.cancel()
	h.accepting.Wait()
}
