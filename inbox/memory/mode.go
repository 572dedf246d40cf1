package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// SetMode implements [inbox.Puller].
func (s *Store) SetMode(ctx context.Context, r inbox.Receiver, m inbox.Mode) error {
	return s.ask(ctx, r, func(held *session) error {
		held.setModeLocked(m)
		return nil
	})
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

// rewindLocked makes everything unread again that is kept and lies behind a bound, and
// forgets what is on its way. What is unread in front of the bound stays so.
func (s *Store) rewindLocked(held *session, from inbox.Bound) error {
	all := held.withReadLocked(s.rewind)
	behind, err := s.betweenLocked(all, from, inbox.Bound{})
	if err != nil {
		return err
	}
	again := make(map[inbox.Position]bool, len(behind))
	for _, e := range behind {
		again[e.Position] = true
	}
	wasRead := make(map[inbox.Position]bool, len(held.read))
	for _, e := range held.read {
		wasRead[e.Position] = true
	}
	held.entries = slices.DeleteFunc(all, func(e inbox.Entry) bool { return wasRead[e.Position] && !again[e.Position] })
	held.read = slices.DeleteFunc(held.read, func(e inbox.Entry) bool { return again[e.Position] })

	clear(held.waits)
	held.state.Open = nil
	if len(held.entries) > 0 {
		held.state.Sent = min(held.state.Sent, held.entries[0].Position-1)
	}
	return nil
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

// keepReadLocked keeps entries that were read, for a receiver that starts again, and
// forgets those that were stored too long ago.
func (s *session) keepReadLocked(rewind time.Duration, entries ...inbox.Entry) {
	now := time.Now()
	from := now.Add(-rewind).UnixMilli()
	s.read = slices.DeleteFunc(append(s.read, entries...), func(e inbox.Entry) bool {
		return rewind == 0 || e.Envelope.Time < from || e.Envelope.Expired(now)
	})
}

// withReadLocked returns what is unread and what was read and is kept, in order.
func (s *session) withReadLocked(rewind time.Duration) []inbox.Entry {
	s.keepReadLocked(rewind)
	all := slices.Concat(s.entries, s.read)
	slices.SortFunc(all, func(a, b inbox.Entry) int { return cmp.Compare(a.Position, b.Position) })
	return all
}
