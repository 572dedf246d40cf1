package badger

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// leaving is a subscription that a session has given up, with what it had stored
// but not been sent: that is not delivered, unless another subscription that it
// had then matches too.
type leaving struct {
	filter string
	of     inbox.Spans // where everything was that had not been sent; not empty
	others []string    // the filters of those other subscriptions, which match some of the same
}

// until returns up to where everything was stored before.
func (l *leaving) until() inbox.Position { return l.of[len(l.of)-1].Through }

// drops reports whether the message at p is given up.
func (l *leaving) drops(p inbox.Position, topic string) bool {
	return l.of.Contains(p) && l.takes(topic)
}

// takes reports whether messages of a topic are given up.
func (l *leaving) takes(topic string) bool {
	matches := func(filter string) bool { return inbox.MatchTopic(filter, topic) }
	return matches(l.filter) && !slices.ContainsFunc(l.others, matches)
}

// dropped returns where messages of a topic are given up.
func (l *leaving) dropped(topic string) inbox.Spans {
	if !l.takes(topic) {
		return nil
	}
	return l.of
}

// drops reports whether a message is given up. Cost: about 30 ns for each of the others.
func drops(all []leaving, p inbox.Position, topic string) bool {
	return slices.ContainsFunc(all, func(l leaving) bool { return l.drops(p, topic) })
}

// mayDrop is drops for whoever may not spend so much: a message of which it reports false is
// not given up, whatever its topic.
func mayDrop(all []leaving, p inbox.Position) bool {
	return slices.ContainsFunc(all, func(l leaving) bool { return l.of.Contains(p) })
}

// giveUpUnread has h's session not be sent any more what it has had by some filters, but for
// what is to stay of each. The subscriptions are gone from the index, and their records are
// written by the caller. What the session was sent is stored with it, so that a crash does
// not make that look unsent. Cost: about 60 ns for each subscription that is left, times
// that of mostLeavings at most.
func (g *commitGroup) giveUpUnread(h *handle, filters []string, but func(string) inbox.Spans) {
	unsent := h.notSent(g.s.sequence)
	filters = slices.DeleteFunc(slices.Clone(filters), func(f string) bool {
		_, _, shared := inbox.Shared(f)
		return shared // what groups have is not the session's
	})
	if len(filters) == 0 || len(unsent) == 0 || !h.mayHaveUnread() {
		return
	}
	left := g.s.filtersOf(h.member)
	all := slices.Clip(g.s.leavings[h.member])
	for _, filter := range filters[max(0, len(filters)-mostLeavings):] { // others would be too many
		of := unsent.Subtract(but(filter))
		if len(of) == 0 {
			continue
		}
		var others []string
		for _, f := range left {
			if inbox.Overlap(f, filter) {
				others = append(others, f)
			}
		}
		all = append(all, leaving{filter: filter, of: of, others: others})
	}
	forgotten, all := tooMany(all)
	if g.s.leavings[h.member] = all; len(all) == 0 {
		delete(g.s.leavings, h.member)
	}
	h.setLeavings(all)
	for _, l := range forgotten {
		g.putSubscription(h.member, l.filter)
	}
	g.saveState(h, false)
}

// Bounds of the subscriptions that a session may have given up with something unread: how
// many, and how long the names of the others are together, in bytes. What it had by the
// earliest is then delivered after all.
const (
	mostLeavings = 64
	mostOthers   = 256 << 10
)

// tooMany cuts off the earliest of those that are over the bounds.
func tooMany(all []leaving) (forgotten, rest []leaving) {
	n, size := len(all), 0
	for n > max(0, len(all)-mostLeavings) {
		for _, f := range all[n-1].others {
			size += len(f)
		}
		if size > mostOthers {
			break
		}
		n--
	}
	return all[:n], all[n:]
}

// mayHaveUnread reports whether something may be stored that Next has not
// returned. Runs on the committer.
func (h *handle) mayHaveUnread() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.caughtUp || len(h.ready) > 0 || h.promised > 0 || h.handed > h.last || len(h.waiting) > 0 {
		return true
	}
	return slices.ContainsFunc(h.sources, func(s *source) bool { return s.stream.head.Load() > uint64(h.last) })
}

// notSent returns where, up to a position, everything is that Next has not returned,
// on this connection or an earlier one.
func (h *handle) notSent(upTo inbox.Position) inbox.Spans {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting.Add(inbox.Span{After: h.returned, Through: upTo})
}

// filtersOf returns the filters by which m gets messages.
func (s *Store) filtersOf(m inbox.Member) (filters []string) {
	for _, sub := range append(s.index.Subscriptions(m), s.streams.members.Subscriptions(m)...) {
		filters = append(filters, sub.Filter)
	}
	return filters
}

// left returns what m has given up of a filter, the earliest first.
func (s *Store) left(m inbox.Member, filter string) (all []leaving) {
	for _, l := range s.leavings[m] {
		if l.filter == filter {
			all = append(all, l)
		}
	}
	return all
}

// leftUntil returns up to where everything was stored that may be given up.
func leftUntil(all []leaving) (until inbox.Position) {
	for i := range all {
		until = max(until, all[i].until())
	}
	return until
}

// settleLeavings forgets the subscriptions of h's session that were given up and
// of which nothing is left, or can be had again.
func (g *commitGroup) settleLeavings(h *handle) {
	all := g.s.leavings[h.member]
	if len(all) == 0 {
		return
	}
	done := min(h.finishedDurably(), g.s.keptBehind())
	var rest, gone []leaving
	for _, l := range all {
		if l.until() <= done {
			gone = append(gone, l)
		} else {
			rest = append(rest, l)
		}
	}
	if len(gone) == 0 {
		return
	}
	if g.s.leavings[h.member] = rest; len(rest) == 0 {
		delete(g.s.leavings, h.member)
	}
	h.setLeavings(rest)
	for _, l := range gone {
		g.putSubscription(h.member, l.filter)
	}
}

// setLeavings replaces what h is not to be sent. It is taken out of what is ready before
// that is returned. Runs on the committer.
func (h *handle) setLeavings(all []leaving) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leavings, h.unsifted = all, len(all) > 0
}

// sift takes what is given up out of what is ready. Runs on the goroutine that calls Next,
// and holds no lock while it looks: names of other filters may be very many.
func (h *handle) sift() {
	h.mu.Lock()
	if !h.unsifted {
		h.mu.Unlock()
		return
	}
	h.unsifted = false
	leavings, ready := h.leavings, slices.Clone(h.ready)
	h.mu.Unlock()
	gone := map[inbox.Position]bool{}
	for i := range ready {
		if e := &ready[i]; drops(leavings, e.Position, e.Envelope.Topic) {
			gone[e.Position] = true
		}
	}
	if len(gone) > 0 {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.dropLocked(func(e *inbox.Entry) bool { return gone[e.Position] })
	}
}

// dropLocked takes entries out of what is ready.
func (h *handle) dropLocked(isGone func(*inbox.Entry) bool) {
	h.ready = slices.DeleteFunc(h.ready, func(e inbox.Entry) bool {
		gone := isGone(&e)
		if gone {
			h.bytes -= e.Envelope.Size()
		}
		return gone
	})
}
