package broker

import (
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// users let those in who know the word, as clients whose ids begin with their
// names. Everyone may publish to everything but plans, and read what is below chat.
type users struct{}

func (users) Connect(c Client, password []byte) bool {
	return c.Remote != "" && subtle.ConstantTimeCompare(password, []byte("word")) == 1 && users{}.owns(c.User, c.ID)
}

func (users) owns(user, id string) bool {
	return user != "" && (id == "" || strings.HasPrefix(id, user+"-"))
}
func (users) Publish(_ Client, topic string) bool    { return !strings.HasPrefix(topic, "plans") }
func (users) Subscribe(_ Client, filter string) bool { return strings.HasPrefix(filter, "chat/") }

// tokens are users who have a token each.
type tokens struct{ users }

func (t tokens) ConnectToken(c Client, token string) (string, bool) {
	for _, user := range []string{"alice", "bob"} {
		if subtle.ConstantTimeCompare([]byte(token), []byte("token of "+user)) == 1 {
			return user, c.User == "" && c.Remote != "" && t.owns(user, c.ID)
		}
	}
	return "", false
}

func bearer(token string) with { return header("Authorization", "Bearer "+token) }

// guarded is a broker with users, of whom alice has a session.
func guarded(t *testing.T, access Access) *face {
	o := httpOptions()
	o.Access = access
	f := serveHTTP(t, o)
	c := f.dial("alice-phone", func(o *mqtttest.Options) { o.Username, o.Password = "alice", "word" })
	c.Subscribe("chat/#", 1)
	c.Disconnect()
	c.WaitClosed()
	return f
}

func TestHTTPAuthentication(t *testing.T) {
	const path = "/v1/inboxes/alice-phone/messages"
	tests := []struct {
		name   string
		access Access
		path   string
		who    with
		status int
	}{
		{"the right password", users{}, path, as("alice", "word"), 200},
		{"a wrong password", users{}, path, as("alice", "guess"), 401},
		{"no password", users{}, path, as("alice", ""), 401},
		{"nobody", users{}, path, func(*http.Request) {}, 401},
		{"somebody else", users{}, path, as("bob", "word"), 401},
		{"somebody else's client in the query", users{}, "/v1/history?client=alice-phone", as("bob", "word"), 401},
		{"one's own client in the query", users{}, "/v1/history?client=bob-phone", as("bob", "word"), 200},
		{"no client", users{}, "/v1/history", as("bob", "word"), 200},
		{"a client that has no session", users{}, "/v1/inboxes/alice-desk/messages", as("alice", "word"), 404},
		{"no client, no user", users{}, "/v1/history", func(*http.Request) {}, 401},
		{"a user name that no client can have", users{}, path, as("al\x00ice", "word"), 401},
		{"two, of which the first is right", users{}, path, func(r *http.Request) {
			as("alice", "word")(r)
			r.Header.Add("Authorization", "Basic Ym9iOndvcmQ=")
		}, 401},
		{"two, of which the second is right", tokens{}, path, func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer x", "Bearer token of alice"}
		}, 401},
		{"half a header", users{}, path, header("Authorization", "Basic"), 401},
		{"no base64", users{}, path, header("Authorization", "Basic ???"), 401},
		{"another scheme", users{}, path, header("Authorization", "Digest username=alice"), 401},
		{"a scheme in small letters", users{}, path, header("Authorization", "basic YWxpY2U6d29yZA=="), 200},
		{"a token that nobody asks for", users{}, path, bearer("token of alice"), 401},
		{"the right token", tokens{}, path, bearer("token of alice"), 200},
		{"somebody else's token", tokens{}, path, bearer("token of bob"), 401},
		{"a wrong token", tokens{}, path, bearer("guess"), 401},
		{"no token", tokens{}, path, header("Authorization", "Bearer"), 401},
		{"a password where there are tokens", tokens{}, path, as("alice", "word"), 200},
		{"a token for history", tokens{}, "/v1/history", bearer("token of bob"), 200},
		{"what is open", users{}, "/health", func(*http.Request) {}, 200},
		{"the description", users{}, "/openapi.json", func(*http.Request) {}, 200},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := guarded(t, test.access)
			got := f.ask("GET", test.path, nil, test.who)
			if got.status != test.status {
				t.Fatalf("status %d, want %d: %s", got.status, test.status, got.body)
			}
			challenges := got.header.Values("WWW-Authenticate")
			_, knowsTokens := test.access.(TokenAccess)
			switch {
			case got.status != http.StatusUnauthorized:
				if len(challenges) > 0 {
					t.Errorf("it is challenged: %q", challenges)
				}
			case len(challenges) == 0 || challenges[0] != `Basic realm="mqtt-inbox", charset="UTF-8"` || (len(challenges) == 2) != knowsTokens:
				t.Errorf("challenges: %q", challenges)
			}
		})
	}
}

