package badger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

var _ inbox.Inbox = (*handle)(nil)

// Open implements [inbox.Store]. It costs a commit that it shares with whatever
// else is waiting, and one read.
func (s *Store) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("open inbox: %w", err)
	}
	if o.Will != nil && len(inbox.AppendEnvelope(nil, o.Will.Envelope)) > maxRecord {
		return nil, false, fmt.Errorf("open inbox: will: %w", inbox.ErrTooLarge)
	}
	// What is opened must come into somebody's hands: this wait is to its end.
	h, err := run(context.WithoutCancel(ctx), s, "open inbox", func(g *commitGroup) (*handle, error) {
		return g.open(r, o)
	})
	if err != nil {
		return nil, false, err
	}
	resumed := h.isResumed
	if resumed {
		if err := h.restore(); err != nil {
			return nil, false, errors.Join(fmt.Errorf("open inbox: %w", err), h.giveUp())
		}
	}
	return h, resumed, nil
}

// open makes a handle the owner of r's session.
func (g *commitGroup) open(r inbox.Receiver, o inbox.OpenOptions) (*handle, error) {
	s := g.s
	if _, ok := historyFilter(r); ok {
		return nil, inbox.ErrNoSession // it is nobody's inbox
	}
	if isGroup(r) { // it lives and ends with its members
		o.Resume, o.Fresh, o.Expiry, o.Will = true, false, inbox.ExpiryNever, nil
		o.Mode, o.From = inbox.ModeKept, nil
	}
	if o.From != nil && o.From.ID != (inbox.MessageID{}) && !s.knows(o.From.ID, s.sequence) {
		return nil, inbox.ErrUnknownID
	}
	m := s.sessions.member(r)
	if m != 0 {
		sess := s.sessions.at(m)
		if sess.willDue() <= g.now.UnixMilli() {
			g.publishWill(m) // the receiver comes too late to hold it back
		}
		if owner := sess.owner(); owner != nil {
			g.saveNow(owner)
			g.detach(owner)
			owner.fence()
			sess.setOwner(nil)
		}
		if o.Fresh || sess.expiry == inbox.ExpiryAtOnce || sess.over() <= g.now.UnixMilli() {
			g.end(m)
			m = 0
		}
	}
	resumed := m != 0
	if o.Resume && !resumed {
		return nil, inbox.ErrNoSession
	}
	if g.critical && !resumed && o.Expiry != inbox.ExpiryAtOnce {
		return nil, inbox.ErrFull
	}
	if !resumed {
		m = s.sessions.add(session{receiver: r, incarnation: g.nextIncarnation(), stored: o.Expiry != inbox.ExpiryAtOnce})
	}
	sess := s.sessions.at(m)
	sess.expiry, sess.ended = o.Expiry, 0
	sess.setMode(o.Mode)
	if sess.stored() {
		g.putSession(sess)
	}
	g.setWill(m, o.Will) // the one of an earlier link is not published any more [MQTT-3.1.3-9]
	if resumed && sess.mode() == inbox.ModePull {
		g.nextSequence() // where Next begins is no message's place: see goBack
	}
	h := &handle{
		s: s, receiver: r, incarnation: sess.incarnation, member: m, stored: sess.stored(),
		mode: sess.mode(), state: o.State, live: o.Live, isResumed: resumed,
		wake: make(chan struct{}, 1), fenced: make(chan struct{}),
		before: s.sequence, last: s.sequence, caughtUp: !resumed, received: map[uint16]bool{}, given: map[inbox.Position]struct{}{}, brought: map[inbox.Position]inbox.Position{},
	}
	if !resumed {
		h.position = s.sequence
	} else if o.From != nil {
		h.again = &again{from: *o.From, outlook: g.look(m)}
	}
	sess.setOwner(h)
	g.attach(h)
	return h, nil
}

