package hooks

import (
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// member is the part of one connected client in a group.
type member struct {
	session *session
	group   *group

	// Guarded by session.mu.
	sub  inbox.Subscription
	left bool // it gets nothing more, and stays until it has finished what it has
	open int  // messages that it was sent and has not finished
}

// shared is one message of QoS 1 that a client was sent as a member of a group.
type shared struct {
	member   *member
	position inbox.Position
}

// outcome is what became of handing a message to a member.
type outcome byte

const (
	accepted outcome = iota // it is on its way, or no more the dispatcher's business
	finished                // nothing is left to be done for it
	reserved                // of offer alone: it is to be given to the member's own inbox
	busy                    // there is no room for it, and so for nothing else
	oversize                // it is larger than the member takes
	passed                  // it is not for this member, which is leaving
)

// joinGroups makes the client a member of the groups whose subscriptions are
// among these, or changes what it wants as one. Runs on the connection's read
// goroutine, after the store has the subscriptions.
func (s *session) joinGroups(subs []inbox.Subscription) {
	for _, sub := range subs {
		if _, _, ok := inbox.Shared(sub.Filter); !ok {
			continue
		}
		s.mu.Lock()
		m := s.groups[sub.Filter]
		if m != nil {
			m.sub, m.left = sub, false
		}
		s.mu.Unlock()
		if m != nil {
			m.group.stir()
			continue
		}
		m = &member{session: s, group: s.hook.join(sub.Filter), sub: sub}
		s.mu.Lock()
		s.groups[sub.Filter] = m
		s.mu.Unlock()
		m.group.add(m)
	}
}

// leaveGroups is what UNSUBSCRIBE does: the client gets nothing new, and finishes
// what it was sent [MQTT-3.10.4-3]. Runs on the connection's read goroutine.
func (s *session) leaveGroups(filters []string) {
	for _, filter := range filters {
		s.mu.Lock()
		m := s.groups[filter]
		if m != nil {
			m.left = true
		}
		gone := s.goneLocked(m)
		s.mu.Unlock()
		if gone {
			m.depart(nil)
		}
	}
}

// endGroups gives back to the groups what the client has not acknowledged, for
// others to have. Runs on the connection's read goroutine, when that has read
// the last acknowledgement.
func (s *session) endGroups() {
	back := map[*member][]inbox.Position{}
	s.mu.Lock()
	for _, m := range s.groups {
		m.left = true
		back[m] = nil
	}
	for id, one := range s.shared {
		back[one.member] = append(back[one.member], one.position)
		delete(s.shared, id)
	}
	clear(s.groups)
	s.mu.Unlock()
	for m, sent := range back {
		m.depart(sent)
	}
}

// goneLocked reports whether a member that leaves has finished everything, and
// forgets it if so: it is to depart.
func (s *session) goneLocked(m *member) bool {
	if m == nil || !m.left || m.open > 0 || s.groups[m.sub.Filter] != m {
		return false
	}
	delete(s.groups, m.sub.Filter)
	return true
}

func (m *member) depart(sent []inbox.Position) {
	m.group.remove(m, sent)
	m.session.hook.leave(m.group)
}

// offer sends the client a message of QoS 0 or 1 if it has room, or takes room
// for one of QoS 2. again says that it may have had it before. Runs on the
// dispatcher, or for QoS 0 on a goroutine of the store, and never waits.
func (m *member) offer(e inbox.Entry, again bool, now time.Time) (outcome, inbox.Grant) {
	s := m.session
	s.mu.Lock()
	grant := m.grantLocked(e)
	p := publication{Envelope: e.Envelope, grant: grant, left: secondsLeft(e.Envelope, now), metadata: s.link.metadata}
	switch {
	case m.left:
		s.mu.Unlock()
		return passed, grant
	case s.tooLarge(&p):
		s.mu.Unlock()
		return oversize, grant
	case grant.QoS > 0 && s.groupRoomLocked() <= 0:
		s.hungry = true
		s.mu.Unlock()
		return busy, grant
	case grant.QoS == 2:
		s.coming++
		s.promised++
		s.mu.Unlock()
		return reserved, grant
	case grant.QoS == 1:
		// Remember before writing, as the pump does.
		p.packetID, p.dup = s.groupIDLocked(), again // [MQTT-3.3.1-1]
		s.shared[p.packetID] = shared{m, e.Position}
		m.open++
	}
	s.mu.Unlock()

	switch taken := s.link.out.offerLater(&p); {
	case taken && grant.QoS == 0:
		return finished, grant
	case taken:
		return accepted, grant
	case grant.QoS == 0:
		return busy, grant
	}
	// Groups that found no room meanwhile look again when there is relief.
	if _, gone, ok := s.endShared(p.packetID); !ok {
		return accepted, grant // the client has left meanwhile, and it is back
	} else if gone {
		m.depart(nil)
	}
	return busy, grant
}

// grantLocked is how the client gets a message of the group: what it asked for
// is applied here, since the group has the message as it was published.
func (m *member) grantLocked(e inbox.Entry) inbox.Grant {
	grant := inbox.Grant{QoS: min(e.QoS, m.sub.QoS), Retain: e.Retain && m.sub.RetainAsPublished}
	if m.sub.Identifier != 0 {
		grant.Identifiers = []uint32{m.sub.Identifier}
	}
	return grant
}

// finishShared acts on the acknowledgement of a group's message, and reports
// whether it was one. Runs on the connection's read goroutine.
func (s *session) finishShared(id uint16) bool {
	one, gone, ok := s.endShared(id)
	if !ok {
		return false
	}
	one.member.group.finish(one.position)
	if gone {
		one.member.depart(nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freedLocked()
	return true
}

// endShared ends the delivery of a group's message on this connection. It
// reports whether there was one under the packet id, and whether the member is
// to depart with it.
func (s *session) endShared(id uint16) (one shared, gone, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok = s.shared[id]; !ok {
		return one, false, false
	}
	delete(s.shared, id)
	one.member.open--
	s.wakePumpLocked()
	return one, s.goneLocked(one.member), true
}

// groupIDs is how many packet ids there are for messages of groups.
const groupIDs = inbox.MaxWindow - inbox.MaxPacketID

// groupRoomLocked is how many messages of groups the client may be sent now. All
// that it has been sent and has not acknowledged counts, and what is already
// promised.
func (s *session) groupRoomLocked() int {
	return min(s.limit-s.window.Len()-s.coming, groupIDs-len(s.earlier)) - len(s.shared)
}

// groupIDLocked returns a packet id that the client's own inbox never has. There
// must be room.
func (s *session) groupIDLocked() uint16 {
	for {
		s.sharedID = max(s.sharedID+1, inbox.MaxPacketID+1) // which is also what follows 65,535
		_, taken := s.shared[s.sharedID]
		if _, own := s.earlier[s.sharedID]; !taken && !own {
			return s.sharedID
		}
	}
}

// feedLocked has the groups look again at a client that had no room.
func (s *session) feedLocked() {
	s.hungry = false
	for _, m := range s.groups {
		m.group.stir()
	}
}

// relieved is feedLocked when there is room again in the outbound buffer. Runs on
// the connection's flusher.
func (s *session) relieved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feedLocked()
}
