package badger

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Acknowledge implements [inbox.Puller]. It costs two commits that it shares with
// whatever else is waiting, one more for each 200 pairs of sender and topic, and a few
// searches for each pair that is meant, or reading the messages. That is done by one
// caller at a time for each receiver.
func (s *Store) Acknowledge(ctx context.Context, r inbox.Receiver, a inbox.Acknowledgement) (n int, err error) {
	done, err := s.turns.take(ctx, r)
	if err == nil {
		defer done()
		n, err = s.acknowledge(ctx, r, a)
	}
	if err != nil {
		return 0, fmt.Errorf("acknowledge: %w", err)
	}
	return n, nil
}

func (s *Store) acknowledge(ctx context.Context, r inbox.Receiver, a inbox.Acknowledgement) (int, error) {
	var o outlook
	var meant meaning
	err := s.askSorted(ctx, r, func(u *unread, sort func() (*sorted, error)) error {
		o, meant = u.outlook, meaning{marks: marks{}}
		switch {
		case len(a.IDs) > 0:
			return u.meantByID(ctx, a.IDs, &meant)
		case a.ThroughID != inbox.MessageID{}:
			through, _, err := u.place(inbox.Bound{ID: a.ThroughID})
			if err != nil {
				return err
			}
			a.Through = through
		}
		return u.meantBetween(ctx, a, &meant, sort)
	})
	if err != nil || len(meant.marks) == 0 {
		return 0, err
	}
	for _, part := range meant.marks.parts() {
		err := s.do(ctx, "store", func(g *commitGroup) error { return g.acknowledge(o, part) })
		if err != nil {
			return 0, err
		}
	}
	return meant.n, nil
}

// meaning is what an acknowledgement means.
type meaning struct {
	n     int // unread messages
	marks marks
}

// meantByID finds the messages with some ids.
func (u *unread) meantByID(ctx context.Context, ids []inbox.MessageID, m *meaning) error {
	wanted := make([]inbox.Position, len(ids))
	for i, id := range ids {
		if !u.s.knows(id, u.upTo) {
			return inbox.ErrUnknownID
		}
		wanted[i] = id.Sequence
	}
	slices.Sort(wanted)
	return u.eachWith(ctx, slices.Compact(wanted), func(e met) {
		m.add(e, inbox.Span{After: e.Position - 1, Through: e.Position})
	})
}

// eachWith calls do with the unread entries whose messages have some ascending numbers.
func (u *unread) eachWith(ctx context.Context, wanted []inbox.Position, do func(met)) error {
	at := slices.Clone(wanted)
	u.s.eachBehind(u.txn, u.incarnation, wanted, func(_, p inbox.Position) { at = append(at, p) })
	for _, e := range u.memory {
		if _, ok := slices.BinarySearch(wanted, e.Envelope.ID.Sequence); ok {
			at = append(at, e.Position)
		}
	}
	slices.Sort(at)
	var places inbox.Spans
	for _, p := range slices.Compact(at) {
		if u.within.Contains(p) {
			places = places.Append(inbox.Span{After: p - 1, Through: p})
		}
	}
	return u.eachIn(ctx, places, 0, u.upTo, false, func(e met) bool {
		if _, ok := slices.BinarySearch(wanted, e.Envelope.ID.Sequence); ok {
			do(e)
		}
		return true
	})
}

// meantBetween finds what matches within bounds. What is lost there is acknowledged
// with it: it was told, or is nothing that would be asked for.
func (u *unread) meantBetween(ctx context.Context, a inbox.Acknowledgement, m *meaning, sort func() (*sorted, error)) error {
	whole := inbox.Span{After: a.After, Through: u.upTo}
	if a.Through != 0 {
		whole.Through = min(u.upTo, a.Through)
	}
	all, err := u.meantOfSome(ctx, a, whole, m, u.s.sizes.few)
	if err != nil || all {
		return err
	}
	*m = meaning{marks: marks{}}
	x, err := sort()
	if err == nil {
		defer x.close()
		err = x.mean(ctx, a, whole, m)
	}
	if isUnsorted(err) {
		*m = meaning{marks: marks{}}
		_, err = u.meantOfSome(ctx, a, whole, m, math.MaxInt)
	}
	return err
}

// meantOfSome does what meantBetween does by reading so many entries, and reports
// whether that was all.
func (u *unread) meantOfSome(ctx context.Context, a inbox.Acknowledgement, whole inbox.Span, m *meaning, most int) (all bool, err error) {
	all = true
	err = u.each(ctx, whole.After, whole.Through, false, func(e met) bool {
		if most--; most < 0 {
			all = false
			return false
		}
		switch {
		case !a.Matches(e.Envelope):
		case a.Selection == inbox.Selection{}:
			m.count(e)
			m.marks[everyPair] = inbox.Spans{whole}
		default:
			m.add(e, whole)
		}
		return true
	})
	return all, err
}

func (m *meaning) count(e met) {
	if !e.over {
		m.n++
	}
}

func (m *meaning) add(e met, span inbox.Span) {
	m.count(e)
	m.marks.add(pairOf(e.Envelope.Sender(), e.Envelope.Topic), span)
}

// pairsAtOnce bounds how many pairs are written in one step.
const pairsAtOnce = 200

// parts cuts marks into steps.
func (m marks) parts() (all []marks) {
	part := marks{}
	for of, spans := range m {
		if part[of] = spans; len(part) == pairsAtOnce {
			all, part = append(all, part), marks{}
		}
	}
	if len(part) > 0 {
		all = append(all, part)
	}
	return all
}

// acknowledge stores what is acknowledged in an inbox, if it is still the one that
// was looked at, and has its owner told.
func (g *commitGroup) acknowledge(o outlook, m marks) error {
	sess := g.s.sessions.at(o.member)
	if sess.incarnation != o.incarnation {
		return inbox.ErrNoSession
	}
	if g.critical {
		return inbox.ErrFull
	}
	if sess.stored() || sess.spilled() {
		g.markAcked(o.incarnation, m)
		g.settleLater(o.incarnation, o.member)
	}
	if h := sess.owner(); h != nil {
		g.news = append(g.news, ackNews{to: h, marks: m})
	}
	return nil
}

// settleLater has the sweeper look how far an inbox is finished.
func (g *commitGroup) settleLater(inc incarnation, m inbox.Member) {
	if g.settling == nil {
		g.settling = map[incarnation]inbox.Member{}
	}
	g.settling[inc] = m
}

// ackNews is what is told an inbox that has an owner after the commit: what was
// acknowledged by another way, and that Next may go on.
type ackNews struct {
	to    *handle
	marks marks
	goOn  bool
}

// acknowledged takes what was acknowledged by another way out of what is ready.
// Runs on the committer. What comes by the fan-out later, though it was stored
// before, is read from disk.
func (h *handle) acknowledged(n ackNews) {
	h.mu.Lock()
	h.acks.Add(1)
	h.held = h.held && !n.goOn
	for _, spans := range n.marks {
		h.ackedTo = max(h.ackedTo, spans[len(spans)-1].Through)
	}
	h.ready = slices.DeleteFunc(h.ready, func(e inbox.Entry) bool {
		gone := e.Position <= h.ackedTo && n.marks.covers(&e)
		if gone {
			h.bytes -= e.Envelope.Size()
		}
		return gone
	})
	h.mu.Unlock()
	h.hint()
}

// covers reports whether an entry is among what is acknowledged.
func (m marks) covers(e *inbox.Entry) bool {
	return m[everyPair].Contains(e.Position) || m[pairOf(e.Envelope.Sender(), e.Envelope.Topic)].Contains(e.Position)
}