func TestHTTPAsksTheRules(t *testing.T) {
	f := guarded(t, users{})
	alice, bob := as("alice", "word"), as("bob", "word")
	if code := f.refused(http.StatusForbidden, "POST", "/v1/messages", PublishRequest{Topic: "plans"}, bob); code != pull.CodeForbidden {
		t.Errorf("code %q", code)
	}
	f.refused(http.StatusUnauthorized, "POST", "/v1/messages?client=alice-phone", PublishRequest{Topic: "chat/a"}, bob)
	f.publish("chat/a", "hello", bob)
	f.publish("secret/a", "psst", bob)
	messages := want[pull.MessagesAnswer](f, "GET", "/v1/history", nil, alice).Messages
	if len(messages) != 1 || messages[0].Sender != "bob" || messages[0].Payload != "hello" {
		t.Errorf("history: %+v", messages)
	}
	if code := f.refused(http.StatusForbidden, "GET", "/v1/history?topic=secret/a&sender=bob", nil, alice); code != pull.CodeForbidden {
		t.Errorf("code %q", code)
	}
	f.refused(http.StatusForbidden, "DELETE", "/v1/history?sender=alice", nil, alice) // she is no operator
	f.refused(http.StatusForbidden, "DELETE", "/v1/history/"+messages[0].ID, nil, alice)
	if n := want[pull.DeleteAnswer](f, "DELETE", "/v1/history/"+messages[0].ID, nil, bob).Deleted; n != 1 {
		t.Errorf("deleted: %d", n)
	}
}

// One may always read what one has sent, and of other things not that they exist.
func TestHTTPHistoryOfWhatOneSent(t *testing.T) {
	o := httpOptions()
	o.Access = users{}
	o.History = []inbox.Kept{{Filter: "#"}}
	o.Store = memory.New(memory.Options{History: o.History})
	f := serveHTTP(t, o)
	alice, bob := as("alice", "word"), as("bob", "word")
	f.publish("secret/a", "of alice", alice)
	f.publish("secret/a", "of bob", bob)
	if got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/history?topic=secret/%23", nil, alice).Messages); !slices.Equal(got, []string{"of alice"}) {
		t.Errorf("alice reads %v", got)
	}
}

// Without users everyone is who they say, from this machine.
func TestHTTPWithoutUsers(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	f.publish("chat/a", "1", as("bob", "anything"))
	if m := want[pull.MessagesAnswer](f, "GET", "/v1/history", nil).Messages; len(m) != 1 || m[0].Sender != "bob" {
		t.Errorf("history: %+v", m)
	}
	f.refused(http.StatusUnauthorized, "GET", "/v1/history", nil, bearer("x"))
	for host, status := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "127.0.0.1": 200, "127.1.2.3:80": 200, "[::1]:80": 200,
		"evil.example": 403, "evil.example:80": 403, "192.0.2.1": 403, "localhost.evil.example": 403,
	} {
		if got := f.ask("GET", "/v1/history", nil, func(r *http.Request) { r.Host = host }); got.status != status {
			t.Errorf("host %s: status %d, want %d", host, got.status, status)
		}
	}
}

