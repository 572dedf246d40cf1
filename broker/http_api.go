package broker

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// What operations may take together. Clients that send or read slowly take nothing
// of it from others, but for that of large answers.
const (
	httpRequests = 64               // are with the store at a time
	httpWorkTime = 30 * time.Second // until it has answered

	httpAnswer = 8 << 20            // bytes of an answer
	httpSmall  = 256 << 10          // bytes that any number of answers may have
	httpLarge  = 16                 // answers of more at a time, until they are written
	httpPage   = httpSmall - 16<<10 // bytes of messages in answers that are not to be more
)

// api answers requests over HTTP, for all listeners together.
type api struct {
	broker  *Broker
	service *pull.Service
	access  Access
	local   bool     // there are no users, so it is for programs of this machine alone
	origins []string // see Options.Origins
	log     *slog.Logger
	mux     *http.ServeMux

	requests chan struct{} // holds one for each operation that is with the store
	large    chan struct{} // holds one for each large answer
	workTime time.Duration // httpWorkTime; tests have less

	mu       sync.Mutex // guards stopping, and that nothing begins once it is set
	stopping bool
	under    sync.WaitGroup // requests under way
}

func newAPI(b *Broker) *api {
	a := &api{
		broker:  b,
		service: b.service,
		access:  b.options.Access,
		local:   b.options.Access == nil && !b.options.AllowAnonymous,
		origins: b.options.Origins,
		log:     b.options.Log,
		mux:     http.NewServeMux(),

		requests: make(chan struct{}, httpRequests),
		large:    make(chan struct{}, httpLarge),
		workTime: httpWorkTime,
	}
	methods := make(map[string][]string)
	for _, r := range routes {
		methods[r.path] = append(methods[r.path], r.method)
		a.mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, q *http.Request) { r.serve(a, w, q) })
	}
	for path, allowed := range methods {
		slices.Sort(allowed)
		refuse := func(w http.ResponseWriter, q *http.Request) { a.refuseMethod(w, q, allowed) }
		a.mux.HandleFunc(path, refuse)
		if strings.HasPrefix(path, apiPath) && slices.Contains(allowed, http.MethodGet) {
			a.mux.HandleFunc("HEAD "+path, refuse) // which would do what GET does, and not tell
		}
	}
	a.mux.HandleFunc("/", a.refusePath)
	return a
}

// ServeHTTP implements [http.Handler]. Runs on the goroutine of a connection.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.begin() {
		a.fail(w, r, inbox.ErrClosed)
		return
	}
	defer a.under.Done()
	defer a.survive(w, r)
	h := w.Header()
	h.Set("Cache-Control", "no-store") // what is unread changes, and is nobody else's
	h.Set("X-Content-Type-Options", "nosniff")
	if err := a.admitOrigin(w, r); err != nil {
		a.fail(w, r, err)
		return
	}
	if !preflight(w, r) {
		a.mux.ServeHTTP(w, r)
	}
}

// begin reports whether a request may begin. The caller is under way from then on.
func (a *api) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stopping {
		a.under.Add(1)
	}
	return !a.stopping
}

// wait returns when nothing is under way, and lets nothing begin.
func (a *api) wait() {
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
	a.under.Wait()
}

// survive is deferred: a panic ends one request.
func (a *api) survive(w http.ResponseWriter, r *http.Request) {
	if p := recover(); p != nil {
		a.log.Error("request over HTTP failed", "method", r.Method, "path", r.Pattern, "panic", p, "stack", string(debug.Stack()))
		a.fail(w, r, errPanic)
	}
}

// work does what takes the store, if there is room for one more. It gives up when
// the client is gone.
func (a *api) work(r *http.Request, do func(context.Context) error) error {
	if !enter(a.requests) {
		return &pull.Error{Code: pull.CodeBusy, Message: "too many requests are under way; ask again later"}
	}
	defer leave(a.requests)
	ctx, cancel := context.WithTimeout(r.Context(), a.workTime)
	defer cancel()
	return do(ctx)
}

// enter takes one of the places that a channel has, if there is one.
func enter(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func leave(places chan struct{}) { <-places }
