package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

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
	held.state.Withdraw(func(inbox.Delivery) bool { return true })
	if len(held.entries) > 0 {
		held.state.Sent = min(held.state.Sent, held.entries[0].Position-1)
	}
	return nil
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
