package hooks

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// unwritten is a message of the inbox, of QoS 1 or 2, whose frame waits to be written.
type unwritten struct {
	position inbox.Position
	seen     uint64 // Inbox.Withdrawn, when the message was looked at last: nothing of before concerns it
	at       uint32 // where the frame begins
	packetID uint16
	dup      bool
}

// withdraw returns which of the messages that wait to be written were taken away by now:
// acknowledged by a request, or deleted. Their delivery ends, as if they had never been
// about to be sent. Runs on the connection's flusher, no lock held. It reads them.
func (s *session) withdraw(waiting []unwritten) (gone map[inbox.Position]struct{}) {
	gone = make(map[inbox.Position]struct{}, len(waiting))
	at := make([]inbox.Position, len(waiting))
	for i := range waiting {
		at[i] = waiting[i].position
		gone[at[i]] = struct{}{}
	}
	slices.Sort(at)
	ctx, cancel := s.link.patience()
	defer cancel()
	entries, err := s.inbox.Read(ctx, at)
	if err != nil {
		// None is sent, and all stay open: the next connection has them.
		s.fail("what is withdrawn cannot be found out", err)
		return gone
	}
	for i := range entries {
		delete(gone, entries[i].Position)
	}
	if len(gone) == 0 {
		return nil
	}
	held := s.endWithdrawn(waiting, gone)
	if len(held) == 0 {
		s.save()
		return gone
	}
	s.inbox.Save(func(err error) { // recorded before it is sent, see resend
		if err != nil {
			s.fail("withdrawal not recorded", err)
			return
		}
		s.release(held)
	})
	return gone
}

// endWithdrawn ends the deliveries of what is gone, and returns the packet ids that the
// receiver may hold, from an earlier connection: it was not sent anything on this one.
func (s *session) endWithdrawn(waiting []unwritten, gone map[inbox.Position]struct{}) (held []uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range waiting {
		u := &waiting[i]
		if _, ok := gone[u.position]; !ok {
			continue
		}
		s.loseToldLocked(u.packetID)
		if u.dup {
			if s.withdrawLocked(u.position, u.packetID) {
				held = append(held, u.packetID)
			}
			continue
		}
		if s.window.Drop(u.position) {
			delete(s.exact, u.packetID)
			s.freedLocked()
		}
	}
	return held
}

// withdrawLocked ends a delivery that may have been sent on an earlier connection, and
// reports whether its receiver may hold the packet id: PUBREL is due.
func (s *session) withdrawLocked(p inbox.Position, id uint16) (held bool) {
	d, ok := s.window.Withdraw(p)
	delete(s.owed, id)
	if ok && d.MayBeHeld() {
		s.exact[id] = true
		return true
	}
	if ok {
		delete(s.exact, id)
		delete(s.earlier, id)
		s.freedLocked()
	}
	return false
}
