package memory

import (
	"slices"
	"sort"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// session is what the store keeps of one receiver. The store's mutex guards it.
type session struct {
	receiver inbox.Receiver
	expiry   inbox.Expiry
	ended    int64 // Unix milliseconds, 0 while there is an owner
	owner    *owner
	will     *inbox.Will // nil for none
	mode     inbox.Mode  // from the next connection on
	state    inbox.State
	entries  []inbox.Entry               // unread, ascending by position
	waits    map[inbox.Position]struct{} // of entries up to state.Sent that Next has not returned, in pull mode
	read     []inbox.Entry               // kept for a receiver that starts again
	given    map[inbox.Position]struct{} // entries that came from a group
	filters  []inbox.Subscription
	received map[uint16]bool // packet ids of messages that the receiver published
}

func newSession(r inbox.Receiver) *session {
	return &session{
		receiver: r, mode: inbox.ModePush,
		waits: map[inbox.Position]struct{}{}, given: map[inbox.Position]struct{}{}, received: map[uint16]bool{},
	}
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
// not been read, and reports whether there was one. What groups have given came by none.
func (s *session) unsubscribeLocked(filter string, read inbox.Position) bool {
	i := s.findLocked(filter)
	if i < 0 {
		return false
	}
	s.filters = slices.Delete(s.filters, i, i+1)
	s.removeLocked(func(e inbox.Entry) bool {
		_, waits := s.waits[e.Position]
		_, given := s.given[e.Position]
		return (e.Position > read || waits) && !given && matches(filter, e.Envelope.Topic) &&
			!slices.ContainsFunc(s.filters, func(other inbox.Subscription) bool { return matches(other.Filter, e.Envelope.Topic) })
	})
	return true
}

func (s *session) findLocked(filter string) int {
	return slices.IndexFunc(s.filters, func(sub inbox.Subscription) bool { return sub.Filter == filter })
}

// removeLocked takes out the unread entries that are meant, and returns them.
func (s *session) removeLocked(meant func(inbox.Entry) bool) (removed []inbox.Entry) {
	s.entries = slices.DeleteFunc(s.entries, func(e inbox.Entry) bool {
		if !meant(e) {
			return false
		}
		removed = append(removed, e)
		delete(s.waits, e.Position)
		return true
	})
	return removed
}

// withdrawLocked is removeLocked for what is taken away by another way than the
// owner's, who is told.
func (s *session) withdrawLocked(meant func(inbox.Entry) bool) (removed []inbox.Entry) {
	removed = s.removeLocked(meant)
	if s.owner != nil && len(removed) > 0 {
		s.owner.withdrawn.Add(1)
	}
	return removed
}

// afterLocked returns the place of the first entry behind p.
func (s *session) afterLocked(p inbox.Position) int {
	return sort.Search(len(s.entries), func(i int) bool { return s.entries[i].Position > p })
}

// saveLocked stores a state and forgets what it has finished. The open entries, and those
// that wait to be pulled, move up to the first one that was not sent, so that in push
// mode the cost is what was sent since the last time, not what is behind.
func (s *session) saveLocked(state inbox.State, rewind time.Duration) {
	s.state = state.Clone()
	sent := s.afterLocked(state.Sent)
	kept := sent
	var finished []inbox.Entry
	for i := sent - 1; i >= 0; i-- {
		e := s.entries[i]
		if _, waits := s.waits[e.Position]; waits || isOpen(state, e.Position) {
			kept--
			s.entries[kept] = e
			continue
		}
		finished = append(finished, e)
	}
	s.keepReadLocked(rewind, finished...)
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
