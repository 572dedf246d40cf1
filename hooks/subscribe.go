package hooks

import (
	"errors"
	"strings"
	"sync/atomic"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// subscribing is what passes from one callback of the MQTT library to the next
// while it works on one SUBSCRIBE or UNSUBSCRIBE packet. It belongs to the
// connection's read goroutine.
type subscribing struct {
	asked         []packets.Subscription // the filters of the SUBSCRIBE at hand, as the client sent them
	codes         []packets.Code         // for those that are refused; nil if none
	last          int                    // of history, for each of them
	reason        string                 // why they are refused, "" if the codes say enough
	unsubscribing bool                   // an UNSUBSCRIBE is at hand, not the end of the connection
	unsuback      []byte                 // its reason codes
}

// OnSubscribe marks the filters that are refused, by taking their text away:
// the MQTT library checks too little, and refuses an empty one. It also keeps
// the library from sending retained messages, which the store does, except for
// the server's own.
func (h *Hook) OnSubscribe(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	l := linkOf(cl)
	if l == nil {
		return pk
	}
	filters := make(packets.Subscriptions, len(pk.Filters))
	l.subscribing.asked, l.subscribing.codes = pk.Filters, nil
	l.subscribing.last, l.subscribing.reason = readLast(pk.Properties.User)
	for i, sub := range pk.Filters {
		code := checkFilter(sub.Filter)
		if l.subscribing.reason != "" {
			code = packets.ErrImplementationSpecificError
		}
		if code != packets.CodeSuccess {
			if l.subscribing.codes == nil {
				l.subscribing.codes = make([]packets.Code, len(pk.Filters))
			}
			l.subscribing.codes[i] = code
			sub.Filter = ""
		}
		if !isSystem(sub.Filter) {
			sub.RetainHandling = 2
		}
		sub.NoLocal = sub.NoLocal || l.bridge
		filters[i] = sub
	}
	pk.Filters = filters
	return pk
}

// OnSubscribed adds the granted subscriptions to the session before SUBACK is
// sent, so that SUBACK says that they are stored and that every message
// published from now on is matched [MQTT-3.8.4-1]. codes is what SUBACK will say.
func (h *Hook) OnSubscribed(cl *mqtt.Client, pk packets.Packet, codes []byte) {
	l := linkOf(cl)
	if l == nil && cl.ID == mqtt.InlineClientId {
		for _, sub := range pk.Filters {
			h.subscribeInline(sub)
		}
	}
	if l == nil || l.session == nil {
		return
	}
	if l.v5 { // older clients have 0x80 alone [MQTT-3.9.3-2]
		for i, code := range l.subscribing.codes {
			if code != (packets.Code{}) {
				codes[i] = code.Code
			}
		}
	}

	subs := make([]inbox.Subscription, 0, len(codes))
	for i, sub := range l.subscribing.asked {
		if codes[i] > 2 || isInbox(sub.Filter) { // what a client asks its inbox is answered anyway
			continue
		}
		last := l.subscribing.last
		if mqtt.IsSharedFilter(sub.Filter) {
			last = 0
		}
		subs = append(subs, inbox.Subscription{
			Filter:            sub.Filter,
			QoS:               codes[i],
			NoLocal:           sub.NoLocal || l.bridge,
			RetainAsPublished: sub.RetainAsPublished || l.bridge,
			RetainHandling:    sub.RetainHandling,
			Identifier:        uint32(sub.Identifier),
			Last:              last,
		})
	}
	if len(subs) == 0 {
		return
	}
	ctx, cancel := l.patience()
	defer cancel()
	l.out.hold() // until SUBACK is on its way
	existed, err := l.session.inbox.Subscribe(ctx, subs...)
	switch {
	case errors.Is(err, inbox.ErrFull) && existed == nil:
		h.log.Warn("subscription not stored", "client", cl.ID, "error", err)
		h.refuseSubscriptions(l, pk.Filters, codes)
		return
	case err != nil:
		// Some may be stored. A client that is told that none is would be sent
		// messages that it does not expect; one that is told nothing asks again.
		h.log.Error("subscription not stored", "client", cl.ID, "error", err)
		l.end(packets.ErrUnspecifiedError)
		return
	}
	for i := range subs {
		l.indexed(subs[i].Filter, subs[i].NoLocal)
	}
	l.session.joinGroups(subs)
}

// refuseSubscriptions says in a SUBACK that the store has no room for those that
// were granted.
func (h *Hook) refuseSubscriptions(l *link, filters packets.Subscriptions, codes []byte) {
	code := packets.ErrUnspecifiedError.Code // the only one there is before MQTT 5 [MQTT-3.9.3-2]
	if l.v5 {
		code = packets.ErrQuotaExceeded.Code
	}
	for i, sub := range filters {
		if codes[i] <= 2 {
			codes[i] = code
			h.unindex(l.client, sub.Filter)
		}
	}
}

// OnUnsubscribe notes that it is the client who unsubscribes. The MQTT library
// calls OnUnsubscribed also for a connection that ends.
func (h *Hook) OnUnsubscribe(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	if l := linkOf(cl); l != nil {
		l.subscribing.unsubscribing = true
	}
	return pk
}

// OnUnsubscribed removes subscriptions from the session before UNSUBACK is sent
// [MQTT-3.10.4-4].
func (h *Hook) OnUnsubscribed(cl *mqtt.Client, pk packets.Packet) {
	l := linkOf(cl)
	if l == nil && cl.ID == mqtt.InlineClientId {
		for _, sub := range pk.Filters {
			h.unsubscribeInline(inline{sub.Filter, sub.Identifier})
		}
	}
	if l == nil || l.session == nil || !l.subscribing.unsubscribing {
		return
	}
	l.subscribing.unsubscribing = false
	filters := make([]string, len(pk.Filters))
	for i, sub := range pk.Filters {
		filters[i] = sub.Filter
		l.unindexed(sub.Filter)
	}
	ctx, cancel := l.patience()
	defer cancel()
	existed, err := l.session.inbox.Unsubscribe(ctx, filters...)
	if err != nil {
		// UNSUBACK has no way to say it before MQTT 5, and a client that does not
		// hear of it would be sent messages that it does not want.
		h.log.Error("subscription not removed", "client", cl.ID, "error", err)
		l.end(packets.ErrUnspecifiedError)
		return
	}
	l.session.leaveGroups(filters)
	l.subscribing.unsuback = unsubackCodes(filters, existed)
}

// unsubackCodes says for each filter whether there was a subscription, which
// the MQTT library does not know [MQTT-3.11.3-2].
func unsubackCodes(filters []string, existed []bool) []byte {
	codes := make([]byte, len(filters))
	for i := range filters {
		if !existed[i] && !isInbox(filters[i]) {
			codes[i] = packets.CodeNoSubscriptionExisted.Code
		}
	}
	return codes
}

// resume has the subscriptions of a resumed session found by messages of QoS 0:
// at once, or, if they are many, by those that wait for index. Runs before CONNACK.
func (h *Hook) resume(l *link) {
	subs := l.session.subs
	for _, sub := range subs {
		l.indexed(sub.Filter, sub.NoLocal)
	}
	if l.restoring = h.restores.begin(subs); l.restoring == nil {
		h.index(l.client, subs)
	}
}

// index adds a resumed session's subscriptions to the MQTT library's index, from
// which messages of QoS 0 are delivered.
func (h *Hook) index(cl *mqtt.Client, subs []inbox.Subscription) {
	for _, sub := range subs {
		s := packets.Subscription{
			Filter:            sub.Filter,
			Qos:               sub.QoS,
			NoLocal:           sub.NoLocal,
			RetainAsPublished: sub.RetainAsPublished,
			RetainHandling:    sub.RetainHandling,
			Identifier:        int(sub.Identifier),
		}
		if h.server.Topics.Subscribe(cl.ID, s) {
			atomic.AddInt64(&h.server.Info.Subscriptions, 1)
		}
		cl.State.Subscriptions.Add(sub.Filter, s)
	}
}

// unindex takes one subscription out of the MQTT library's index.
func (h *Hook) unindex(cl *mqtt.Client, filter string) {
	cl.State.Subscriptions.Delete(filter)
	if h.server.Topics.Unsubscribe(filter, cl.ID) {
		atomic.AddInt64(&h.server.Info.Subscriptions, -1)
	}
	linkOf(cl).unindexed(filter)
}

// The MQTT library's index, by which it delivers messages of QoS 0, does not find
// a/+/# for the topic a/b. While a connected client has such a subscription these
// messages go through the store.
func isMisindexed(filter string) bool { return filter == "+/#" || strings.HasSuffix(filter, "/+/#") }

// indexed notes a subscription that the MQTT library has now.
func (l *link) indexed(filter string, noLocal bool) {
	l.noLocal = l.noLocal || noLocal
	if _, known := l.misindexed[filter]; known || !isMisindexed(filter) {
		return
	}
	if l.misindexed == nil {
		l.misindexed = map[string]struct{}{}
	}
	l.misindexed[filter] = struct{}{}
	l.hook.misindexed.Add(1)
}

// unindexed notes that the MQTT library does not have a subscription any more.
func (l *link) unindexed(filter string) {
	if _, known := l.misindexed[filter]; known {
		delete(l.misindexed, filter)
		l.hook.misindexed.Add(-1)
	}
}

// checkFilter returns why a topic filter is refused, or CodeSuccess.
func checkFilter(filter string) packets.Code {
	if mqtt.IsSharedFilter(filter) { // which takes $SHARE for it too
		_, inner, ok := inbox.Shared(filter)
		if !ok || mqtt.IsSharedFilter(inner) || isInbox(inner) {
			return packets.ErrTopicFilterInvalid
		}
		filter = inner
	}
	if strings.Count(filter, "/") >= maxLevels || !inbox.ValidFilter(filter) {
		return packets.ErrTopicFilterInvalid
	}
	return packets.CodeSuccess
}
