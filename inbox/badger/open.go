package badger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

var _ inbox.Inbox = (*handle)(nil)

// do runs apply on the committer and returns when its group is durable.
func (s *Store) do(ctx context.Context, what string, apply func(*group) error) error {
	var refused error
	done := make(chan error, 1)
	err := s.queue.put(ctx, operation{
		apply:   func(g *group) { refused = apply(g) },
		applied: func(err error) { done <- err },
	})
	if err == nil {
		select {
		case err = <-done:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
	if err == nil {
		err = refused
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Open implements [inbox.Store]. It costs a commit that it shares with whatever
// else is waiting, and one read.
func (s *Store) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	var (
		h       *handle
		resumed bool
	)
	if o.Will != nil && len(inbox.AppendEnvelope(nil, o.Will.Envelope)) > maxRecord {
		return nil, false, fmt.Errorf("open inbox: will: %w", inbox.ErrTooLarge)
	}
	err := s.do(ctx, "open inbox", func(g *group) (err error) {
		h, resumed, err = g.open(r, o)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if resumed {
		if err := h.restore(); err != nil {
			return nil, false, fmt.Errorf("open inbox: %w", err)
		}
	}
	return h, resumed, nil
}

// open makes a handle the owner of r's session.
func (g *group) open(r inbox.Receiver, o inbox.OpenOptions) (h *handle, resumed bool, err error) {
	s := g.s
	if isGroup(r) { // it lives and ends with its members
		o.Resume, o.Fresh, o.Expiry, o.Will = true, false, inbox.ExpiryNever, nil
	}
	m := s.sessions.member(r)
	if m != 0 {
		sess := s.sessions.at(m)
		if sess.willDue() <= g.now.UnixMilli() {
			g.publishWill(m) // the receiver comes too late to hold it back
		}
		if sess.owner != nil {
			sess.owner.fence()
			sess.owner = nil
		}
		if o.Fresh || sess.expiry == inbox.ExpiryAtOnce || sess.over() <= g.now.UnixMilli() {
			g.end(m)
			m = 0
		}
	}
	resumed = m != 0
	if o.Resume && !resumed {
		return nil, false, inbox.ErrNoSession
	}
	if !resumed {
		m = s.sessions.add(session{receiver: r, incarnation: g.nextIncarnation(), stored: o.Expiry != inbox.ExpiryAtOnce})
	}
	sess := s.sessions.at(m)
	sess.expiry, sess.ended = o.Expiry, 0
	if sess.stored {
		g.putSession(sess)
	}
	g.setWill(m, o.Will) // the one of an earlier link is not published any more [MQTT-3.1.3-9]
	h = &handle{
		s: s, receiver: r, incarnation: sess.incarnation, member: m, stored: sess.stored,
		state: o.State, live: o.Live,
		wake: make(chan struct{}, 1), fenced: make(chan struct{}),
		last: s.sequence, caughtUp: !resumed, received: map[uint16]bool{},
	}
	if !resumed {
		h.position = s.sequence
	}
	sess = s.sessions.at(m)
	sess.owner = h
	return h, resumed, nil
}

// end removes a session with everything that belongs to it: what is in memory
// now, what is on disk in the background. The note to purge is durable with
// the group.
func (g *group) end(m inbox.Member) {
	s := g.s
	shared := s.sharedFilters(m)
	s.index.RemoveAll(m)
	g.publishWill(m)
	sess := s.sessions.at(m)
	if sess.owner != nil {
		sess.owner.fence()
	}
	if sess.stored {
		g.delete(sessionKey(sess.receiver))
	}
	if sess.stored || sess.spilled {
		g.put(numberKey(prefixPurge, uint64(sess.incarnation)), nil)
		g.ended = append(g.ended, sess.incarnation)
	}
	s.sessions.remove(m)
	for _, filter := range shared {
		g.leaveGroup(filter)
	}
}

// sharedFilters returns the filters of m's shared subscriptions.
func (s *Store) sharedFilters(m inbox.Member) (filters []string) {
	for _, sub := range s.index.Subscriptions(m) {
		if _, _, ok := inbox.Shared(sub.Filter); ok {
			filters = append(filters, sub.Filter)
		}
	}
	return filters
}

const incarnationLease = 1 << 10

func (g *group) nextIncarnation() incarnation {
	s := g.s
	s.incarnation++
	if s.incarnation >= s.incarnationEnd {
		s.incarnationEnd = s.incarnation + incarnationLease
		g.put(keyIncarnation, binary.BigEndian.AppendUint64(nil, uint64(s.incarnationEnd)))
	}
	return s.incarnation
}

func (g *group) putSession(sess *session) {
	value, err := appendSession(nil, sess)
	if err != nil {
		g.s.fail(fmt.Errorf("encode session: %w", err))
		return
	}
	g.put(sessionKey(sess.receiver), value)
}

// restore reads the delivery state. Runs on the opener; nobody else writes it
// from now on.
func (h *handle) restore() error {
	var swept inbox.Position
	err := h.s.view(func(txn *badger.Txn) error {
		item, err := txn.Get(numberKey(prefixState, uint64(h.incarnation)))
		h.resumedReceived = readReceived(txn, h.incarnation)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return item.Value(func(v []byte) (err error) {
			swept, h.resumed, err = parseStateRecord(v)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("read delivery state: %w", err)
	}
	for _, id := range h.resumedReceived {
		h.received[id] = true // the committer has it when the opener's first operation comes
	}
	h.mu.Lock()
	h.position = h.resumed.Sent
	h.mu.Unlock()
	h.s.sweeper.opened(h.incarnation, swept)
	return nil
}

// Subscriptions implements [inbox.Inbox].
func (h *handle) Subscriptions(ctx context.Context) ([]inbox.Subscription, error) {
	var subs []inbox.Subscription // after an error the committer may not be done with it
	err := h.s.do(ctx, "list subscriptions", func(*group) error {
		if !h.owns() {
			return inbox.ErrFenced
		}
		subs = h.s.index.Subscriptions(h.member)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return subs, nil
}

// Subscribe implements [inbox.Inbox]: the index changes between two messages
// of the same order, so a subscription begins exactly where it was committed.
func (h *handle) Subscribe(ctx context.Context, subs ...inbox.Subscription) ([]bool, error) {
	var (
		existed []bool // after an error the committer may not be done with it
		since   inbox.Position
	)
	err := h.s.do(ctx, "subscribe", func(g *group) error {
		if !h.owns() {
			return inbox.ErrFenced
		}
		since = h.s.sequence
		for _, sub := range subs {
			existed = append(existed, h.s.index.Subscribe(h.member, sub))
			if err := g.joinGroup(sub); err != nil {
				return err
			}
			if !h.stored {
				continue
			}
			if err := g.putSubscription(h.incarnation, sub); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, sub := range subs {
		if !wantsRetained(sub, existed[i]) {
			continue
		}
		if err := h.sendRetained(ctx, sub, since); err != nil {
			return existed, err
		}
	}
	return existed, nil
}

// wantsRetained reports whether a SUBSCRIBE brings retained messages.
func wantsRetained(sub inbox.Subscription, existed bool) bool {
	if _, _, shared := inbox.Shared(sub.Filter); shared {
		return false
	}
	return sub.RetainHandling == 0 || sub.RetainHandling == 1 && !existed // [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
}

func (g *group) putSubscription(inc incarnation, sub inbox.Subscription) error {
	value, err := appendSubscription(nil, sub)
	if err != nil {
		return err
	}
	g.put(subscriptionKey(inc, sub.Filter), value)
	return nil
}

// Unsubscribe implements [inbox.Inbox].
func (h *handle) Unsubscribe(ctx context.Context, filters ...string) ([]bool, error) {
	var existed []bool // after an error the committer may not be done with it
	err := h.s.do(ctx, "unsubscribe", func(g *group) error {
		if !h.owns() {
			return inbox.ErrFenced
		}
		for _, filter := range filters {
			was := h.s.index.Unsubscribe(h.member, filter)
			existed = append(existed, was)
			if was && h.stored {
				g.delete(subscriptionKey(h.incarnation, filter))
			}
			g.leaveGroup(filter)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return existed, nil
}

// Close implements [inbox.Inbox].
func (h *handle) Close(ctx context.Context, end inbox.Ending) error {
	return h.s.do(ctx, "close inbox", func(g *group) error {
		if !h.owns() {
			return inbox.ErrFenced
		}
		if isGroup(h.receiver) {
			end.Expiry = inbox.ExpiryNever
		}
		if end.Goodbye {
			g.setWill(h.member, nil)
		}
		sess := h.s.sessions.at(h.member)
		if end.Expiry == inbox.ExpiryAtOnce || !sess.stored {
			g.end(h.member)
			return nil
		}
		sess.owner = nil
		sess.expiry, sess.ended = end.Expiry, g.now.UnixMilli()
		g.saveState(h, true)
		g.putSession(sess)
		h.fence()
		if sess.will != nil && sess.will.Delay == 0 {
			g.publishWill(h.member)
		}
		h.s.watch(h.member)
		return nil
	})
}

// Sessions implements [inbox.Store]. It takes the sessions from the committer
// a thousand at a time.
func (s *Store) Sessions(ctx context.Context) iter.Seq2[inbox.Session, error] {
	return func(yield func(inbox.Session, error) bool) {
		for next := 1; ; {
			var part []inbox.Session
			err := s.do(ctx, "list sessions", func(*group) error {
				end := min(next+1000, len(s.sessions.byMember))
				for ; next < end; next++ {
					if sess := &s.sessions.byMember[next]; sess.incarnation != 0 && !isGroup(sess.receiver) {
						part = append(part, inbox.Session{
							Receiver: sess.receiver, Expiry: sess.expiry,
							Connected: sess.owner != nil, Ended: sess.ended,
						})
					}
				}
				if next >= len(s.sessions.byMember) {
					next = 0
				}
				return nil
			})
			if err != nil {
				yield(inbox.Session{}, err)
				return
			}
			for _, sess := range part {
				if !yield(sess, nil) {
					return
				}
			}
			if next == 0 {
				return
			}
		}
	}
}
