package broker

import (
	"net/http"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// TokenAccess is what an [Access] has that knows bearer tokens, which requests
// over HTTP may bring in the place of a user name and a password. It is called as
// the methods of Access are.
type TokenAccess interface {
	// ConnectToken reports whether who brings a token may act as the client c, and
	// as which user. c.User is empty, and c.ID too if the request names no client.
	// The token must not be kept or logged, and be compared in constant time.
	ConnectToken(c Client, token string) (user string, ok bool)
}

// unauthenticated says the same whatever was wrong: who guesses learns nothing.
var unauthenticated = &pull.Error{
	Code:    codeUnauthenticated,
	Message: "these credentials do not let you in as this client; send the user name and the password that it connects with over MQTT",
}

// identify makes sure who asks: as which client is in the path or in the query.
func (a *api) identify(r *http.Request) (Client, error) {
	c := Client{ID: r.PathValue(parameterClient), Remote: r.RemoteAddr}
	if c.ID == "" {
		c.ID = r.URL.Query().Get(parameterClient)
	}
	if err := hooks.CheckText("client id", c.ID); err != nil {
		return c, badRequest("%v", err) // which no client has, but the broker may have itself
	}
	if len(r.Header.Values("Authorization")) > 1 {
		return c, unauthenticated // whoever is in front may have looked at another one
	}
	scheme, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	admitted := false
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		if tokens, ok := a.access.(TokenAccess); ok {
			c.User, admitted = tokens.ConnectToken(c, strings.TrimSpace(credentials))
		}
	case scheme == "", strings.EqualFold(scheme, "Basic"):
		user, password, sent := r.BasicAuth()
		if sent == (scheme != "") && hooks.CheckText("user name", user) == nil {
			c.User = user
			admitted = a.access == nil || a.access.Connect(c, passwordOf(password, sent))
		}
	}
	if !admitted {
		return c, unauthenticated
	}
	return c, nil
}

// passwordOf returns nil for none, as a client over MQTT has that sends none.
func passwordOf(password string, sent bool) []byte {
	if !sent {
		return nil
	}
	return []byte(password)
}

// challenge tells a client how it may say who it is.
func (a *api) challenge(h http.Header) {
	h.Add("WWW-Authenticate", `Basic realm="mqtt-inbox", charset="UTF-8"`)
	if _, ok := a.access.(TokenAccess); ok {
		h.Add("WWW-Authenticate", `Bearer realm="mqtt-inbox"`)
	}
}

// readRules asks an [Access] whether somebody may read a topic.
type readRules struct{ access Access }

// MayRead implements [pull.Rules].
func (r readRules) MayRead(a pull.Asker, topic string) bool {
	return r.access.Subscribe(Client{ID: string(a.Receiver), User: a.User}, topic)
}
