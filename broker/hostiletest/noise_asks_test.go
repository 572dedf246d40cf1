package hostiletest

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"

	"github.com/mochi-mqtt/server/v2/packets"
)

// hearsay is what the broker has told anybody that can be asked for by others: ids and
// cursors. It keeps the last of them.
type hearsay struct {
	mu    sync.Mutex
	words [64]string
	n     int
}

var telling = regexp.MustCompile(`"(?:id|next)":"([^"]+)"`)

// Write implements [io.Writer] for what a link reads. A word that is cut in two is not heard.
func (h *hearsay) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, found := range telling.FindAllSubmatch(b, -1) {
		h.words[h.n%len(h.words)] = string(found[1])
		h.n++
	}
	return len(b), nil
}

func (h *hearsay) word(r *rand.Rand) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.words[r.IntN(len(h.words))]
}

// request is what a client asks of its inbox, about itself and others.
func (g generator) request() (topic string, payload []byte) {
	fields := map[string]func() any{
		"limit":     func() any { return g.IntN(12) - 1 },
		"max_bytes": func() any { return g.IntN(2000) },
		"order":     func() any { return g.choose("asc", "desc", "up") },
		"sender":    func() any { return g.choose(noisyID(g.IntN(noisyIDs)), "nobody") },
		"topic":     func() any { return g.filter() },
		"after":     func() any { return g.bound() },
		"before":    func() any { return g.bound() },
		"ack":       func() any { return g.one(2) },
		"through":   func() any { return g.bound() },
		"ids":       func() any { return []string{g.heard.word(g.Rand), g.heard.word(g.Rand)} },
		"id":        func() any { return g.heard.word(g.Rand) },
		"all":       func() any { return true },
		"mode":      func() any { return g.choose("push", "pull", "pull", "pop") },
	}
	of := map[string][]string{
		"summary": {"limit", "after"},
		"pull":    {"limit", "max_bytes", "order", "sender", "topic", "after", "before", "ack"},
		"ack":     {"through", "ids", "all", "sender", "topic"},
		"history": {"limit", "max_bytes", "order", "sender", "topic", "after", "before"},
		"mode":    {"mode"},
		"delete":  {"id"},
		"steal":   slices.Sorted(maps.Keys(fields)),
	}
	operation := g.choose("summary", "pull", "pull", "ack", "ack", "history", "mode", "delete", "steal")
	request := map[string]any{}
	for _, name := range of[operation] {
		if g.one(3) || len(of[operation]) == 1 {
			request[name] = fields[name]()
		}
	}
	if g.fault() {
		return "$inbox/" + operation, g.bytes(50)
	}
	payload, err := json.Marshal(request)
	if err != nil {
		panic(err) // there is nothing in it that JSON does not have
	}
	return "$inbox/" + operation, payload
}

// bound is where a page begins or ends.
func (g generator) bound() string {
	heard := func() string { return g.heard.word(g.Rand) }
	return g.choose(heard(), heard(), "0", "2026-01-01T00:00:00Z", "2126-01-01T00:00:00Z", "yesterday")
}

// wishes are the user properties of a CONNECT that concern the inbox.
func (g generator) wishes() (all []packets.UserProperty) {
	for _, wish := range []packets.UserProperty{
		{Key: "inbox-mode", Val: g.choose("push", "pull")},
		{Key: "inbox-from", Val: g.choose("0", g.heard.word(g.Rand), "2126-01-01T00:00:00Z")},
		{Key: "inbox-metadata", Val: "on"},
		{Key: "inbox-watch", Val: "on"},
	} {
		if g.fault() {
			wish.Val = g.bound()
		}
		if g.one(5) {
			all = append(all, wish)
		}
	}
	return all
}
