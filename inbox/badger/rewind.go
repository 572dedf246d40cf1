package badger

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// again is what is needed to start again.
type again struct {
	from inbox.Bound
	outlook
}

// startAgain makes everything unread that is kept behind a bound, and forgets what
// was on its way.
func (h *handle) startAgain(r progressRecord) (progressRecord, error) {
	a := h.again
	after, joined := inbox.Position(0), map[*stream]inbox.Position{}
	err := h.s.view(func(txn *badger.Txn) (err error) {
		u := &unread{outlook: a.outlook, s: h.s, txn: txn, progress: r}
		if joined, err = u.fromJoining(); err == nil {
			after, _, err = u.place(a.from)
		}
		return err
	})
	if err != nil {
		return r, fmt.Errorf("start again: %w", err)
	}
	last := h.before
	err = h.changeProgress("start again", func(g *commitGroup) {
		after := min(max(after, h.s.keptBehind(), r.swept), last) // what is kept now: the sweeper may be about to delete the rest
		all := r.unfinished(last).Add(inbox.Span{After: after, Through: last})
		g.forgetAcked(h.incarnation, after)
		r.Withdraw(func(inbox.Delivery) bool { return true })
		r.Sent, r.waiting = last, all
		switch {
		case h.mode == inbox.ModePull && len(all) > mostWaiting:
			r = g.joinWaiting(h.incarnation, r)
			fallthrough
		case h.mode == inbox.ModePull || len(all) == 0:
			g.putProgress(h.incarnation, r)
		default:
			r = g.goBack(h, r)
		}
		g.readAgain(h, r.finished(), joined)
	})
	return r, err
}

// readAgain has the streams of a session read from a position on, or from where it
// joined them, and the sweeper begin there.
func (g *commitGroup) readAgain(h *handle, after inbox.Position, joined map[*stream]inbox.Position) {
	g.s.sweeper.wentBack(h.incarnation, after)
	g.remakeIndex(h.incarnation) // it may have what was deleted behind that
	g.s.wentBack++
	for _, st := range g.s.streams.of(h.member) {
		from := after
		if st.past[h.member] == nil {
			since, known := joined[st]
			if !known {
				continue // it has joined meanwhile, and has nothing to read again
			}
			from = max(after, since)
		}
		if r := st.readers.of(h.member); r != nil && from < r.position() {
			r.set(from)
			st.slowest = place{}
			g.reread(h.member, st)
		}
	}
}

// fromJoining has the streams read from where the present memberships began, and returns
// these places.
func (u *unread) fromJoining() (map[*stream]inbox.Position, error) {
	joined := map[*stream]inbox.Position{}
	for _, src := range u.sources {
		if src.until != endless {
			continue
		}
		sub, err := readSubscription(u.txn, u.incarnation, src.stream.filter)
		if errors.Is(err, badger.ErrKeyNotFound) {
			continue // left meanwhile
		}
		if err != nil {
			return nil, err
		}
		if sub.member {
			src.since = min(src.since, sub.since)
			joined[src.stream] = src.since
		}
	}
	return joined, nil
}
