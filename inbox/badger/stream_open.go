package badger

import "github.com/mqtt-inbox/mqtt-inbox/inbox"

// streamable reports whether a subscription of m is one that streams are for:
// the session outlives its link, and gets messages that are kept.
func (s *Store) streamable(m inbox.Member, sub inbox.Subscription) bool {
	sess := s.sessions.at(m)
	return sub.QoS > 0 && sess.stored() && !isGroup(sess.receiver())
}

// wantsStream reports whether a filter is to have a stream once m is subscribed
// to it. It looks at the other subscribers only when there are enough.
func (g *commitGroup) wantsStream(m inbox.Member, filter string) bool {
	s := g.s
	push, pull := s.streams.forced(filter)
	switch {
	case push || pull:
		return pull
	case s.streams.from <= 0 || s.index.Members(filter)+1 < s.streams.from:
		return false
	}
	n := 1
	for other, sub := range s.index.Subscribers(filter) {
		if other != m && s.streamable(other, sub) {
			n++
		}
	}
	return n >= s.streams.from
}

// openStream makes the stream of a filter, or opens the one that is being read
// to its end, and makes those its members that are subscribed already. What was
// stored for them before stays where it is. Cost: a record for each, which are few,
// unless the operator has changed what decides.
func (g *commitGroup) openStream(filter string) *stream {
	s := g.s
	st := s.streams.byFilter[filter]
	if st == nil {
		m := s.sessions.add(session{
			receiver: streamReceiver(filter), incarnation: g.nextIncarnation(),
			stored: true, expiry: inbox.ExpiryNever, ended: g.now.UnixMilli(),
		})
		g.putSession(s.sessions.at(m))
		st = s.addStream(filter, m)
		st.head.Store(0)
		st.known = true
	}
	before := s.subscribers(filter)
	s.serve(st)
	for _, b := range before {
		s.index.Unsubscribe(b.member, filter)
		g.join(b.member, st, b.sub)
	}
	return st
}

type subscriber struct {
	member inbox.Member
	sub    inbox.Subscription
}

// subscribers returns those in the index that a stream of the filter is for.
func (s *Store) subscribers(filter string) (all []subscriber) {
	for m, sub := range s.index.Subscribers(filter) {
		if s.streamable(m, sub) {
			all = append(all, subscriber{m, sub})
		}
	}
	return all
}

// addStream notes a stream and its session.
func (s *Store) addStream(filter string, m inbox.Member) *stream {
	st := &stream{
		filter: filter, member: m, incarnation: s.sessions.at(m).incarnation,
		past: map[inbox.Member]*past{},
	}
	st.head.Store(headUnknown)
	s.streams.byFilter[filter] = st
	s.streams.byMember[m] = st
	s.streams.unswept[st] = struct{}{}
	return st
}

// serve has the index find the stream.
func (s *Store) serve(st *stream) {
	st.open = true
	s.index.Subscribe(st.member, inbox.Subscription{Filter: st.filter, QoS: streamQoS, RetainAsPublished: true})
}

// shrink closes a stream that has few members left, and ends one that nobody
// reads.
func (g *commitGroup) shrink(st *stream) {
	s := g.s
	n := s.streams.members.Members(st.filter)
	push, pull := s.streams.forced(st.filter)
	if st.open && (n == 0 || push || !pull && (s.streams.from <= 0 || n < s.streams.from/shrinkTo)) {
		g.closeStream(st)
	}
	if st.readers.len == 0 && s.streams.byFilter[st.filter] == st {
		g.end(st.member)
	}
}

// shrinkTo is the part of the members at which a stream begins that must stay for
// it to go on: far enough from all of them that nobody who comes and goes makes
// it begin and end again.
const shrinkTo = 4

// closeStream has the members of a stream get references from now on. They read
// what is in it to its end. Cost: as for openStream.
func (g *commitGroup) closeStream(st *stream) {
	s := g.s
	st.open = false
	s.index.Unsubscribe(st.member, st.filter)
	var all []subscriber
	for m, sub := range s.streams.members.Subscribers(st.filter) {
		all = append(all, subscriber{m, sub})
	}
	for _, r := range all {
		s.streams.members.Unsubscribe(r.member, st.filter)
		s.index.Subscribe(r.member, r.sub)
		g.endSegment(r.member, st, r.sub)
		g.putSubscription(r.member, st.filter)
		g.reread(r.member, st)
	}
}
