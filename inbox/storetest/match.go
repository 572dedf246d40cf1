package storetest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// covers reads a topic filter as a regular expression: slow, and nothing like
// the way in which an engine does it.
func covers(filter, topic string) bool {
	if strings.HasPrefix(topic, "$") && strings.ContainsAny(filter[:1], "#+") { // [MQTT-4.7.2-1]
		return false
	}
	if compiled, ok := patterns.Load(filter); ok {
		return compiled.(*regexp.Regexp).MatchString(topic)
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(filter), `\+`, `[^/]*`)
	if above, ok := strings.CutSuffix(pattern, "/#"); ok { // [MQTT-4.7.1-2]
		pattern = above + `(/.*)?`
	} else if pattern == "#" {
		pattern = `.*`
	}
	compiled := regexp.MustCompile(`(?s)^` + pattern + `$`)
	patterns.Store(filter, compiled)
	return compiled.MatchString(topic)
}

var patterns sync.Map // of filters that came before, *regexp.Regexp by filter

// expected is the grant of a message for one receiver's subscriptions.
func expected(r inbox.Receiver, subs []inbox.Subscription, e *inbox.Envelope) (g inbox.Grant, ok bool) {
	for _, s := range subs {
		if !covers(s.Filter, e.Topic) || s.NoLocal && e.Client == string(r) {
			continue
		}
		ok = true
		g.QoS = max(g.QoS, min(s.QoS, e.QoS))
		g.Retain = g.Retain || e.Retain && s.RetainAsPublished
		if s.Identifier != 0 {
			g.Identifiers = append(g.Identifiers, s.Identifier)
		}
	}
	slices.Sort(g.Identifiers)
	return g, ok
}

func sameGrant(tr *trial, e inbox.Entry, want inbox.Grant) {
	tr.Helper()
	if e.QoS != want.QoS || e.Retain != want.Retain || !slices.Equal(e.Identifiers, want.Identifiers) {
		tr.Fatalf("grant of %.40q on topic %.40q: %+v, want %+v", e.Envelope.Payload, e.Envelope.Topic, e.Grant, want)
	}
}

// Every filter belongs to a receiver of its own, and sees every topic.
func subscribeMatches(tr *trial) {
	filters := []string{
		"#", "+", "+/+", "/+", "+/", "/#", "a", "a/", "/a", "a/#", "a/+", "a/+/#", "a/+/c", "+/b", "+/b/#",
		"a//c", "a/b/c", "A", "$SYS/#", "$SYS/+", "$SYS/a", "+/a", "a/$b", "ab", "a b", "ü/+",
	}
	topics := []string{
		"a", "/", "//", "a/", "/a", "a/b", "a/b/c", "a//c", "a/b/c/d", "A", "ab", "b", "b/b", "$SYS/a", "$SYS/a/b",
		"$", "a/$b", "a b", "ü/x", "x/b/c",
	}
	clients := make([]*client, len(filters))
	for i, f := range filters {
		clients[i] = tr.connect(inbox.Receiver(fmt.Sprint("c", i)), inbox.ExpiryAtOnce)
		clients[i].subscribe(f, 1)
	}
	for _, topic := range topics {
		tr.publish(topic, topic)
	}
	for i, f := range filters {
		var want []string
		for _, topic := range topics {
			if covers(f, topic) {
				want = append(want, topic)
			}
		}
		got := payloads(clients[i].rest())
		if !slices.Equal(got, want) {
			tr.Errorf("filter %q matched %q, want %q", f, got, want)
		}
	}
}

// Overlapping filters from a small alphabet come and go while messages pass.
func subscribeMatchesRandom(tr *trial) {
	random := newRandom(tr)
	subs := make([][]inbox.Subscription, 5)
	clients := make([]*client, len(subs))
	for i := range clients {
		clients[i] = tr.connect(inbox.Receiver(fmt.Sprint("c", i)), inbox.ExpiryAtOnce)
	}
	want := make([][]string, len(clients))
	grants := make([][]inbox.Grant, len(clients))
	got := make([][]inbox.Entry, len(clients))
	for n := range size(400, 100) {
		i := random.IntN(len(clients))
		s := randomSubscription(random)
		s.RetainHandling = 2
		subs[i] = slices.DeleteFunc(subs[i], func(old inbox.Subscription) bool { return old.Filter == s.Filter })
		if random.IntN(3) == 0 {
			got[i] = append(got[i], clients[i].take(len(want[i])-len(got[i]))...) // the rest would be given up
			clients[i].unsubscribe(s.Filter)
		} else {
			clients[i].add(s)
			subs[i] = append(subs[i], s)
		}

		e := message(randomTopic(random), 1, fmt.Sprint("m", n, " ", i))
		e.Retain, e.Client = n%2 == 0, fmt.Sprint("c", n%7)
		for j, c := range clients {
			if g, ok := expected(c.receiver, subs[j], e); ok && g.QoS > 0 {
				want[j] = append(want[j], string(e.Payload))
				grants[j] = append(grants[j], g)
			}
		}
		tr.append(e)
	}
	for j, c := range clients {
		all := slices.Concat(got[j], c.rest())
		same(tr, fmt.Sprintf("inbox of %.40q", c.receiver), payloads(all), want[j])
		for n, e := range all {
			sameGrant(tr, e, grants[j][n])
		}
	}
}

func randomSubscription(random *rand.Rand) inbox.Subscription {
	return inbox.Subscription{
		Filter:            randomFilter(random),
		QoS:               byte(random.IntN(3)),
		NoLocal:           random.IntN(4) == 0,
		RetainAsPublished: random.IntN(2) == 0,
		RetainHandling:    byte(random.IntN(3)),
		Identifier:        uint32(random.IntN(4)),
	}
}

func randomFilter(random *rand.Rand) string {
	filter := randomLevels(random, "a", "b", "+", "", "$s")
	switch random.IntN(8) {
	case 0:
		return filter + "/#"
	case 1:
		return "#"
	}
	if filter == "" {
		return "+"
	}
	return filter
}

func randomTopic(random *rand.Rand) string {
	if topic := randomLevels(random, "a", "b", "", "$s"); topic != "" {
		return topic
	}
	return "/"
}

func randomLevels(random *rand.Rand, alphabet ...string) string {
	levels := make([]string, 1+random.IntN(3))
	for i := range levels {
		levels[i] = alphabet[random.IntN(len(alphabet))]
	}
	return strings.Join(levels, "/")
}
