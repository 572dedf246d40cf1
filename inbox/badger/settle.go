package badger

import (
	"bytes"
	"maps"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What is acknowledged without PUBACK moves no delivery state. So that it can be
// deleted all the same, the sweeper reads on from where everything is finished, as
// long as nothing is unread, and has the state moved there: that of a receiver who is
// away, and where the first of what waits begins for one who pulls. What is noted
// as acknowledged in front of that goes.

// piecesAtOnce bounds how many pieces of what is acknowledged are deleted in one step.
const piecesAtOnce = 1000

// acknowledged notes inboxes in which something was acknowledged that the sweeper may
// find finished. Runs on the committer; never waits.
func (w *sweeper) acknowledged(all map[incarnation]inbox.Member) {
	if len(all) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.acked, all)
}

func (w *sweeper) takeAcked() map[incarnation]inbox.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	acked := w.acked
	w.acked = map[incarnation]inbox.Member{}
	return acked
}

// settleAcked moves the states of inboxes in which something was acknowledged.
func (w *sweeper) settleAcked() {
	if err := w.resumeAcked(); err != nil {
		w.report(0, err)
	}
	for inc, m := range w.takeAcked() {
		again, err := w.settle(inc, m)
		if err != nil {
			w.report(inc, err)
		}
		if again || err != nil {
			w.acknowledged(map[incarnation]inbox.Member{inc: m})
		}
	}
}

// resumeAcked notes those inboxes after a start. It looks at those in which something
// is acknowledged, some in each round, until it has seen them all. Cost: 3 µs for each,
// in the background, and a look at all sessions, once.
func (w *sweeper) resumeAcked() error {
	if w.resumedAcked {
		return nil
	}
	found := map[incarnation]inbox.Member{}
	done := false
	err := w.s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte{prefixAcked}})
		defer it.Close()
		for range resumeAtOnce {
			if it.Seek(numberKey(prefixAcked, uint64(w.nextAcked))); !it.Valid() {
				done = true
				return nil
			}
			inc := keyIncarnationOf(it.Item().Key())
			found[inc], w.nextAcked = 0, inc+1
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		w.resumedAcked = done
		return err
	}
	err = w.s.do(w.s.background, "find inboxes", func(g *commitGroup) error {
		for m := inbox.Member(1); m < g.s.sessions.used; m++ {
			if inc := g.s.sessions.at(m).incarnation; inc != 0 {
				if _, wanted := found[inc]; wanted {
					found[inc] = m
				}
			}
		}
		return nil
	})
	maps.DeleteFunc(found, func(_ incarnation, m inbox.Member) bool { return m == 0 }) // ended
	w.acknowledged(found)
	w.resumedAcked = done
	return err
}

// settle moves the state of one inbox, and reports whether there is more to do.
func (w *sweeper) settle(inc incarnation, m inbox.Member) (again bool, err error) {
	o, err := run(w.s.background, w.s, "look at inbox", func(g *commitGroup) (o outlook, err error) {
		if g.s.sessions.at(m).incarnation == inc {
			o = g.look(m)
		}
		return o, nil
	})
	if err != nil || o.incarnation == 0 || o.inMemory {
		return false, err
	}
	var was progressRecord
	finished := o.upTo
	err = w.s.view(func(txn *badger.Txn) error {
		u, err := w.s.unread(txn, o)
		if err != nil {
			return err
		}
		defer u.close()
		was = u.progress
		return u.each(w.s.background, was.finished(), o.upTo, false, func(e met) bool {
			finished = e.Position - 1 // or its time is over, and that was not told
			return false
		})
	})
	if err != nil {
		return false, err
	}
	return run(w.s.background, w.s, "move delivery state", func(g *commitGroup) (bool, error) {
		return g.settle(o, was, finished)
	})
}

// settle moves the state of an inbox that was looked at to where everything is
// finished, and forgets what is acknowledged up to there, or some of it.
func (g *commitGroup) settle(o outlook, was progressRecord, finished inbox.Position) (again bool, err error) {
	sess := g.s.sessions.at(o.member)
	if sess.incarnation != o.incarnation {
		return false, nil
	}
	now, err := readProgress(g.txn, o.incarnation)
	switch {
	case err != nil:
		return false, err
	case sess.owner() != o.owner || g.s.wentBack != o.wentBack || !bytes.Equal(appendProgress(nil, now), appendProgress(nil, was)):
		return true, nil // something has changed
	}
	h := sess.owner()
	if h != nil { // where it is is its own to say, but for what it does not know
		finished = h.waitsNoMore(finished)
	}
	next := now.moved(finished, h == nil)
	if !bytes.Equal(appendProgress(nil, next), appendProgress(nil, now)) {
		g.putProgress(o.incarnation, next)
		g.saved = append(g.saved, saved{member: o.member, incarnation: o.incarnation, swept: next.swept, state: next.sweepable(), closed: h == nil})
		for _, st := range g.s.streams.of(o.member) {
			st.advance(o.member, next.finished())
		}
	}
	w := g.writeAcked(o.incarnation)
	defer w.close()
	return !w.forgetUpTo(next.finished(), piecesAtOnce), nil
}

// moved is the state of an inbox in which everything up to a position is finished.
// What an owner has open stays so; without one the packet ids are what is left of it.
func (r progressRecord) moved(finished inbox.Position, away bool) progressRecord {
	r.waiting = r.waiting.Remove(inbox.Span{Through: finished})
	r.Sent = max(r.Sent, finished)
	if away {
		r.Open = slices.Clone(r.Open)
		r.Withdraw(func(d inbox.Delivery) bool { return d.Position <= finished })
	}
	return r
}

// waitsNoMore notes that everything up to a position is finished, of what waits, and
// returns up to where that is. Of a handle that is still being opened it knows nothing, and
// leaves it to the opener: see begin.
func (h *handle) waitsNoMore(finished inbox.Position) inbox.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := inbox.Position(0)
	if n := len(h.waiting); n > 0 {
		last = h.waiting[n-1].Through
	}
	finished = min(finished, last)
	h.waiting = h.waiting.Remove(inbox.Span{Through: finished})
	return finished
}
