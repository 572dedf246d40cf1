package memory

import (
	"context"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Pull implements [inbox.Puller].
func (s *Store) Pull(ctx context.Context, r inbox.Receiver, q inbox.Query) (page inbox.Page, err error) {
	err = s.ask(ctx, r, func(held *session) error {
		entries := held.entries
		if q.Read {
			entries = held.withReadLocked(s.rewind)
		}
		page, err = s.pageLocked(entries, q)
		return err
	})
	return page, err
}

// Acknowledge implements [inbox.Puller].
func (s *Store) Acknowledge(ctx context.Context, r inbox.Receiver, a inbox.Acknowledgement) (n int, err error) {
	err = s.ask(ctx, r, func(held *session) error {
		for _, id := range a.IDs {
			if !s.knowsLocked(id) {
				return inbox.ErrUnknownID
			}
		}
		if len(a.IDs) == 0 && a.ThroughID != (inbox.MessageID{}) {
			through, err := s.placeLocked(held.entries, inbox.Bound{ID: a.ThroughID})
			if err != nil {
				return err
			}
			a.Through = through.Position
		}
		meant := func(e inbox.Entry) bool {
			if len(a.IDs) > 0 {
				return slices.Contains(a.IDs, e.Envelope.ID)
			}
			return e.Position > a.After && (a.Through == 0 || e.Position <= a.Through) && a.Matches(e.Envelope)
		}
		now, read := time.Now(), held.withdrawLocked(meant)
		for _, e := range read {
			if !e.Envelope.Expired(now) {
				n++
			}
		}
		held.keepReadLocked(s.rewind, read...)
		held.wakeLocked() // its owner may have waited for them
		return nil
	})
	return n, err
}

// ask takes one step with the lock held, for a receiver that has a session.
func (s *Store) ask(ctx context.Context, r inbox.Receiver, stepLocked func(*session) error) error {
	return s.do(ctx, func() error {
		s.passLocked() // a session whose time is over is none
		held := s.sessions[r]
		if held == nil {
			return inbox.ErrNoSession
		}
		return stepLocked(held)
	})
}

// do takes one step with the lock held.
func (s *Store) do(ctx context.Context, stepLocked func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return inbox.ErrClosed
	}
	return stepLocked()
}

// knowsLocked reports whether an id is of a message of this store, which need not
// be kept any more.
func (s *Store) knowsLocked(id inbox.MessageID) bool {
	return id.Store == s.id && id.Sequence > 0 && id.Sequence <= s.last
}

// pageLocked is the answer to a query, from entries that ascend by position.
func (s *Store) pageLocked(entries []inbox.Entry, q inbox.Query) (page inbox.Page, err error) {
	entries, err = s.betweenLocked(entries, q.After, q.Before)
	if err != nil {
		return page, err
	}
	entries = slices.DeleteFunc(entries, func(e inbox.Entry) bool { return !q.Matches(e.Envelope) })
	if q.NewestFirst {
		slices.Reverse(entries)
	}
	now, bytes := time.Now(), 0
	var lost inbox.Position // the last one that is
	for _, e := range entries {
		size := e.Envelope.Size()
		switch {
		case page.More && e.Envelope.Expired(now):
			// It is for a later page.
		case page.More:
			addTo(&page.Remaining, e.Envelope)
		case e.Envelope.Expired(now):
			lose(&page.Gaps, e.Envelope, q.NewestFirst)
			lost = e.Position
		case len(page.Entries) == q.Max, len(page.Entries) > 0 && bytes+size > q.MaxBytes:
			page.More, page.Next = true, lost
			addTo(&page.Remaining, e.Envelope)
		default:
			page.Entries = append(page.Entries, e)
			bytes += size
			lost = 0
		}
	}
	if !page.More {
		page.Next = lost
	}
	return page, nil
}

// betweenLocked returns a new slice of the entries that lie between two bounds.
func (s *Store) betweenLocked(entries []inbox.Entry, after, before inbox.Bound) (between []inbox.Entry, err error) {
	for _, b := range []*inbox.Bound{&after, &before} {
		if *b, err = s.placeLocked(entries, *b); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		behind := e.Position > after.Position && e.Envelope.Time >= after.Time
		inFront := (before.Position == 0 || e.Position < before.Position) &&
			(before.Time == 0 || e.Envelope.Time < before.Time)
		if behind && inFront {
			between = append(between, e)
		}
	}
	return between, nil
}

// placeLocked makes the id of a bound a position: that of the entry which has
// the message, or, where there is none, the one that the message got when it was
// stored.
func (s *Store) placeLocked(entries []inbox.Entry, b inbox.Bound) (inbox.Bound, error) {
	if b.ID == (inbox.MessageID{}) {
		return b, nil
	}
	if !s.knowsLocked(b.ID) {
		return b, inbox.ErrUnknownID
	}
	for _, e := range entries {
		if e.Envelope.ID == b.ID {
			return inbox.Bound{Position: e.Position}, nil
		}
	}
	return inbox.Bound{Position: b.ID.Sequence}, nil
}

// addTo counts one message.
func addTo(c *inbox.Count, e *inbox.Envelope) {
	c.Messages++
	c.Bytes += int64(e.Size() - emptySize)
}

var emptySize = (&inbox.Envelope{}).Size()

// lose notes that a message is not there any more because its time is over.
func lose(gaps *[]inbox.Gap, e *inbox.Envelope, backwards bool) {
	if len(*gaps) == 0 {
		*gaps = []inbox.Gap{{From: e.Time, To: e.Time, Messages: 1, Reason: inbox.GapExpired}}
		return
	}
	gap := &(*gaps)[0]
	gap.Messages++
	if backwards {
		gap.From = e.Time
	} else {
		gap.To = e.Time
	}
}
