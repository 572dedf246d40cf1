package badger

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// subscribe adds or replaces one subscription of h's session, and reports
// whether there was one. It stands in the index, or, if the filter has a stream
// and the session is one that streams are for, makes the session a member from
// here on.
func (g *commitGroup) subscribe(h *handle, sub inbox.Subscription) (existed bool) {
	s, m := g.s, h.member
	if _, _, shared := inbox.Shared(sub.Filter); shared || !s.streamable(m, sub) {
		existed = g.leave(m, sub.Filter)
		existed = s.index.Subscribe(m, sub) || existed
		g.putSubscription(m, sub.Filter)
		g.joinGroup(sub.Filter)
		return existed
	}
	st := s.streams.byFilter[sub.Filter]
	if (st == nil || !st.open) && !g.wantsStream(m, sub.Filter) {
		existed = s.index.Subscribe(m, sub)
		g.putSubscription(m, sub.Filter)
		return existed
	}
	if st == nil || !st.open {
		st = g.openStream(sub.Filter)
	}
	existed = s.index.Unsubscribe(m, sub.Filter)
	if was, member := s.streams.members.Subscription(m, sub.Filter); member {
		existed = true
		if was == withoutHandling(sub) {
			return existed // as when a client comes back
		}
		g.endSegment(m, st, was)
	}
	g.join(m, st, sub)
	return existed
}

// mayChange reports whether m may have these subscriptions, or is too many changes
// behind in the stream of one of them.
func (s *Store) mayChange(m inbox.Member, subs []inbox.Subscription) bool {
	for _, sub := range subs {
		st := s.streams.byFilter[sub.Filter]
		if st == nil || !st.past[m].isFull(st.position(m)) {
			continue
		}
		if was, member := s.streams.members.Subscription(m, sub.Filter); !member || was != withoutHandling(sub) {
			return false
		}
	}
	return true
}

// withoutHandling is a subscription as the index keeps it.
func withoutHandling(sub inbox.Subscription) inbox.Subscription {
	sub.RetainHandling = 0
	return sub
}

// unsubscribe removes subscriptions of h's session, and reports for each whether there
// was one. But says for each what is not given up with it, though it was not sent.
func (g *commitGroup) unsubscribe(h *handle, filters []string, but func(string) inbox.Spans) (existed []bool) {
	var gone []string
	for _, filter := range filters {
		left := g.leave(h.member, filter)
		left = g.s.index.Unsubscribe(h.member, filter) || left
		if existed = append(existed, left); left {
			gone = append(gone, filter)
		}
	}
	g.giveUpUnread(h, gone, but)
	for _, filter := range gone {
		g.putSubscription(h.member, filter)
	}
	for _, filter := range filters {
		g.leaveGroup(filter)
	}
	return existed
}

// join makes m a member of a stream from here on.
func (g *commitGroup) join(m inbox.Member, st *stream, sub inbox.Subscription) {
	s := g.s
	s.streams.members.Subscribe(m, sub)
	st.put(m, s.sequence)
	if st.position(m) < s.sequence || st.past[m] != nil { // it has not finished what it read before, or can have it again
		s.streams.pastOf(m, st).since = s.sequence
	}
	g.putSubscription(m, sub.Filter)
	g.reread(m, st)
}

// leave ends m's membership in the stream of a filter, if it has one, and reports
// whether it had. What it has not read of it is still read.
func (g *commitGroup) leave(m inbox.Member, filter string) (was bool) {
	s := g.s
	st := s.streams.byFilter[filter]
	if st == nil {
		return false
	}
	sub, was := s.streams.members.Subscription(m, filter)
	if !was {
		return false
	}
	s.streams.members.Unsubscribe(m, filter)
	g.endSegment(m, st, sub)
	g.reread(m, st)
	g.shrink(st)
	return true
}

// endSegment has m read a stream to here, with the options that it had, unless
// there is nothing to be read.
func (g *commitGroup) endSegment(m inbox.Member, st *stream, sub inbox.Subscription) {
	since := g.since(m, st)
	p := g.s.streams.pastOf(m, st)
	if inbox.Position(st.head.Load()) <= since {
		return
	}
	for len(p.segments) >= mostSegments && p.segments[0].until <= st.position(m) {
		p.segments = p.segments[1:] // that cannot be had again any more
	}
	p.segments = append(slices.Clip(p.segments), segment{since: since, until: g.s.sequence, sub: sub})
}

// since returns from where on the present membership of m is to be read: if what is
// finished can be had again, from where it began.
func (g *commitGroup) since(m inbox.Member, st *stream) inbox.Position {
	if g.s.rewind <= 0 {
		return st.since(m)
	}
	return g.joined(m, st)
}

