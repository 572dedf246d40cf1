package badger

import (
	"cmp"
	"context"
	"errors"
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
	lastID      uint16         // which the owner had given last by then
}

// begin decides where Next begins, from what is stored. Runs on the opener.
func (h *handle) begin(r progressRecord) (err error) {
	switch {
	case h.again != nil:
		r, err = h.startAgain(r)
	case h.mode == inbox.ModePull:
		r, err = h.wait(r)
	case len(r.waiting) > 0 && len(r.Open) > 0:
		r, err = h.finishFirst(r)
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

// wait has everything wait that was stored when the inbox was opened, and not sent.
func (h *handle) wait(r progressRecord) (progressRecord, error) {
	last := h.before
	some, err := h.hasAny(inbox.Spans{{After: r.Sent, Through: last}})
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

// finishFirst has Next wait until nothing is open, and go back to what waits then; if
// all of that was acknowledged, there is nothing to go back to, and Next goes on at once.
func (h *handle) finishFirst(r progressRecord) (progressRecord, error) {
	some, err := h.hasAny(r.waiting)
	if err != nil {
		return r, err
	}
	if !some {
		r.waiting = nil // what is stored says the same of what is unread
	}
	h.back.due = some
	return r, nil
}

// hasAny reports whether there is anything within spans, of which there is one at least,
// that is not acknowledged, be its time over or not.
func (h *handle) hasAny(within inbox.Spans) (some bool, err error) {
	h.mu.Lock()
	from := h.readingLocked().apart()
	h.mu.Unlock()
	after, upTo := within[0].After, within[len(within)-1].Through
	err = h.s.view(func(txn *badger.Txn) error {
		p := h.s.partOf(txn, from, after, upTo)
		p.within = &within
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
		h.noteAcked()
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
	if h.back.sent != 0 && st.Sent == h.back.sent && st.LastID == h.back.lastID {
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
	h.back = goBack{sent: r.Sent, lastID: r.LastID}
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
