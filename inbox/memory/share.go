package memory

import "github.com/mqtt-inbox/mqtt-inbox/inbox"

// isGroup reports whether a receiver is that of a group: no client id has a NUL.
func isGroup(r inbox.Receiver) bool { return len(r) > 0 && r[0] == 0 }

// joinLocked creates the session of a group, if the filter is of a shared
// subscription, and it is not there yet.
func (s *Store) joinLocked(filter string) {
	_, inner, ok := inbox.Shared(filter)
	if !ok {
		return
	}
	r := inbox.GroupReceiver(filter)
	if s.sessions[r] != nil {
		return
	}
	group := newSession(r)
	group.expiry = inbox.ExpiryNever
	group.filters = []inbox.Subscription{{Filter: inner, QoS: 2, RetainAsPublished: true}}
	s.sessions[r] = group
}

// leaveLocked ends the group of a shared subscription if nobody has it any more.
func (s *Store) leaveLocked(filter string) {
	group := s.sessions[inbox.GroupReceiver(filter)]
	if group == nil {
		return
	}
	for _, held := range s.sessions {
		if held.findLocked(filter) >= 0 {
			return
		}
	}
	s.endLocked(group)
}
