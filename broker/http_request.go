package broker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// Parameters that are not fields of a request: they say whom it is about, and what.
const (
	parameterClient = "client" // in the path of an inbox, and elsewhere in the query
	parameterID     = "id"     // in the path
)

// inQuery carries out an operation whose request is the query: the parameters are
// its fields.
func inQuery(operation string) func(*api, http.ResponseWriter, *http.Request, Client) (reply, error) {
	return func(a *api, _ http.ResponseWriter, r *http.Request, c Client) (reply, error) {
		fields, err := queryOf(r)
		if err != nil {
			return reply{}, err
		}
		if r.PathValue(parameterClient) == "" {
			delete(fields, parameterClient)
		}
		if id := r.PathValue(parameterID); id != "" {
			fields[parameterID] = id
		}
		request, err := encode(formOf(r), fields)
		if err != nil {
			return reply{}, err
		}
		return a.ask(r, c, operation, request.form, request.body)
	}
}

// inPath carries out an operation whose request has no fields.
func inPath(operation string) func(*api, http.ResponseWriter, *http.Request, Client) (reply, error) {
	return func(a *api, _ http.ResponseWriter, r *http.Request, c Client) (reply, error) {
		if err := noQuery(r); err != nil {
			return reply{}, err
		}
		return a.ask(r, c, operation, formOf(r), nil)
	}
}

// queryOf returns the parameters of a query as the fields of a request. What is
// not as it should be the service says.
func queryOf(r *http.Request) (map[string]any, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query is not well formed: %v", err)
	}
	fields := make(map[string]any, len(values))
	for name, value := range values {
		switch {
		case len(value) > 1:
			return nil, badRequest("%.40q is there %d times; send it once", name, len(value))
		case !utf8.ValidString(name), !utf8.ValidString(value[0]):
			return nil, badRequest("%.40q is not UTF-8", name)
		}
		fields[name] = valueOf(name, value[0])
	}
	return fields, nil
}

// valueOf returns what a text stands for in the field of that name.
func valueOf(name, text string) any {
	switch name {
	case "limit", "max_bytes":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			return n // or the nearest there is
		}
	case "ack":
		if text == "true" || text == "false" {
			return text == "true"
		}
	}
	return text
}

// inBody carries out an operation whose request is the body.
func inBody(operation string) func(*api, http.ResponseWriter, *http.Request, Client) (reply, error) {
	return func(a *api, w http.ResponseWriter, r *http.Request, c Client) (reply, error) {
		if err := noQuery(r); err != nil {
			return reply{}, err
		}
		body, err := readBody(w, r, pull.MaxRequest)
		if err != nil {
			return reply{}, err
		}
		return a.ask(r, c, operation, r.Header.Get("Content-Type"), body)
	}
}

// noQuery refuses parameters that mean nothing where the request is the body.
func noQuery(r *http.Request, but ...string) error {
	fields, err := queryOf(r)
	if err != nil {
		return err
	}
	for name := range fields {
		if !slices.Contains(but, name) {
			return badRequest("there is no parameter %.40q here; what is to be done goes into the body", name)
		}
	}
	return nil
}

// readBody reads a body of at most most bytes.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, &pull.Error{Code: pull.CodeTooLarge, Message: "the request has more than " + strconv.FormatInt(most, 10) + " bytes"}
	case err != nil:
		return nil, badRequest("the request did not come to its end")
	}
	return body, nil
}

// ask has the service carry out an operation, whose request has a content type and a
// body.
func (a *api) ask(r *http.Request, c Client, operation, form string, body []byte) (reply, error) {
	nobody := c.ID == "" && c.User == ""
	if nobody && !a.local && (a.access != nil || operation == pull.OpDelete) {
		return reply{}, badRequest("say who asks: send a user name, or a client id, as in ?client=phone")
	}
	asker := pull.Asker{
		Receiver:  inbox.Receiver(c.ID),
		User:      c.User,
		Operator:  a.local,
		MaxAnswer: httpAnswer,

		Acknowledged: func() { a.broker.hook.Acknowledged(c.ID, c.User) },
	}
	var answer reply
	large := enter(a.large) // before it takes memory
	defer func() {
		if large {
			leave(a.large)
		}
	}()
	if !large {
		asker.MaxPage = httpPage
	}
	err := a.work(r, func(ctx context.Context) error {
		var failed *pull.Error
		answer.body, answer.form, failed = a.service.Try(ctx, asker, operation, body, form)
		if failed != nil {
			return failed
		}
		return nil
	})
	if err == nil && answer.form == pull.TypeJSON {
		answer.body = append(answer.body, '\n') // for those who read it in a terminal
	}
	if answer.large = large && err == nil && len(answer.body) > httpSmall; answer.large {
		large = false // it is left when the answer is written
	}
	return answer, err
}
