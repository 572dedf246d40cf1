package badger

import "github.com/mqtt-inbox/mqtt-inbox/inbox"

// A shared subscription is a session of its own, without a client: its receiver
// is the group, its only subscription the inner filter. The members' own
// subscriptions, with the whole filter, match no topic; they say who is a
// member. So a group's messages are stored once and stay while its members are
// away, and the group ends with its last member.

// joinGroup creates the group of a shared subscription if it is not there.
func (g *commitGroup) joinGroup(filter string) {
	_, inner, ok := inbox.Shared(filter)
	if !ok || g.s.sessions.member(inbox.GroupReceiver(filter)) != 0 {
		return
	}
	s := g.s
	m := s.sessions.add(session{
		receiver: inbox.GroupReceiver(filter), incarnation: g.nextIncarnation(),
		stored: true, expiry: inbox.ExpiryNever, ended: g.now.UnixMilli(),
	})
	g.putSession(s.sessions.at(m))
	// What the members asked for is applied when one of them gets a message.
	all := inbox.Subscription{Filter: inner, QoS: 2, RetainAsPublished: true}
	s.index.Subscribe(m, all)
	g.putSubscription(m, inner)
}

// leaveGroup ends the group of a shared subscription that has no member left.
func (g *commitGroup) leaveGroup(filter string) {
	if _, _, ok := inbox.Shared(filter); !ok || g.s.index.Members(filter) > 0 {
		return
	}
	if m := g.s.sessions.member(inbox.GroupReceiver(filter)); m != 0 {
		g.end(m)
	}
}

// isGroup reports whether a receiver is no client but a group (see
// [inbox.GroupReceiver]), a stream (see streamReceiver) or a history (see
// historyReceiver).
func isGroup[T inbox.Receiver | []byte](r T) bool { return len(r) > 0 && r[0] == 0 }
