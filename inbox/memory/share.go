package memory

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

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

// Give implements [inbox.Inbox].
func (o *owner) Give(to inbox.Inbox, entries []inbox.Entry, done func(error)) {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	err := o.giveLocked(to, entries)
	if err != nil {
		err = fmt.Errorf("give: %w", err)
	}
	o.store.callLocked(func() { done(err) })
}

func (o *owner) giveLocked(to inbox.Inbox, entries []inbox.Entry) error {
	member, ok := to.(*owner)
	if !ok || member.store != o.store {
		return errors.New("not an inbox of this store")
	}
	if err := o.usableLocked(); err != nil {
		return err
	}
	if err := member.usableLocked(); err != nil {
		return err
	}
	member.session.forgetGivenLocked()
	for _, e := range entries {
		o.given[e.Position] = struct{}{}
		if !slices.ContainsFunc(o.session.entries, func(kept inbox.Entry) bool { return kept.Position == e.Position }) {
			continue // it was deleted
		}
		e.Position = o.store.nextLocked()
		member.session.given[e.Position] = struct{}{}
		member.session.takeLocked(e, o.store)
	}
	o.session.entries = slices.DeleteFunc(o.session.entries, func(e inbox.Entry) bool {
		_, given := o.given[e.Position]
		return given
	})
	o.session.state = o.withoutGivenLocked(o.session.state)
	return nil
}

// forgetGivenLocked forgets which entries came from groups of those that are gone.
func (s *session) forgetGivenLocked() {
	kept := map[inbox.Position]struct{}{}
	for _, entries := range [][]inbox.Entry{s.entries, s.read} {
		for _, e := range entries {
			if _, given := s.given[e.Position]; given {
				kept[e.Position] = struct{}{}
			}
		}
	}
	s.given = kept
}

// withoutGivenLocked takes out of a state what was given away since its owner
// made it.
func (o *owner) withoutGivenLocked(s inbox.State) inbox.State {
	s = s.Clone()
	s.Open = slices.DeleteFunc(s.Open, func(d inbox.Delivery) bool {
		_, given := o.given[d.Position]
		return given
	})
	return s
}
