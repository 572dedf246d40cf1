package storetest

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// model is what one session should be. Entries are never removed from it.
type model struct {
	client  *client // nil while absent
	expiry  inbox.Expiry
	will    *inbox.Will
	subs    []inbox.Subscription
	entries []modelEntry
	read    int          // so many has the owner read
	live    []modelEntry // what the owner should have heard and was not asked for

	saved     inbox.State
	savedRead int
}

type modelEntry struct {
	topic    string
	payload  string
	grant    inbox.Grant
	batch    int            // those of one number may come in any order; 0 for none
	givenUp  bool           // comes only if another subscription, made later, matches too
	position inbox.Position // once it was read
}

// settleOrder has the entry with this payload stand at i, if it may.
func settleOrder(entries []modelEntry, i int, payload string) {
	for j := i; j < len(entries) && entries[j].batch == entries[i].batch; j++ {
		if entries[j].payload == payload {
			entries[i], entries[j] = entries[j], entries[i]
			return
		}
		if entries[i].batch == 0 {
			return
		}
	}
}

// give reports whether the session gets the entry.
func (m *model) give(e modelEntry) bool {
	switch {
	case e.grant.QoS > 0:
		m.entries = append(m.entries, e)
	case m.client != nil:
		m.live = append(m.live, e)
	default:
		return false
	}
	return true
}

// giveUp gives up what was not read and came by one filter alone.
func (m *model) giveUp(filter string) {
	for i := m.read; i < len(m.entries); i++ {
		if e := &m.entries[i]; covers(filter, e.topic) && !m.covers(e.topic) {
			e.givenUp = true
		}
	}
}

func (m *model) covers(topic string) bool {
	return slices.ContainsFunc(m.subs, func(s inbox.Subscription) bool { return covers(s.Filter, topic) })
}

// waiting is how many entries must come.
func (m *model) waiting() (n int) {
	for _, e := range m.entries[m.read:] {
		if !e.givenUp {
			n++
		}
	}
	return n
}

// passGivenUp passes over the entries before the one with this payload that were
// given up. After a restart they may come all the same.
func (m *model) passGivenUp(payload string) {
	for m.read < len(m.entries) && m.entries[m.read].givenUp && (m.entries[m.read].payload != payload || !m.covers(m.entries[m.read].topic)) {
		m.read++
	}
}

func (m *model) find(filter string) int {
	return slices.IndexFunc(m.subs, func(s inbox.Subscription) bool { return s.Filter == filter })
}
