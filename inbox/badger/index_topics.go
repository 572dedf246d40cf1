package badger

import (
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The topics of which a history has lists stand under their names too, so that those
// that match a filter are found without a look at the lists of others:
//
//	t incarnation:8 name(topic)   nothing, or the topic if its name is a hash

func topicKey(inc incarnation, topic string) []byte {
	return appendName(numberKey(prefixTopic, uint64(inc)), topic)
}

// topicOf returns the topic that stands under a key.
func topicOf(key, value []byte) string {
	if len(value) > 0 {
		return string(value)
	}
	return string(key[10:])
}

// note has a list be found by its topic, for as long as there are records of it and up to
// a day more: as the last on disk has it, and what is fresh.
func (step *indexStep) note(id listID, f *freshList, open *postings) {
	expiresAt := dayBehind(f.expiresAt)
	if open != nil {
		noted := dayBehind(open.expiresAt)
		if expiresAt = laterExpiry(expiresAt, noted); expiresAt == noted {
			return
		}
	}
	switch id.kind {
	case listPair:
		step.put(listID{listOfTopic, id.name.swapped()}.key(step.incarnation, 0), nil, expiresAt)
	case listTopic:
		var value []byte
		if len(f.topic) > longName {
			value = []byte(f.topic)
		}
		step.put(topicKey(step.incarnation, f.topic), value, expiresAt)
	}
}

// dayBehind returns the end of the day of a time, both in Badger's seconds; 0 for never.
func dayBehind(t uint64) uint64 {
	const day = 24 * 60 * 60
	if t == 0 {
		return 0
	}
	return (t/day + 1) * day
}

// forgetNote undoes note, for a list of which nothing is left. r is its last record.
func (step *indexStep) forgetNote(id listID, r *postings) {
	switch id.kind {
	case listPair:
		step.delete(listID{listOfTopic, id.name.swapped()}.key(step.incarnation, 0))
	case listTopic:
		step.delete(topicKey(step.incarnation, string(r.topic)))
	}
}

// Bounds of looking for topics: how many may match, and how many that begin like the
// filter are looked at.
const (
	mostTopics   = 1000
	mostTopicsAt = 10_000
)

// topics returns the topics of a history that match a filter, or false if there are
// too many. Cost: about 0.5 µs for each that begins like the filter up to its first
// wildcard.
func (l *lists) topics(filter string) (found []string, ok bool) {
	seen := map[string]bool{}
	add := func(topic string) bool {
		if !seen[topic] && inbox.MatchTopic(filter, topic) {
			seen[topic] = true
			found = append(found, topic)
		}
		return len(found) <= mostTopics
	}
	for id := range l.cameOf(func(id listID) bool { return id.kind == listTopic }) {
		if names, ok := l.cameNames(id); ok && !add(names[1]) {
			return nil, false
		}
	}
	literal, _, _ := strings.Cut(filter, "+")
	literal = strings.TrimSuffix(strings.TrimSuffix(literal, "#"), "/")
	begin := numberKey(prefixTopic, uint64(l.incarnation))
	prefixes := [][]byte{append(append(begin[:9:9], 0), literal...), append(begin[:9:9], 1)}
	if len(literal) > longName {
		prefixes = prefixes[1:] // what begins so is longer still
	}
	n := 0
	for _, prefix := range prefixes {
		ok := l.eachTopic(prefix, func(topic string) bool { n++; return n <= mostTopicsAt && add(topic) })
		if !ok {
			return nil, false
		}
	}
	return found, true
}

// eachTopic calls do with the topics under a prefix until it returns false, and reports
// whether it never has.
func (l *lists) eachTopic(prefix []byte, do func(topic string) bool) bool {
	it := l.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		var topic string
		err := it.Item().Value(func(v []byte) error { topic = topicOf(it.Item().Key(), v); return nil })
		if err != nil {
			l.fail(it.Item().KeyCopy(nil), err)
			return false
		}
		if !do(topic) {
			return false
		}
	}
	return true
}
