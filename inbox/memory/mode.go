package memory

import (
	"context"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// SetMode implements [inbox.Puller].
func (s *Store) SetMode(ctx context.Context, r inbox.Receiver, m inbox.Mode) (now inbox.Mode, err error) {
	err = s.ask(ctx, r, func(held *session) error {
		held.setModeLocked(m)
		now = held.mode
		return nil
	})
	return now, err
}

func (s *session) setModeLocked(m inbox.Mode) {
	if m != inbox.ModeKept {
		s.mode = m
	}
}

// Mode implements [inbox.Inbox].
func (o *owner) Mode() inbox.Mode { return o.mode }

// waitLocked opens the session in pull mode: what is there waits to be pulled, and
// Next begins behind it.
func (s *session) waitLocked(last inbox.Position) {
	for _, e := range s.entries[s.afterLocked(s.state.Sent):] {
		s.waits[e.Position] = struct{}{}
	}
	s.state.Sent = last
}

// returnLocked has Next begin with what waited to be pulled. What was finished
// meanwhile is not among the entries any more.
func (s *session) returnLocked() {
	for _, e := range s.entries {
		if _, waits := s.waits[e.Position]; waits {
			s.state.Sent = min(s.state.Sent, e.Position-1)
			break
		}
	}
	clear(s.waits)
}

// returnLocked goes back to what waited before the session was in push mode, once
// everything is finished that was on its way then. It reports whether
// Next may go on.
func (o *owner) returnLocked() bool {
	if !o.returning || len(o.session.waits) == 0 {
		return true
	}
	if len(o.session.state.Open) > 0 {
		return false
	}
	o.returning = false
	before := o.session.state
	o.before = &before
	o.session.returnLocked()
	o.read = o.session.state.Sent
	return true
}

// staleLocked reports whether a state of the owner is from before it was given
// what had waited: whoever sends something uses up a packet id.
func (o *owner) staleLocked(state inbox.State) bool {
	stale := o.before != nil && state.Sent == o.before.Sent && state.LastID == o.before.LastID
	if !stale {
		o.before = nil
	}
	return stale
}
