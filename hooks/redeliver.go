package hooks

import (
	"context"
	"slices"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A receiver of QoS 2 that has taken a message holds its packet id until PUBREL, over
// connections too, and takes another message under that id for a repeat [MQTT-4.3.3-10]. So
// when a message is not to be sent again, for it was acknowledged by another way, deleted, or
// has become too large for its receiver, PUBREL is sent in its place, whether PUBREC has come
// or not: whoever has taken the message sees what it would see if its PUBREC had arrived, and
// whoever has not sees what it would see if its PUBCOMP had been lost. Both answer PUBCOMP
// [MQTT-4.3.3-11], and only then the id is free.

// redeliver sends again what was sent on an earlier connection and not finished,
// in order and under the same packet ids [MQTT-4.4.0-1].
func (s *session) redeliver(ctx context.Context) error {
	if !s.owes() {
		return nil
	}
	s.release(s.releasing())
	for {
		chunk, err := s.nextOwed(ctx)
		if err == nil && len(chunk) > 0 {
			err = s.resend(ctx, chunk)
		}
		if err != nil {
			return err
		}
		if len(chunk) == 0 {
			s.save() // Next may wait for what was withdrawn to be finished
			return nil
		}
	}
}

func (s *session) owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.owed) > 0
}

// releasing notes that PUBREL is sent for those packet ids of which the stored state says
// that it is due, and returns them.
func (s *session) releasing() []uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Clone(s.window.Releasing())
	for _, id := range ids {
		delete(s.owed, id)
		s.exact[id] = true
	}
	return ids
}

// release sends PUBREL, which is not bounded by Receive Maximum.
func (s *session) release(ids []uint16) {
	for _, id := range ids {
		s.link.out.ack(packets.Pubrel, id, packets.CodeSuccess.Code)
	}
}

// nextOwed returns the first deliveries that have not been sent again yet, none at the
// end. No more are read than can be sent: what is acknowledged by a request
// while they wait for room must not be sent any more.
func (s *session) nextOwed(ctx context.Context) (chunk []inbox.Delivery, err error) {
	if !s.owes() {
		return nil, nil
	}
	room, err := s.waitRoom(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.window.Open() {
		if len(chunk) == min(room, s.hook.options.PageMessages) {
			break
		}
		if _, owed := s.owed[d.PacketID]; owed {
			chunk = append(chunk, d)
		}
	}
	return chunk, nil
}

// resend sends some deliveries again.
func (s *session) resend(ctx context.Context, chunk []inbox.Delivery) error {
	seen := s.inbox.Withdrawn()
	entries, err := s.inbox.Read(ctx, unreleased(chunk))
	if err != nil {
		return err
	}
	page, held := s.prepareAgain(chunk, entries, seen)
	if len(held) > 0 {
		// Recorded before it is sent: no PUBLISH may follow PUBREL [MQTT-4.3.3-6].
		if err := s.record(ctx); err != nil {
			return err
		}
		s.release(held)
	}
	for i := range page {
		if err := s.repeat(ctx, &page[i]); err != nil {
			return err
		}
	}
	return nil
}

// unreleased returns the positions of those deliveries that need their message.
func unreleased(open []inbox.Delivery) []inbox.Position {
	at := make([]inbox.Position, 0, len(open))
	for _, d := range open {
		if !d.Released {
			at = append(at, d.Position)
		}
	}
	return at
}

// prepareAgain returns what is to be sent again of some deliveries: PUBREL where there is
// no envelope. Of the others, which are finished without being sent, it returns the packet
// ids that the receiver may hold.
func (s *session) prepareAgain(chunk []inbox.Delivery, entries []inbox.Entry, seen uint64) (page []publication, held []uint16) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range chunk {
		p := publication{packetID: d.PacketID, dup: true, metadata: s.link.metadata} // [MQTT-3.3.1-1]
		if d.Released {
			page = append(page, p)
			continue
		}
		if len(entries) > 0 && entries[0].Position == d.Position {
			p.Envelope, p.grant = entries[0].Envelope, entries[0].Grant
			entries = entries[1:]
		}
		if d.QoS > 0 {
			p.grant.QoS = d.QoS // as it was sent
		}
		if s.comesAgain(&p, now) {
			p.position, p.seen = d.Position, seen
			page = append(page, p)
			continue
		}
		if s.withdrawLocked(d.Position, d.PacketID) {
			held = append(held, d.PacketID)
		}
	}
	return page, held
}

// comesAgain reports whether a message may be sent again, if there is one. That of QoS 2 may
// even if it has expired in the meantime: its exchange is under way.
func (s *session) comesAgain(p *publication, now time.Time) bool {
	if p.Envelope == nil || p.grant.QoS == 0 {
		return false
	}
	p.left = secondsLeft(p.Envelope, now)
	if p.grant.QoS == 2 {
		return s.fits(p)
	}
	return s.deliverable(p, now)
}

// repeat sends one delivery again, as soon as there is room in the window.
func (s *session) repeat(ctx context.Context, p *publication) error {
	if _, err := s.waitRoom(ctx); err != nil {
		return err
	}
	released := p.Envelope == nil
	s.mu.Lock()
	delete(s.owed, p.packetID)
	if released || p.grant.QoS == 2 {
		s.exact[p.packetID] = released
	}
	s.mu.Unlock()
	if released {
		s.release([]uint16{p.packetID})
		return nil
	}
	return s.send(p)
}