// end removes a session with everything that belongs to it: what is in memory
// now, what is on disk in the background. The note to purge is durable with
// the group.
func (g *commitGroup) end(m inbox.Member) {
	s := g.s
	shared := s.sharedFilters(m)
	if h := s.sessions.at(m).owner(); h != nil {
		g.detach(h)
	}
	sess := s.sessions.at(m)
	if sess.stored() || sess.spilled() {
		_, history := historyFilter(sess.receiver())
		note := ended{sess.incarnation, history}
		g.put(numberKey(prefixPurge, uint64(sess.incarnation)), note.value())
		g.ended = append(g.ended, note)
	}
	if sess.stored() {
		g.delete(sessionKey(sess.receiver())) // behind the note: one of them is there whatever happens
	}
	s.index.RemoveAll(m)
	g.endIndex(sess.incarnation)
	g.leaveStreams(m) // behind both: who is said to read a stream that is gone with its last reader is gone too
	g.publishWill(m)
	if owner := sess.owner(); owner != nil {
		owner.fence()
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

func (g *commitGroup) nextIncarnation() incarnation {
	s := g.s
	s.incarnation++
	if s.incarnation >= s.incarnationEnd {
		s.incarnationEnd = s.incarnation + incarnationLease
		g.put(keyIncarnation, binary.BigEndian.AppendUint64(nil, uint64(s.incarnationEnd)))
	}
	return s.incarnation
}

func (g *commitGroup) putSession(sess sessionRef) {
	value, err := appendSession(nil, sess)
	if err != nil {
		g.s.fail(fmt.Errorf("encode session: %w", err))
		return
	}
	g.put(sessionKey(sess.receiver()), value)
}

// restore reads the delivery state, and decides where Next begins. Runs on the opener;
// nobody else writes it from now on.
func (h *handle) restore() error {
	var r progressRecord
	acked := false
	err := h.s.view(func(txn *badger.Txn) (err error) {
		h.resumedReceived = readReceived(txn, h.incarnation)
		acked = hasAcked(txn, h.incarnation)
		r, err = readProgress(txn, h.incarnation)
		return err
	})
	if err != nil {
		return fmt.Errorf("read delivery state: %w", err)
	}
	if acked {
		h.noteAcked()
	}
	for _, id := range h.resumedReceived {
		h.received[id] = true // the committer has it when the opener's first operation comes
	}
	h.s.sweeper.opened(h, r.swept)
	return h.begin(r)
}

// giveUp leaves the session as it is, without an owner.
func (h *handle) giveUp() error {
	return h.s.do(context.Background(), "give up inbox", func(g *commitGroup) error {
		if h.owns() {
			g.setWill(h.member, nil) // its client is refused, and was never there
			sess := h.s.sessions.at(h.member)
			g.detach(h)
			sess.setOwner(nil)
			sess.ended = g.now.UnixMilli()
			h.fence()
			h.s.watch(h.member)
		}
		return nil
	})
}

// Close implements [inbox.Inbox]. It is queued at once, whatever the context
// and however full the queue: a session must not stay behind with an owner that
// is gone.
func (h *handle) Close(ctx context.Context, end inbox.Ending) error {
	_, err := runBy(ctx, "close inbox", func(g *commitGroup) (struct{}, error) {
		return struct{}{}, g.close(h, end)
	}, func(op operation) error {
		if !h.s.queue.force(op) {
			return inbox.ErrClosed
		}
		return nil
	})
	return err
}

func (g *commitGroup) close(h *handle, end inbox.Ending) error {
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
	if end.Expiry == inbox.ExpiryAtOnce || !sess.stored() {
		g.end(h.member)
		return nil
	}
	sess.setOwner(nil)
	sess.expiry, sess.ended = end.Expiry, g.now.UnixMilli()
	g.saveState(h, true)
	g.detach(h)
	g.putSession(sess)
	h.fence()
	if will := sess.will(); will != nil && will.Delay == 0 {
		g.publishWill(h.member)
	}
	h.s.watch(h.member)
	return nil
}