// joined returns where the present membership of m began, or, if nothing that is finished
// can be had again, a later position up to which it has finished everything.
func (g *commitGroup) joined(m inbox.Member, st *stream) inbox.Position {
	since := st.joined(m)
	if g.s.rewind <= 0 || st.past[m] != nil {
		return since
	}
	sub, err := readSubscription(g.txn, g.s.sessions.at(m).incarnation, st.filter)
	if err != nil || !sub.member {
		return since // it is joining now, whatever it has been before in this group
	}
	return min(since, sub.since)
}

// reread has m, if it is connected, read a stream as it is said now.
func (g *commitGroup) reread(m inbox.Member, st *stream) {
	h := g.s.sessions.at(m).owner()
	if h == nil {
		return
	}
	h.attached = true
	sources := g.s.sources(m, st)
	h.setSources(st, sources)
	it := fanItem{kind: fanLeave, stream: st, to: h}
	if n := len(sources); n > 0 && sources[n-1].until == endless {
		it.kind, it.sources = fanJoin, sources[n-1:]
	}
	g.fan = append(g.fan, it)
}

// sources returns how m reads a stream: what it has still to read, and, if it is
// a member, what comes.
func (s *Store) sources(m inbox.Member, st *stream) (all []*source) {
	all = st.pastSources(m)
	if sub, ok := s.streams.members.Subscription(m, st.filter); ok {
		all = append(all, &source{stream: st, segment: segment{since: st.since(m), until: endless, sub: sub}})
	}
	return all
}

// pastSources returns what m has still to read of a stream as it was once
// subscribed.
func (st *stream) pastSources(m inbox.Member) (all []*source) {
	if p := st.past[m]; p != nil {
		for _, seg := range p.segments {
			all = append(all, &source{stream: st, segment: seg})
		}
	}
	return all
}

// settlePast forgets what m has finished of its past in a stream.
func (g *commitGroup) settlePast(m inbox.Member, st *stream, finished inbox.Position) {
	s, p := g.s, st.past[m]
	n := 0
	for n < len(p.segments) && p.segments[n].until <= finished {
		n++
	}
	_, member := s.streams.members.Subscription(m, st.filter)
	over := n == len(p.segments) && (!member || p.since <= finished)
	if n == 0 && !over {
		return
	}
	p.segments = p.segments[n:]
	if over {
		s.streams.forget(m, st)
		if !member {
			st.readers.remove(m)
		}
	}
	r, ok := s.subscription(m, st.filter)
	r.since = min(r.since, p.since)
	g.putSubscriptionRecord(m, r, ok)
	g.reread(m, st)
}

// leaveStreams forgets a session that ends in all its streams.
func (g *commitGroup) leaveStreams(m inbox.Member) {
	s := g.s
	read := s.streams.of(m)
	for _, st := range read {
		st.readers.remove(m)
		s.streams.forget(m, st)
		s.streams.members.Unsubscribe(m, st.filter)
		s.streams.unswept[st] = struct{}{} // it may have been the slowest
	}
	delete(s.leavings, m)
	if st := s.streams.byMember[m]; st != nil { // it is a stream's own
		delete(s.streams.byMember, m)
		delete(s.streams.byFilter, st.filter)
		delete(s.streams.unswept, st)
	}
	for _, st := range read {
		g.shrink(st)
	}
}

// attach has a receiver that has just connected, and that nobody else has yet, read
// all its streams, and notes what it is subscribed to. Cost: under 1 µs for each.
func (g *commitGroup) attach(h *handle) {
	s, m := g.s, h.member
	memberships := s.streams.members.Subscriptions(m)
	present := make([]source, len(memberships))
	sources := make([]*source, len(memberships))
	for i, sub := range memberships {
		st := s.streams.byFilter[sub.Filter]
		present[i] = source{stream: st, segment: segment{since: st.since(m), until: endless, sub: sub}}
		sources[i] = &present[i]
	}
	if len(sources) > 0 {
		g.fan = append(g.fan, fanItem{kind: fanJoin, to: h, sources: sources})
	}
	h.sources = slices.Clip(sources)
	for _, st := range s.streams.pasts[m] {
		h.sources = append(h.sources, st.pastSources(m)...)
	}
	h.attached = len(h.sources) > 0
	h.subscribed = append(s.index.Subscriptions(m), memberships...)
	h.setLeavings(s.leavings[m])
}

// detach notes how far a receiver whose inbox is given up has come in its
// streams, and has them handed to it no more.
func (g *commitGroup) detach(h *handle) {
	done := h.finished()
	all := h.allSources()
	for _, src := range all {
		src.stream.advance(h.member, done)
	}
	if len(all) > 0 {
		g.fan = append(g.fan, fanItem{kind: fanLeave, to: h, sources: all})
	}
}
