package hooks

import (
	"context"
	"errors"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A message of QoS 2 goes from a group into the inbox of a member. It takes room in the
// member's window from when it is offered until the pump has it, which may be never: it may
// be deleted on the way, or acknowledged by a request when it is there. So once the pump
// finds nothing in the inbox, all that groups had given by then is gone, and its room is
// free. A pump that waits in Inbox.Next is made to look by ending the context of that.

// unreserve gives back room that offer took, for whichever group waits for it. Runs on
// the dispatcher.
func (m *member) unreserve(n int) {
	s := m.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promised -= n
	s.coming = max(s.coming-n, 0)
	if s.hungry {
		s.feedLocked()
	}
}

// given notes that the store has moved messages for which offer took room, and has the
// pump look if it has not seen them. Runs on the dispatcher.
func (m *member) given(n int) {
	s := m.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promised -= n
	if s.coming > s.promised {
		s.look()
	}
}

// next is Inbox.Next for the pump, and gives back the room of what never comes. Cost
// beside that: one lock.
func (s *session) next(ctx context.Context, most, mostBytes int) ([]inbox.Entry, error) {
	for {
		looking, given := s.beginLook(ctx)
		entries, err := s.inbox.Next(looking, most, mostBytes) // which returns what there is in any case
		if !errors.Is(err, context.Canceled) || ctx.Err() != nil {
			return entries, err
		}
		s.missed(given)
	}
}

// beginLook returns the context to look in, and how much groups have given that the pump
// has not seen. If that is something, the context has ended.
func (s *session) beginLook(ctx context.Context) (looking context.Context, given int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	given = max(s.coming-s.promised, 0)
	if given > 0 {
		s.look()
	} else if s.looking.Err() != nil {
		s.looking, s.look = context.WithCancel(ctx)
	}
	return s.looking, given
}

// missed gives back the room of messages that are gone.
func (s *session) missed(given int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming = max(s.coming-given, 0)
	if given > 0 && s.hungry {
		s.feedLocked()
	}
}

// arrivedLocked notes that the pump has an entry that may be one of those that
// groups have given: its position is not its message's own.
func (s *session) arrivedLocked(entry *inbox.Entry) {
	if s.coming > 0 && entry.Position != entry.Envelope.ID.Sequence {
		s.coming--
	}
}
