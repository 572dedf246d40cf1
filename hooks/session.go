package hooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// session is a session while it has a connection: an open inbox and what its
// receiver has been sent.
type session struct {
	hook      *Hook
	link      *link
	inbox     inbox.Inbox
	resumed   bool
	subs      []inbox.Subscription // as they were resumed
	maxPacket int                  // bytes, 0 for no limit
	limit     int                  // the most unacknowledged messages
	pumped    chan struct{}        // closed when the pump has ended; nil if it was not started

	mu      sync.Mutex // guards everything below; never held while the store is called
	window  *inbox.Window
	owed    map[uint16]struct{} // packet ids open or releasing since an earlier connection, not sent again on this one
	exact   map[uint16]bool     // packet ids of QoS 2 sent on this connection, true once PUBREC has come
	lost    gaps                // not told yet
	told    map[uint16]gaps     // with the messages that are open, by packet id
	waiting bool                // the pump waits for room
	wake    chan struct{}       // tells the pump that there is room; holds one

	// As a member of groups (group_member.go).
	groups   map[string]*member  // by filter
	shared   map[uint16]shared   // messages that are open, by packet id
	earlier  map[uint16]struct{} // packet ids of groups that its own inbox has from an earlier version, see owe
	sharedID uint16              // the packet id given last to one of them
	hungry   bool                // a group waits for room

	// What groups give to its inbox (group_given.go).
	coming   int                // messages that they have given, or are about to, and the pump has not seen
	promised int                // messages that they are about to give: the store has not said what became of them
	looking  context.Context    // in which the pump asks for more, made anew when it has ended
	look     context.CancelFunc // ends that: the pump looks what there is, and does not wait
}

// openSession opens the inbox of a client. Runs on its read goroutine, with the
// turn of its client id.
func openSession(ctx context.Context, l *link, fresh bool, receiveMaximum uint16) (*session, error) {
	h, cl := l.hook, l.client
	s := &session{
		hook:      h,
		link:      l,
		maxPacket: int(cl.Properties.Props.MaximumPacketSize),
		limit:     h.options.Window,
		exact:     map[uint16]bool{},
		wake:      make(chan struct{}, 1),
		groups:    map[string]*member{},
		shared:    map[uint16]shared{},
	}
	s.looking, s.look = context.WithCancel(l.ctx)
	l.out.onRelief(s.relieved)
	if receiveMaximum > 0 {
		s.limit = min(s.limit, int(receiveMaximum)) // [MQTT-3.3.4-9]
	}

	var err error
	s.inbox, s.resumed, err = h.store.Open(ctx, inbox.Receiver(cl.ID), inbox.OpenOptions{
		Fresh:  fresh,
		Expiry: h.expiry(l),
		Will:   willOf(cl, &l.connect, l.in.seen),
		Mode:   h.mode(cl, l.wishes),
		From:   l.wishes.from,
		State:  s.state,
		Live:   s.live,
	})
	if err != nil {
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	l.out.onWithdrawal(s.inbox.Withdrawn, s.withdraw)
	state := s.inbox.State()
	s.window = inbox.NewWindow(s.limit, state)
	s.owe(state)
	if s.resumed {
		if s.subs, err = s.inbox.Subscriptions(ctx); err != nil {
			s.close(inbox.Ending{Expiry: h.expiry(l), Goodbye: true}) // refused: its will is not to be published
			return nil, fmt.Errorf("read subscriptions: %w", err)
		}
	}
	return s, nil
}

// owe notes what an earlier connection has left open. Some of it may have packet ids
// that are those of groups now, from before ids were divided: these are in the window, too.
func (s *session) owe(state inbox.State) {
	owed := slices.Clone(state.Releasing)
	for _, d := range state.Open {
		owed = append(owed, d.PacketID)
	}
	if len(owed) > 0 {
		s.owed = make(map[uint16]struct{}, len(owed))
	}
	for _, id := range owed {
		s.owed[id] = struct{}{}
		if id > inbox.MaxPacketID {
			if s.earlier == nil {
				s.earlier = map[uint16]struct{}{}
			}
			s.earlier[id] = struct{}{} // groups must not use it
		}
	}
}

// close gives the session back, after the pump has ended.
func (s *session) close(end inbox.Ending) {
	s.endGroups()
	if s.pumped != nil {
		<-s.pumped
	}
	ctx, cancel := context.WithTimeout(context.Background(), handover)
	defer cancel()
	err := s.inbox.Close(ctx, end)
	if err != nil && !errors.Is(err, inbox.ErrFenced) {
		s.hook.log.Error("session not given back", "client", s.link.client.ID, "error", err)
	}
}

// state is what the store saves. Runs on a goroutine of the store.
func (s *session) state() inbox.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.State()
}

// save has the state saved some time soon.
func (s *session) save() { s.inbox.Save(nil) }

