package broker

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// admitOrigin keeps pages of foreign sites from using a visitor's browser to
// reach the broker, and tells the browser what pages that are welcome may do.
func (a *api) admitOrigin(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Origin")
	if a.local && !isLoopback(hostname(r.Host)) {
		// A foreign page may have this machine's address under a name of its own.
		return &pull.Error{Code: pull.CodeForbidden, Message: fmt.Sprintf("without users only requests to this machine by its own names are answered, as 127.0.0.1 and localhost, not %q", r.Host)}
	}
	origin := r.Header.Get("Origin")
	// Requests of a page for what it only shows or links to have no origin, but say so.
	site := r.Header.Get("Sec-Fetch-Site")
	hidden := origin == "" && (site == "cross-site" || site == "same-site") && strings.HasPrefix(r.URL.Path, apiPath)
	if hidden && !slices.Contains(a.origins, "*") || !originAllowed(r, a.origins) {
		return &pull.Error{Code: pull.CodeForbidden, Message: "pages of this site may not ask here; the operator can allow it with --origin"}
	}
	if origin != "" {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "Retry-After")
	}
	return nil
}

// preflight answers a browser that asks whether a page may send a request.
func preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// hostname returns the host of a Host header, without its port.
func hostname(host string) string {
	u := url.URL{Host: host}
	return u.Hostname()
}