func TestHTTPOrigins(t *testing.T) {
	o := httpOptions()
	o.Origins = []string{"https://app.example"}
	f := serveHTTP(t, o)
	site := func(s string) with { return header("Sec-Fetch-Site", s) }
	origin := func(s string) with { return header("Origin", s) }
	tests := []struct {
		name    string
		path    string
		changes []with
		status  int
	}{
		{"no browser", "/v1/history", nil, 200},
		{"welcome", "/v1/history", []with{origin("https://app.example"), site("cross-site")}, 200},
		{"foreign", "/v1/history", []with{origin("https://evil.example"), site("cross-site")}, 403},
		{"no site", "/v1/history", []with{origin("null")}, 403},
		{"its own page", "/v1/history", []with{origin(f.base), site("same-origin")}, 200},
		{"its own page, reading", "/v1/history", []with{site("same-origin")}, 200},
		{"typed in", "/v1/history", []with{site("none")}, 200},
		{"a link or an image on a foreign page", "/v1/history", []with{site("cross-site")}, 403},
		{"the same on a page of another port", "/v1/history", []with{site("same-site")}, 403},
		{"a link to what is open", "/openapi.json", []with{site("cross-site")}, 200},
	}
	for _, test := range tests {
		got := f.ask("GET", test.path, nil, test.changes...)
		if got.status != test.status {
			t.Errorf("%s: status %d, want %d: %s", test.name, got.status, test.status, got.body)
		}
		if vary := got.header.Get("Vary"); vary != "Origin" {
			t.Errorf("%s: Vary %q", test.name, vary)
		}
	}

	welcome := f.ask("POST", "/v1/messages", PublishRequest{Topic: "chat/a"}, origin("https://app.example"))
	if got := welcome.header.Get("Access-Control-Allow-Origin"); welcome.status != 200 || got != "https://app.example" {
		t.Errorf("status %d, allowed origin %q", welcome.status, got)
	}
	foreign := f.ask("POST", "/v1/messages", PublishRequest{Topic: "chat/a", Payload: "forged"}, origin("https://evil.example"))
	if got := foreign.header.Get("Access-Control-Allow-Origin"); foreign.status != 403 || got != "" {
		t.Errorf("status %d, allowed origin %q", foreign.status, got)
	}
	if m := want[pull.MessagesAnswer](f, "GET", "/v1/history", nil).Messages; len(m) != 1 || m[0].Payload != "" {
		t.Errorf("published: %+v", m)
	}
}

func TestHTTPPreflight(t *testing.T) {
	o := httpOptions()
	o.Origins = []string{"https://app.example"}
	o.Access = users{}
	f := serveHTTP(t, o)
	ask := func(origin string) answered {
		return f.ask("OPTIONS", "/v1/inboxes/alice-phone/mode", nil, header("Origin", origin), header("Access-Control-Request-Method", "PUT"))
	}
	got := ask("https://app.example")
	if got.status != http.StatusNoContent ||
		got.header.Get("Access-Control-Allow-Origin") != "https://app.example" ||
		got.header.Get("Access-Control-Allow-Methods") != "GET, POST, PUT, DELETE" ||
		got.header.Get("Access-Control-Allow-Headers") != "Authorization, Content-Type, Accept" {
		t.Errorf("welcome: status %d, header %v", got.status, got.header)
	}
	if got := ask("https://evil.example"); got.status != http.StatusForbidden || got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("foreign: status %d, header %v", got.status, got.header)
	}
	// A page is told why a request has failed, too.
	got = f.ask("GET", "/v1/inboxes/alice-phone/summary", nil, header("Origin", "https://app.example"))
	if got.status != http.StatusUnauthorized || got.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("without a password: status %d, header %v", got.status, got.header)
	}
}
