package badger

import (
	"context"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Mode implements [inbox.Inbox].
func (h *handle) Mode() inbox.Mode { return h.mode }

// SetMode implements [inbox.Puller].
func (s *Store) SetMode(ctx context.Context, r inbox.Receiver, m inbox.Mode) (inbox.Mode, error) {
	return run(ctx, s, "set mode", func(g *commitGroup) (inbox.Mode, error) {
		member := s.sessions.member(r)
		if member == 0 || isGroup(r) || s.sessions.at(member).over() <= g.now.UnixMilli() {
			return inbox.ModeKept, inbox.ErrNoSession
		}
		sess := s.sessions.at(member)
		g.setMode(sess, m)
		return sess.mode(), nil
	})
}

// setMode writes how a receiver is to be served, if that changes.
func (g *commitGroup) setMode(sess sessionRef, m inbox.Mode) {
	was := sess.mode()
	sess.setMode(m)
	if sess.mode() != was && sess.stored() {
		g.putSession(sess)
	}
}
