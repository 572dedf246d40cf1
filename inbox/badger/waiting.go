package badger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// In pull mode, what is stored while the receiver is away waits: Next begins behind
// it. The owner is told that everything up to there was sent; that this is not so of the
// stretches that wait is written beside its state. In push mode again, the state goes back to
// where the first of them begins, and what was finished between them is noted as
// acknowledged.

// mostWaiting bounds how many stretches wait, unless there are more that something on
// its way stands between; joinWaiting leaves half of it.
const mostWaiting = 64

// goBack is what the committer knows of an owner whose inbox goes back.
type goBack struct {
	due         bool           // once nothing is open
	sent, first inbox.Position // it has gone back from the one to behind the other, and the owner may not know
}

// begin decides where Next begins, from what is stored. Runs on the opener.
func (h *handle) begin(r progressRecord) (err error) {
	switch {
	case h.again != nil:
		r, err = h.startAgain(r)
	case h.mode == inbox.ModePull:
		r, err = h.wait(r)
	case len(r.waiting) > 0 && len(r.Open) > 0:
		h.back.due = true
	case len(r.waiting) > 0:
		err = h.changeProgress("go back", func(g *commitGroup) { r = g.goBack(h, r) })
	}
	h.resumed = r.State
	h.beginAt(r, h.back.due)
	return err
}

// beginAt has Next begin behind what was sent, once it is not held any more.
func (h *handle) beginAt(r progressRecord, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.position, h.returned = r.Sent, r.Sent
	h.held = held
	h.durableLocked(r)
}

// changeProgress has the committer do something before the owner has the inbox. That
// a newer owner has it already is no error: the calls of this one will say so.
func (h *handle) changeProgress(what string, change func(*commitGroup)) error {
	err := h.s.do(context.Background(), what, func(g *commitGroup) error {
		if !h.owns() {
			return inbox.ErrFenced
		}
		change(g)
		return nil
	})
	if errors.Is(err, inbox.ErrFenced) {
		return nil
	}
	return err
}

// arrived returns the position of the last entry there is so far. Others come at any
// time, so whoever decides about them asks once.
func (h *handle) arrived() inbox.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// wait has everything wait that is stored and was not sent.
func (h *handle) wait(r progressRecord) (progressRecord, error) {
	last := h.arrived()
	some, err := h.hasAny(r.Sent, last)
	if err != nil {
		return r, err
	}
	if some {
		r.waiting = r.waiting.Add(inbox.Span{After: r.Sent, Through: last})
	}
	r.Sent = last
	if len(r.waiting) <= mostWaiting {
		return r, nil // what is stored says the same of what is unread
	}
	err = h.changeProgress("wait", func(g *commitGroup) {
		r = g.joinWaiting(h.incarnation, r)
		g.putProgress(h.incarnation, r)
	})
	return r, err
}

// hasAny reports whether there is anything behind one position and up to another
// that is not acknowledged, be its time over or not.
func (h *handle) hasAny(after, upTo inbox.Position) (some bool, err error) {
	h.mu.Lock()
	from := h.readingLocked().apart()
	h.mu.Unlock()
	err = h.s.view(func(txn *badger.Txn) error {
		p := h.s.partOf(txn, from, after, upTo)
		defer p.acked.close()
		m := h.s.merge(txn, from, p)
		defer m.close()
		_, some = m.next()
		return nil
	})
	return some, err
}

// goBack returns the state in which what waits is yet to be sent. Nothing is open.
// What was sent since the first of it is written as acknowledged: before the state,
// so that none of it comes again.
func (g *commitGroup) goBack(h *handle, r progressRecord) progressRecord {
	first := r.waiting[0].After
	if between := (inbox.Spans{{After: first, Through: r.Sent}}).Subtract(r.waiting); len(between) > 0 {
		g.markAcked(h.incarnation, marks{everyPair: between})
		h.resumedAcked = true
	}
	r.Sent, r.waiting = first, nil
	g.putProgress(h.incarnation, r)
	return r
}

// joinWaiting makes fewer stretches of those that wait, by acknowledging what was
// finished between two of them, those first that are nearest to each other.
func (g *commitGroup) joinWaiting(inc incarnation, r progressRecord) progressRecord {
	between := inbox.Spans{{After: r.waiting[0].After, Through: r.waiting[len(r.waiting)-1].Through}}.Subtract(r.waiting)
	open := openSpans(r.Open)
	between = slices.DeleteFunc(between, func(s inbox.Span) bool {
		p, some := open.AtOrBehind(s.After + 1)
		return some && p <= s.Through
	})
	slices.SortFunc(between, func(a, b inbox.Span) int { return cmp.Compare(a.Through-a.After, b.Through-b.After) })
	var joined inbox.Spans
	for _, s := range between[:min(len(between), len(r.waiting)-mostWaiting/2)] {
		joined = joined.Add(s)
	}
	if len(joined) > 0 {
		g.markAcked(inc, marks{everyPair: joined})
		r.waiting = r.waiting.Union(joined)
	}
	return r
}

// progressOf returns how far an inbox has come whose owner has this state: its owner
// may not know yet that it went back, or it may be time for that.
func (g *commitGroup) progressOf(h *handle, st inbox.State) progressRecord {
	if h.back.sent != 0 && st.Sent == h.back.sent {
		st.Sent = h.back.first
	} else {
		h.back.sent = 0
	}
	r := progressRecord{State: st, waiting: h.waitsFor()}
	if !h.back.due || len(r.Open) > 0 {
		return r
	}
	if len(r.waiting) == 0 { // it was acknowledged meanwhile
		h.back = goBack{}
		g.news = append(g.news, ackNews{to: h, goOn: true})
		return r
	}
	h.back = goBack{sent: r.Sent}
	r = g.goBack(h, r)
	h.back.first = r.Sent
	h.beginAt(r, true)
	g.news = append(g.news, ackNews{to: h, goOn: true})
	return r
}

// waitsFor returns what waits to be pulled.
func (h *handle) waitsFor() inbox.Spans {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting
}

// again is what is needed to start again.
type again struct {
	from inbox.Bound
	outlook
	kept inbox.Position // what was finished up to here is not to be had again
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
	last := h.arrived()
	after = min(max(after, a.kept, r.swept), last)
	all := r.unfinished(last).Add(inbox.Span{After: after, Through: last})
	err = h.changeProgress("start again", func(g *commitGroup) {
		g.forgetAcked(h.incarnation, after)
		r.Open, r.Sent, r.waiting = nil, last, all
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
			from = max(after, joined[st])
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
