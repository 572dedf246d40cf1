package hooks

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// pump sends the inbox to its receiver: first again what an earlier connection
// left open, then what has not been sent, in order, as the window has room. It
// is a goroutine of the connection.
//
// It waits for three things, in turn: room in the window, which acknowledgements
// make; a page, which the store gives; and room in the outbound buffer, which
// the network makes. So a slow receiver costs a page and a buffer, and nobody
// else anything.
func (s *session) pump() {
	defer close(s.pumped)
	defer s.link.survive()
	ctx := s.link.ctx
	err := s.redeliver(ctx)
	for page := []publication(nil); err == nil; {
		page, err = s.deliver(ctx, page[:0])
	}
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) { // nothing can be sent: the link ends by itself
		return
	}
	s.fail("delivery ended", err)
}

// deliver sends one page for the first time, and returns the slice it used.
func (s *session) deliver(ctx context.Context, page []publication) ([]publication, error) {
	room, err := s.waitRoom(ctx)
	if err != nil {
		return page, err
	}
	seen := s.inbox.Withdrawn()
	entries, err := s.next(ctx, min(room, s.hook.options.PageMessages), s.hook.options.PageBytes)
	if err != nil {
		return page, err
	}

	for len(entries) > 0 && err == nil {
		// Remember before writing: a packet id is in the window before it is sent.
		var exact bool
		page, entries, exact = s.prepare(page[:0], entries, seen)
		if exact {
			err = s.record(ctx)
		} else {
			s.save()
		}
		for i := range page {
			if err != nil {
				break
			}
			err = s.send(&page[i])
		}
		clear(page) // lets go of the envelopes
		if len(entries) > 0 && err == nil {
			_, err = s.waitRoom(ctx)
		}
	}
	return page, err
}

// prepare gives packet ids to the entries that are to be sent, passes over the
// others, and reports whether one of them is of QoS 2. It returns the entries
// for which there is no room left, since groups have taken it.
func (s *session) prepare(page []publication, entries []inbox.Entry, seen uint64) (_ []publication, rest []inbox.Entry, exact bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, entry := range entries {
		if entry.QoS > 0 && s.roomLocked() <= 0 {
			return page, entries[i:], exact
		}
		s.arrivedLocked(&entry)
		p := publication{Envelope: entry.Envelope, grant: entry.Grant, left: secondsLeft(entry.Envelope, now), metadata: s.link.metadata}
		if entry.Lost != nil {
			s.loseLocked(*entry.Lost)
		}
		p.lost = s.lost
		switch {
		case !s.deliverable(&p, now):
			s.loseLocked(passedOver(entry.Envelope, now))
			s.window.Skip(entry.Position)
			s.freedLocked() // if it came from a group
			continue
		case p.grant.QoS == 0:
			s.window.Skip(entry.Position)
		default:
			p.packetID = s.window.Send(entry.Position, entry.QoS)
			p.position, p.seen = entry.Position, seen
		}
		if p.grant.QoS == 2 {
			s.exact[p.packetID] = false
			exact = true
		}
		if p.metadata {
			s.toldLocked(p.packetID)
		}
		page = append(page, p)
	}
	return page, nil, exact
}

// deliverable reports whether a message may still go to this receiver, and
// counts it if not: it is not expired [MQTT-3.3.2-5], and no larger than the
// receiver takes [MQTT-3.1.2-25].
func (s *session) deliverable(p *publication, now time.Time) bool {
	if p.Expired(now) {
		s.hook.counts.expired.Add(1)
		return false
	}
	return s.fits(p)
}

func (s *session) fits(p *publication) bool {
	if s.tooLarge(p) {
		s.hook.counts.oversize.Add(1)
		return false
	}
	return true
}

// tooLarge reports whether a message is larger than the receiver takes. It may
// leave out the metadata for that.
func (s *session) tooLarge(p *publication) bool {
	if s.maxPacket == 0 {
		return false
	}
	size, _, _ := p.size(s.link.v5)
	if size > s.maxPacket && p.metadata {
		p.metadata = false
		size, _, _ = p.size(s.link.v5)
	}
	return size > s.maxPacket
}

// send hands a message to the outbound buffer, as soon as there is room.
func (s *session) send(p *publication) error {
	if p.Expiry != 0 {
		p.left = secondsLeft(p.Envelope, time.Now()) // waiting has cost some
	}
	return s.link.out.publish(p)
}

// record has the state on stable storage before it returns. Packet ids of QoS 2
// are recorded before they are used, so that a message that is sent again after
// a crash has the id that its receiver may know it by.
func (s *session) record(ctx context.Context) error {
	done := make(chan error, 1)
	s.inbox.Save(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitRoom waits until the window has room and returns how much. What an earlier
// connection left open counts once it is sent again.
func (s *session) waitRoom(ctx context.Context) (int, error) {
	for {
		if room := s.room(); room > 0 {
			return room, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (s *session) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.roomLocked()
	s.waiting = room <= 0
	return room
}

func (s *session) roomLocked() int {
	room := s.limit - (s.window.Len() - len(s.owed)) - len(s.shared)
	if len(s.owed) == 0 {
		room = min(room, s.window.Room()) // which may be less: ids must stay free
	}
	return room
}

// live sends a message that is delivered at once or not at all. Runs on a
// goroutine of the store and never waits.
func (s *session) live(entry inbox.Entry) {
	now := time.Now()
	p := publication{Envelope: entry.Envelope, grant: entry.Grant, left: secondsLeft(entry.Envelope, now), metadata: s.link.metadata}
	if s.deliverable(&p, now) && !s.link.out.offer(&p) {
		s.hook.counts.liveDropped.Add(1)
	}
}
