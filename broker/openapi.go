package broker

import (
	_ "embed"
	"io"
	"net/http"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// openAPIDocument describes everything that can be asked for over HTTP. Its tests hold it
// to the routes and to the types of requests and answers.
//
//go:embed openapi.json
var openAPIDocument []byte

// openAPI answers with the description of all routes.
func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) {
	reply{form: pull.TypeJSON, body: openAPIDocument}.write(w, http.StatusOK)
}

// indexText is what a person is told who looks.
const indexText = `mqtt-inbox

GET    /v1/inboxes/{client}/summary      what is unread, by sender and by topic
GET    /v1/inboxes/{client}/messages     a page of it; after=NEXT acknowledges the page before and asks for the next
POST   /v1/inboxes/{client}/acknowledge  {"ids": [...]}, {"through": NEXT or ID}, {"topic": FILTER}, {"sender": NAME} or {"all": true}
GET    /v1/inboxes/{client}/mode         whether its backlog is pushed, or waits to be pulled
PUT    /v1/inboxes/{client}/mode         {"mode": "pull"} or {"mode": "push"}
GET    /v1/history                       kept messages, newest first; topic=FILTER
DELETE /v1/history/{id}                  take away the content of a message of one's own
DELETE /v1/history                       that of all messages of sender=NAME, for operators
POST   /v1/messages                      {"topic": "a/b", "payload": "hello"}
GET    /health
GET    /openapi.json                     all of this, for programs

Where the broker has users, send the user name and the password of the MQTT client: curl -u USER:PASSWORD ...
`

// index tells a person what there is.
func (a *api) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, indexText) // the client may be gone, as the server sees itself
}

// health tells that the broker is there. It is for programs that watch it.
func (a *api) health(w http.ResponseWriter, _ *http.Request) {
	reply{form: pull.TypeJSON, body: []byte(`{"status":"ok"}` + "\n")}.write(w, http.StatusOK)
}
