package memory

import (
	"slices"
	"sort"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// session is what the store keeps of one receiver. The store's mutex guards it.
type session struct {
	receiver inbox.Receiver
	expiry   inbox.Expiry
	ended    int64 // Unix milliseconds, 0 while there is an owner
	owner    *owner
	will     *inbox.Will // nil for none
	state    inbox.State
	entries  []inbox.Entry // ascending by position
	filters  []inbox.Subscription
	received map[uint16]bool // packet ids of messages that the receiver published
}

func newSession(r inbox.Receiver) *session {
	return &session{receiver: r, received: map[uint16]bool{}}
}

// takeLocked gives an entry to the session, to keep or live, and reports
// whether the receiver gets it.
func (s *session) takeLocked(entry inbox.Entry, store *Store) bool {
	if entry.QoS > 0 {
		s.entries = append(s.entries, entry)
		s.wakeLocked()
		return true
	}
	if s.owner == nil || s.owner.options.Live == nil {
		return false
	}
	live := s.owner.options.Live
	entry.Position = 0
	store.callLocked(func() { live(entry) })
	return true
}

// subscribeLocked adds or replaces one subscription and reports whether there
// was one.
func (s *session) subscribeLocked(sub inbox.Subscription) bool {
	i := s.findLocked(sub.Filter)
	if i < 0 {
		s.filters = append(s.filters, sub)
		return false
	}
	s.filters[i] = sub
	return true
}

// unsubscribeLocked removes one subscription, with what came by it alone and has
// not been read, and reports whether there was one.
func (s *session) unsubscribeLocked(filter string, read inbox.Position) bool {
	i := s.findLocked(filter)
	if i < 0 {
		return false
	}
	s.filters = slices.Delete(s.filters, i, i+1)
	s.entries = slices.DeleteFunc(s.entries, func(e inbox.Entry) bool {
		return e.Position > read && matches(filter, e.Envelope.Topic) &&
			!slices.ContainsFunc(s.filters, func(other inbox.Subscription) bool { return matches(other.Filter, e.Envelope.Topic) })
	})
	return true
}

func (s *session) findLocked(filter string) int {
	return slices.IndexFunc(s.filters, func(sub inbox.Subscription) bool { return sub.Filter == filter })
}

// afterLocked returns the place of the first entry behind p.
func (s *session) afterLocked(p inbox.Position) int {
	return sort.Search(len(s.entries), func(i int) bool { return s.entries[i].Position > p })
}

// saveLocked stores a state and forgets what it has finished. The open entries
// move up to the first one that was not sent, so that the cost is what was
// sent since the last time, not what waits.
func (s *session) saveLocked(state inbox.State) {
	s.state = clone(state)
	sent := s.afterLocked(state.Sent)
	kept := sent
	for i := sent - 1; i >= 0; i-- {
		if isOpen(state, s.entries[i].Position) {
			kept--
			s.entries[kept] = s.entries[i]
		}
	}
	clear(s.entries[:kept])
	s.entries = s.entries[kept:]
}

// fenceLocked ends the ownership there is.
func (s *session) fenceLocked() {
	s.wakeLocked()
	s.owner = nil
}

// wakeLocked makes a waiting Next look again.
func (s *session) wakeLocked() {
	if s.owner == nil {
		return
	}
	select {
	case s.owner.wake <- struct{}{}:
	default:
	}
}

func isOpen(s inbox.State, p inbox.Position) bool {
	i := sort.Search(len(s.Open), func(i int) bool { return s.Open[i].Position >= p })
	return i < len(s.Open) && s.Open[i].Position == p
}

func clone(s inbox.State) inbox.State {
	s.Open = slices.Clone(s.Open)
	s.Resting = slices.Clone(s.Resting)
	return s
}
