package inbox

import "strings"

// ValidFilter reports whether s has the form of a topic filter: it is not empty
// [MQTT-4.7.3-1], # is the whole last level [MQTT-4.7.1-1], and + a whole level
// [MQTT-4.7.1-2].
func ValidFilter(s string) bool {
	for rest, more := s, true; more; {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		if level == "#" && more || len(level) > 1 && strings.ContainsAny(level, "+#") {
			return false
		}
	}
	return s != ""
}

// MatchTopic reports whether a filter matches a topic, as [Index] does for many
// filters at once. Both must be valid.
func MatchTopic(filter, topic string) bool {
	if strings.HasPrefix(topic, "$") && (strings.HasPrefix(filter, "+") || strings.HasPrefix(filter, "#")) {
		return false // [MQTT-4.7.2-1]
	}
	for {
		f, filterRest, moreFilter := strings.Cut(filter, "/")
		if f == "#" {
			return true
		}
		t, topicRest, moreTopic := strings.Cut(topic, "/")
		if f != "+" && f != t {
			return false
		}
		switch {
		case !moreFilter:
			return !moreTopic
		case !moreTopic:
			return filterRest == "#" // which includes its parent level
		}
		filter, topic = filterRest, topicRest
	}
}

// Overlap reports whether there is a topic that both filters match. Both must be valid.
func Overlap(a, b string) bool {
	isWild := func(f string) bool { return strings.HasPrefix(f, "+") || strings.HasPrefix(f, "#") }
	if strings.HasPrefix(a, "$") && isWild(b) || strings.HasPrefix(b, "$") && isWild(a) {
		return false // [MQTT-4.7.2-1]
	}
	for {
		x, aRest, moreA := strings.Cut(a, "/")
		y, bRest, moreB := strings.Cut(b, "/")
		switch {
		case x == "#" || y == "#":
			return true
		case x != "+" && y != "+" && x != y:
			return false
		case !moreA && !moreB:
			return true
		case !moreA:
			return bRest == "#" // which includes its parent level
		case !moreB:
			return aRest == "#"
		}
		a, b = aRest, bRest
	}
}

// SharePrefix begins the filters of shared subscriptions.
const SharePrefix = "$share/"

// Shared splits the filter of a shared subscription, $share/<name>/<filter>, and
// reports whether it is one: the name is not empty and has no wildcard, and the
// filter is not empty [MQTT-4.8.2-1] [MQTT-4.8.2-2].
func Shared(filter string) (name, inner string, ok bool) {
	rest, ok := strings.CutPrefix(filter, SharePrefix)
	if !ok {
		return "", "", false
	}
	name, inner, ok = strings.Cut(rest, "/")
	return name, inner, ok && name != "" && inner != "" && !strings.ContainsAny(name, "+#")
}

// GroupReceiver returns the receiver whose inbox a group shares: the members of
// all subscriptions with this filter. No client can have its name, because
// client ids have no NUL [MQTT-1.5.4-2].
func GroupReceiver(filter string) Receiver { return Receiver("\x00" + filter) }
