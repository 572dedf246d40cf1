package memory

import (
	"slices"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// grantLocked takes all subscriptions of one session that match a message
// together, and reports whether there is one.
func (s *session) grantLocked(r inbox.Receiver, e *inbox.Envelope) (g inbox.Grant, ok bool) {
	for _, sub := range s.filters {
		if sub.NoLocal && e.Client == string(r) { // [MQTT-3.8.3-3]
			continue
		}
		if _, _, member := inbox.Shared(sub.Filter); member || !matches(sub.Filter, e.Topic) {
			continue // a member gets its messages from the group
		}
		ok = true
		g.QoS = max(g.QoS, min(sub.QoS, e.QoS)) // [MQTT-3.3.4-2]
		g.Retain = g.Retain || sub.RetainAsPublished && e.Retain
		if sub.Identifier != 0 {
			g.Identifiers = append(g.Identifiers, sub.Identifier) // one for each, equal or not [MQTT-3.3.4-5]
		}
	}
	slices.Sort(g.Identifiers)
	return g, ok
}

// matches reports whether a topic filter covers a topic.
func matches(filter, topic string) bool {
	wild := strings.HasPrefix(filter, "#") || strings.HasPrefix(filter, "+")
	if wild && strings.HasPrefix(topic, "$") {
		return false // a wildcard at the start leaves the server's topics alone [MQTT-4.7.2-1]
	}
	return levelsMatch(strings.Split(filter, "/"), strings.Split(topic, "/"))
}

func levelsMatch(filter, topic []string) bool {
	for i, level := range filter {
		if level == "#" {
			return true // the level above and everything below it [MQTT-4.7.1-2]
		}
		if i == len(topic) || level != "+" && level != topic[i] {
			return false
		}
	}
	return len(filter) == len(topic)
}
