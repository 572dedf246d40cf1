package broker

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// apiPath begins the paths of all operations, and names their version.
const apiPath = "/v1/"

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
	{"GET", "/v1/inboxes/{client}/mode", operation(inPath(pull.OpMode))},
	{"PUT", "/v1/inboxes/{client}/mode", operation(inBody(pull.OpMode))},
	{"GET", "/v1/history", operation(inQuery(pull.OpHistory))},
	{"DELETE", "/v1/history", operation(inQuery(pull.OpDelete))},
	{"DELETE", "/v1/history/{id}", operation(inQuery(pull.OpDelete))},
	{"POST", "/v1/messages", operation((*api).publish)},
}

// refuseMethod answers a request for something that is there and cannot be done.
func (a *api) refuseMethod(w http.ResponseWriter, r *http.Request, allowed []string) {
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	a.fail(w, r, &pull.Error{Code: codeMethod, Message: fmt.Sprintf("%s cannot be done here; use %s", r.Method, list)})
}

// refusePath answers a request for something that is not there.
func (a *api) refusePath(w http.ResponseWriter, r *http.Request) {
	a.fail(w, r, &pull.Error{Code: codeNotFound, Message: "there is nothing at this path; GET / tells what there is"})
}

// operation makes a route of what is only for those who may ask, and has an
// answer.
func operation(carryOut func(*api, http.ResponseWriter, *http.Request, Client) (reply, error)) func(*api, http.ResponseWriter, *http.Request) {
	return func(a *api, w http.ResponseWriter, r *http.Request) {
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
		if answer.large {
			defer leave(a.large)
		} else if len(answer.body) > httpSmall { // to ask again is safe, whatever was done
			a.fail(w, r, &pull.Error{Code: pull.CodeBusy, Message: "too many large answers are under way; ask again later, or for less"})
			return
		}
		answer.write(w, http.StatusOK)
	}
}