// take acts on an acknowledgement of the client. Runs on the connection's read
// goroutine. An id that is not open is ignored where the protocol has no answer
// to it, and so is one that is still owed: it is a late acknowledgement of an
// earlier connection, and the message is about to be sent again.
func (s *session) take(a ack) error {
	switch a.kind {
	case packets.Puback:
		return s.puback(a.id)
	case packets.Pubcomp:
		return s.pubcomp(a.id)
	}
	s.link.out.drain() // what follows is answered
	if a.kind == packets.Pubrec {
		return s.pubrec(a.id, a.code)
	}
	s.pubrel(a.id)
	return nil
}

// puback finishes a QoS 1 message, whatever the reason code: a receiver that
// refuses a message has had it.
func (s *session) puback(id uint16) error {
	if id > inbox.MaxPacketID && s.finishShared(id) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, owed := s.owed[id]; owed {
		return nil
	}
	if _, exact := s.exact[id]; exact {
		return packets.ErrProtocolViolation // PUBACK for QoS 2
	}
	s.finishLocked(id)
	return nil
}

// pubrec has the receiver's half of a QoS 2 message recorded, and then answers
// PUBREL [MQTT-4.3.3-4].
func (s *session) pubrec(id uint16, code byte) error {
	known, owed, err := s.releaseOrFinish(id, code)
	if err != nil {
		return err
	}
	if owed || code >= packets.ErrUnspecifiedError.Code {
		return nil // ignored, or refused: no PUBREL follows
	}
	if !known {
		s.link.out.ack(packets.Pubrel, id, packets.ErrPacketIdentifierNotFound.Code)
		return nil
	}
	s.inbox.Save(func(err error) {
		if err != nil {
			s.fail("release not recorded", err)
			return
		}
		s.link.out.ack(packets.Pubrel, id, packets.CodeSuccess.Code)
	})
	return nil
}

func (s *session) releaseOrFinish(id uint16, code byte) (known, owed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, owed := s.owed[id]; owed {
		return true, true, nil
	}
	if _, exact := s.exact[id]; !exact {
		return false, false, s.strayLocked(id)
	}
	if code >= packets.ErrUnspecifiedError.Code {
		s.finishLocked(id)
		return true, false, nil
	}
	s.exact[id] = true
	s.window.Release(id)
	return true, false, nil
}

// pubcomp finishes a QoS 2 message.
func (s *session) pubcomp(id uint16) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, owed := s.owed[id]; owed {
		return nil
	}
	released, exact := s.exact[id]
	if !exact {
		return s.strayLocked(id)
	}
	if !released {
		return packets.ErrProtocolViolation // PUBCOMP before PUBREC
	}
	s.finishLocked(id)
	return nil
}

// pubrel ends a QoS 2 message that the client has published: once its id is
// forgotten, PUBCOMP says so, and the id may mean another message
// [MQTT-4.3.3-11] [MQTT-4.3.3-12]. A second PUBREL for it is answered too, so
// that the client can finish. That the id is unknown is no error after a resume,
// where the PUBCOMP before may have been lost; and there are clients that would
// tell their user that the message was not published.
func (s *session) pubrel(id uint16) {
	asked := s.link.requests.released(id)
	s.inbox.Complete(id, func(known bool, err error) {
		code := packets.CodeSuccess.Code
		if !known && !asked && !s.resumed {
			code = packets.ErrPacketIdentifierNotFound.Code
		}
		if err != nil {
			s.fail("packet id not forgotten", err)
			return
		}
		s.link.out.complete(id, code)
	})
}

// fail ends the connection because the store could not do its part. Runs on any
// goroutine.
func (s *session) fail(what string, err error) {
	switch {
	case errors.Is(err, inbox.ErrFenced):
		s.link.end(packets.ErrSessionTakenOver)
	case errors.Is(err, inbox.ErrClosed):
		s.link.end(packets.ErrServerShuttingDown)
	default:
		s.hook.log.Error("store failed a session", "what", what, "client", s.link.client.ID, "error", err)
		s.link.end(packets.ErrUnspecifiedError)
	}
}

// strayLocked judges an acknowledgement of QoS 2 for an id that is not of QoS 2:
// a violation if the id is open at QoS 1, harmless if it is not open.
func (s *session) strayLocked(id uint16) error {
	if _, open := s.shared[id]; open {
		return packets.ErrProtocolViolation
	}
	for _, d := range s.window.Open() {
		if d.PacketID == id {
			return packets.ErrProtocolViolation
		}
	}
	return nil
}

// finishLocked ends the delivery under a packet id, if there is one, and makes
// its place free.
func (s *session) finishLocked(id uint16) {
	if _, ok := s.window.Ack(id); !ok {
		return
	}
	delete(s.exact, id)
	delete(s.told, id)
	delete(s.earlier, id)
	s.freedLocked()
}

// freedLocked tells those who wait for it that there is room.
func (s *session) freedLocked() {
	s.wakePumpLocked()
	if s.hungry {
		s.feedLocked()
	}
}

func (s *session) wakePumpLocked() {
	if s.waiting {
		s.waiting = false
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}
