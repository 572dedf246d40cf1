package broker

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// apiPath begins the paths of all operations, and names their version.
const apiPath = "/v1/"

// What operations may take together: each that is under way, until its answer is
// written, may hold a page of messages.
const (
	httpRequests = 64
	httpAnswer   = 8 << 20 // bytes of an answer
)

// route is one thing that can be asked for over HTTP.
type route struct {
	method, path string
	serve        func(*api, http.ResponseWriter, *http.Request)
}

// routes are all of them; openapi.json describes the same.
var routes = []route{
	{"GET", "/{$}", (*api).index},
	{"GET", "/openapi.json", (*api).openAPI},
	{"GET", "/health", (*api).health},
	{"GET", "/v1/inboxes/{client}/summary", operation(inQuery(pull.OpSummary))},
	{"GET", "/v1/inboxes/{client}/messages", operation(inQuery(pull.OpPull))},
	{"POST", "/v1/inboxes/{client}/acknowledge", operation(inBody(pull.OpAck))},
	{"PUT", "/v1/inboxes/{client}/mode", operation(inBody(pull.OpMode))},
	{"GET", "/v1/history", operation(inQuery(pull.OpHistory))},
	{"DELETE", "/v1/history", operation(inQuery(pull.OpDelete))},
	{"DELETE", "/v1/history/{id}", operation(inQuery(pull.OpDelete))},
	{"POST", "/v1/messages", operation((*api).publish)},
}

// api answers requests over HTTP, for all listeners together.
type api struct {
	broker  *Broker
	service *pull.Service
	access  Access
	local   bool     // there are no users, so it is for programs of this machine alone
	origins []string // see Options.Origins
	log     *slog.Logger
	mux     *http.ServeMux
	slots   chan struct{} // holds one for each operation under way

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
		slots:   make(chan struct{}, httpRequests),
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

// refuseMethod answers a request for something that is there and cannot be done.
func (a *api) refuseMethod(w http.ResponseWriter, r *http.Request, allowed []string) {
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	a.fail(w, r, &pull.Error{Code: codeMethod, Message: fmt.Sprintf("%s cannot be done here; use %s", r.Method, list)})
}

// refusePath answers a request for something that is not there.
func (a *api) refusePath(w http.ResponseWriter, r *http.Request) {
	a.fail(w, r, &pull.Error{Code: pull.CodeNotFound, Message: "there is nothing at this path; GET / tells what there is"})
}

// operation makes a route of what is only for those who may ask, and has an
// answer.
func operation(carryOut func(*api, http.ResponseWriter, *http.Request, Client) (reply, error)) func(*api, http.ResponseWriter, *http.Request) {
	return func(a *api, w http.ResponseWriter, r *http.Request) {
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
		default:
			a.fail(w, r, &pull.Error{Code: pull.CodeBusy, Message: "too many requests are under way; ask again later"})
			return
		}
		client, err := a.identify(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		answer, err := carryOut(a, w, r, client)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		answer.write(w, http.StatusOK)
	}
}
