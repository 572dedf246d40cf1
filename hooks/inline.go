package hooks

import (
	"context"
	"strings"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The handlers of mqtt.Server.Subscribe stay in the MQTT library's index, from
// which it calls them for messages of QoS 0 and for its own. What goes through the
// store it is told to ignore, so each of them is a subscription of the program here
// too (local.go).

// inline names one of them, as the library does.
type inline struct {
	filter     string
	identifier int
}

// subscribeInline follows mqtt.Server.Subscribe. Runs on the caller's goroutine.
func (h *Hook) subscribeInline(sub packets.Subscription) {
	key := inline{sub.Filter, sub.Identifier}
	h.unsubscribeInline(key)
	if _, _, shared := inbox.Shared(sub.Filter); shared || isSystem(sub.Filter) {
		return // the one is for clients, the other for the library
	}
	ctx, cancel := context.WithTimeout(context.Background(), handover)
	defer cancel()
	s, err := h.openLocal(ctx, sub.Filter, func(e inbox.Entry) { h.callInline(key, e.Envelope) })
	if err != nil {
		h.log.Error("inline subscription not stored", "filter", sub.Filter, "error", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if other := h.inlines[key]; other != nil {
		other.cancel() // of another goroutine, which has subscribed meanwhile
	}
	h.inlines[key] = s
}

// unsubscribeInline ends it. A last call of the handler may be under way.
func (h *Hook) unsubscribeInline(key inline) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.inlines[key]; s != nil {
		s.cancel()
		delete(h.inlines, key)
	}
}

// callInline calls a handler. It is looked up by a topic that its filter is sure
// to match in the library's index, which knows but one for each identifier.
func (h *Hook) callInline(key inline, e *inbox.Envelope) {
	sure := strings.ReplaceAll(key.filter, "#", "+") // matches what + and # do
	for _, topic := range []string{sure, e.Topic} {
		found := h.server.Topics.Subscribers(topic).InlineSubscriptions[key.identifier]
		if found.Filter == key.filter && found.Handler != nil {
			program, _ := h.server.Clients.Get(mqtt.InlineClientId)
			found.Handler(program, found.Subscription, packetOf(e, e.QoS))
			return
		}
	}
}
