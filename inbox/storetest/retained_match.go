package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func retainedWildcards(tr *trial) {
	topics := []string{
		"a", "/", "//", "a/", "/a", "a/b", "a/b/c", "a//c", "a/b/c/d", "A", "ab", "b", "b/b", "$SYS/a", "$SYS/a/b",
		"$", "a/$b", "a b", "ü/x", "x/b/c",
	}
	for _, topic := range topics {
		tr.append(retain(topic, 1, topic))
	}
	for _, filter := range []string{
		"#", "+", "+/+", "/+", "+/", "/#", "/", "a", "a/", "/a", "a/#", "a/+", "a/+/#", "a/+/c", "+/b", "+/b/#", "+/#",
		"a//c", "a//#", "a/b/c", "A", "$SYS/#", "$SYS/+", "$SYS/a", "$SYS/a/#", "$/#", "+/a", "a/$b", "ab", "a b", "ü/+",
		"ab/#", "none", "none/#",
	} {
		var want []string
		for _, topic := range topics {
			if covers(filter, topic) {
				want = append(want, topic)
			}
		}
		slices.Sort(want)
		same(tr, "listed for "+filter, slices.Sorted(maps.Keys(tr.retained(filter))), want)
		c := tr.connectFresh("c", inbox.ExpiryAtOnce)
		c.subscribe(filter, 1)
		got := payloads(c.rest())
		slices.Sort(got)
		same(tr, "sent for "+filter, got, want)
	}
}

func retainedMatchesRandom(tr *trial) {
	random := newRandom(tr)
	topics := map[string]bool{}
	for range size(300, 100) {
		topic := randomTopic(random)
		e := retain(topic, 1, "m")
		if topics[topic] = random.IntN(3) > 0; !topics[topic] {
			e.Payload = nil
		}
		tr.append(e)
		var want []string
		filter := randomFilter(random)
		for topic, is := range topics {
			if is && covers(filter, topic) {
				want = append(want, topic)
			}
		}
		slices.Sort(want)
		same(tr, "listed for "+filter, slices.Sorted(maps.Keys(tr.retained(filter))), want)
	}
}

func retainedLongTopics(tr *trial) {
	long := strings.Repeat("x", 600)
	topics := []string{"x", long, long + "y", long + "/z", strings.Repeat("x", 511), strings.Repeat("x", 512),
		strings.Repeat("x", 513), strings.Repeat("x", 512) + "/z", strings.Repeat("a/", 32767), strings.Repeat("x", 65535)}
	for _, topic := range topics {
		tr.append(retain(topic, 1, topic))
	}
	tr.restart()
	for _, filter := range []string{
		"#", "+", long, long + "/#", long + "/+", topics[4], topics[5], topics[5] + "/#", topics[6], topics[8], topics[9], topics[9][1:],
	} {
		var want []string
		for _, topic := range topics {
			if covers(filter, topic) {
				want = append(want, topic)
			}
		}
		slices.Sort(want)
		same(tr, fmt.Sprintf("listed for %.20q", filter), slices.Sorted(maps.Keys(tr.retained(filter))), want)
		c := tr.connectFresh("c", inbox.ExpiryAtOnce)
		c.subscribe(filter, 1)
		got := payloads(c.rest())
		slices.Sort(got)
		same(tr, fmt.Sprintf("sent for %.20q", filter), got, want)
	}
	tr.append(retain(long, 1, ""))
	if tr.retained("#")[long] != nil {
		tr.Fatal("a long topic keeps its message")
	}
}
