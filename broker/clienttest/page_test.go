package clienttest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
)

// What chat.html shows, as texts.
const (
	shownMessages = `[...document.querySelectorAll('#messages li')].map((li) => li.lastChild.textContent).join(' ')`
	shownNew      = `[...document.querySelectorAll('#messages li.new')].map((li) => li.lastChild.textContent).join(' ')`
	shownOwn      = `[...document.querySelectorAll('#messages li.own')].map((li) => li.lastChild.textContent).join(' ')`
	shownWaiting  = `[...document.querySelectorAll('#waiting li')].map((li) => li.textContent).join(' ')`
	shownUnread   = `document.querySelector('#unread').textContent`
	shownState    = `document.querySelector('#state').textContent`
)

// serveExamples serves examples/js, with MQTT.js as npm has installed it for these tests.
func serveExamples(t *testing.T) (origin string) {
	t.Helper()
	files := http.NewServeMux()
	files.Handle("/", http.FileServer(http.Dir("../../examples/js")))
	files.Handle("/node_modules/", http.FileServer(http.Dir("testdata")))
	server := httptest.NewServer(files)
	t.Cleanup(server.Close)
	return server.URL
}

func (p *page) say(text string) {
	p.t.Helper()
	p.do(`document.querySelector('input').value = '` + text + `'; document.querySelector('form').requestSubmit()`)
}

// The page of examples/js in a real browser, over WebSocket: what waited is announced, shown and
// acknowledged; what is live is shown; what is written is published once, though the broker is
// killed and the page loaded anew; and a page loaded anew shows the conversation.
func TestChatPage(t *testing.T) {
	needMQTTjs(t)
	needChromium(t)
	origin := serveExamples(t)
	b := brokertest.Start(t, brokertest.Options{WebSocket: true, Args: []string{"--history", "chat/#", "--origin", origin}})
	away(t, b, "alice", "chat/tea")
	bob := connectDevice(t, b, deviceOptions{id: "bob", subscribe: "chat/tea"})
	bob.publish("chat/tea", "one", "two", "three")
	bob.publish("chat/coffee", "else")

	query := url.Values{"broker": {"ws://" + b.WebSocket}, "me": {"alice"}, "room": {"tea"}}
	p := openPage(t, origin+"/chat.html?"+query.Encode())
	p.shows(shownUnread, "3 unread")
	p.shows(shownMessages, "one two three")
	p.shows(shownNew, "one two three")

	bob.publish("chat/tea", "live")
	p.shows(shownMessages, "one two three live")
	p.say("hello")
	p.shows(shownMessages, "one two three live hello")
	p.shows(shownOwn, "hello")
	p.shows(shownWaiting, "")

	p.reload() // nothing is unread any more, and history has the conversation
	p.shows(shownMessages, "one two three live hello")
	p.shows(shownUnread, "")
	p.shows(shownNew, "")

	b.Kill()
	p.shows(shownState, "not connected")
	p.say("later")
	p.shows(shownWaiting, "later")
	p.reload() // what waits is in the page's storage
	b.Restart()
	p.shows(shownMessages, "one two three live hello later")
	p.shows(shownWaiting, "")
}
