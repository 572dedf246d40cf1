package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// Codes of errors that only HTTP has.
const (
	codeUnauthenticated = "unauthenticated"
	codeNotFound        = "not_found" // there is nothing at this path
	codeMethod          = "method_not_allowed"
)

// errPanic is that of a request that panicked, which was logged.
var errPanic = pull.ErrorOf(errors.New("panic"))

// httpStatus is the status that goes with the code of an error.
func httpStatus(code string) int {
	switch code {
	case pull.CodeBadRequest, pull.CodeBadCursor:
		return http.StatusBadRequest
	case codeUnauthenticated:
		return http.StatusUnauthorized
	case pull.CodeForbidden:
		return http.StatusForbidden
	case codeNotFound, pull.CodeUnknownOperation, pull.CodeUnknownID, pull.CodeNoSession:
		return http.StatusNotFound
	case codeMethod:
		return http.StatusMethodNotAllowed
	case pull.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case pull.CodeBusy:
		return http.StatusTooManyRequests
	case pull.CodeUnavailable:
		return http.StatusServiceUnavailable
	case pull.CodeFull:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

func badRequest(format string, args ...any) error {
	return &pull.Error{Code: pull.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// fail answers a request that has failed.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	told := pull.ErrorOf(err)
	status := httpStatus(told.Code)
	switch status {
	case http.StatusUnauthorized:
		a.challenge(w.Header())
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusInternalServerError:
		if !errors.As(err, new(*pull.Error)) { // the service has logged it
			a.log.Error("request over HTTP failed", "route", r.Pattern, "error", err)
		}
	}
	answer, err := encode(formOf(r), pull.ErrorAnswer{Error: told})
	if err != nil { // two texts can always be encoded
		a.log.Error("answer over HTTP not encoded", "route", r.Pattern, "error", err)
	}
	answer.write(w, status)
}

// reply is an answer as it goes out.
type reply struct {
	form  string // its Content-Type
	body  []byte
	large bool // it has one of the places of large answers
}

func (p reply) write(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", p.form)
	w.WriteHeader(status)
	_, _ = w.Write(p.body) // the client may be gone, as the server sees itself
}

// formOf returns the form of the answer to a request: that of its body, and
// without one msgpack for who accepts that, and JSON for everyone else.
func formOf(r *http.Request) string {
	kinds := r.Header.Get("Content-Type")
	if kinds == "" {
		kinds = r.Header.Get("Accept")
	}
	for kind := range strings.SplitSeq(kinds, ",") {
		if pull.IsMsgpack(kind) {
			return pull.TypeMsgpack
		}
	}
	return pull.TypeJSON
}

// encode makes an answer of a value.
func encode(form string, answer any) (reply, error) {
	if form == pull.TypeMsgpack {
		body, err := msgpack.Marshal(answer)
		return reply{form: form, body: body}, err
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // it is no page
	err := enc.Encode(answer)
	return reply{form: form, body: body.Bytes()}, err
}
