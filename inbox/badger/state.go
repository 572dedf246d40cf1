package badger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The versions of the delivery state record. One that has something waiting is of
// the second:
//
//	version:1  swept:uvarint  [spans]  state
//
// swept is how far the sweeper has come: blocks up to there are deleted, but
// for those with open entries. spans is what waits to be pulled, see
// [inbox.AppendSpans].
const (
	stateVersion        = 1
	stateVersionWaiting = 2
)

// progressRecord is what is stored of how far one inbox has come.
type progressRecord struct {
	swept inbox.Position
	inbox.State

	// waiting is what is at State.Sent or before it and was never handed out, for the
	// session was in pull mode. The owner knows nothing of it.
	waiting inbox.Spans
}

func appendProgress(dst []byte, r progressRecord) []byte {
	version := byte(stateVersion)
	if len(r.waiting) > 0 {
		version = stateVersionWaiting
	}
	dst = binary.AppendUvarint(append(dst, version), uint64(r.swept))
	if len(r.waiting) > 0 {
		dst = inbox.AppendSpans(dst, r.waiting)
	}
	return inbox.AppendState(dst, r.State)
}

func parseProgress(b []byte) (r progressRecord, err error) {
	if len(b) == 0 {
		return r, fmt.Errorf("read delivery state: empty: %w", inbox.ErrDamaged)
	}
	version := int(b[0])
	if version != stateVersion {
		if err := checkVersion("delivery state", version, stateVersionWaiting); err != nil {
			return r, err
		}
	}
	v, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return r, fmt.Errorf("read delivery state: swept: %w", inbox.ErrDamaged)
	}
	r.swept, b = inbox.Position(v), b[1+n:]
	if version == stateVersionWaiting {
		if r.waiting, b, err = inbox.ParseSpans(b); err != nil {
			return r, fmt.Errorf("read delivery state: waiting: %w", err)
		}
	}
	if r.State, err = inbox.ParseState(b); err != nil {
		return r, err
	}
	if n := len(r.waiting); n > 0 && r.waiting[n-1].Through > r.Sent {
		return r, fmt.Errorf("read delivery state: waiting up to %d, sent up to %d: %w", r.waiting[n-1].Through, r.Sent, inbox.ErrDamaged)
	}
	return r, nil
}

// readProgress reads how far an inbox has come.
func readProgress(txn *badger.Txn, inc incarnation) (r progressRecord, err error) {
	item, err := txn.Get(numberKey(prefixState, uint64(inc)))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return progressRecord{}, nil
	}
	if err != nil {
		return r, err
	}
	err = item.Value(func(v []byte) (err error) { r, err = parseProgress(v); return err })
	return r, err
}

// finished returns up to where nothing is left to be got or acknowledged.
func (r progressRecord) finished() inbox.Position {
	base := r.Sent
	if len(r.Open) > 0 {
		base = r.Open[0].Position - 1
	}
	if len(r.waiting) > 0 {
		base = min(base, r.waiting[0].After)
	}
	return base
}

// unfinished returns where, up to a position, everything is that is not finished.
func (r progressRecord) unfinished(upTo inbox.Position) inbox.Spans {
	all := r.waiting.Union(openSpans(r.Open))
	if upTo > r.Sent {
		all = all.Add(inbox.Span{After: r.Sent, Through: upTo})
	}
	return all.Remove(inbox.Span{After: upTo, Through: endless})
}

// openSpans is the positions of open deliveries.
func openSpans(open []inbox.Delivery) (s inbox.Spans) {
	for _, d := range open {
		s = s.Append(inbox.Span{After: d.Position - 1, Through: d.Position})
	}
	return s
}

// saveOnce has the state of h written at the end of the group, once however often it
// is asked for: who receives at QoS 2 asks for each PUBREC, and a state is as long as
// what is open.
func (g *commitGroup) saveOnce(h *handle) {
	if !h.due {
		h.due = true
		g.due = append(g.due, h)
	}
}

// saveDue writes the states that saveOnce was asked for.
func (g *commitGroup) saveDue() {
	for _, h := range g.due {
		g.saveNow(h)
	}
}

// saveNow writes the state of h if saveOnce was asked for it. Who takes the session away
// from h must have it written before.
func (g *commitGroup) saveNow(h *handle) {
	if h.due && h.owns() {
		g.saveState(h, false)
	}
	h.due = false
}

// saveLazily writes the states of inboxes whose owners asked for it without
// waiting. Many acknowledgements are one write.
func (g *commitGroup) saveLazily(lazy []*handle) {
	for _, h := range lazy {
		g.saveIfDue(h)
	}
}

// saveIfDue writes the state of an inbox whose owner has asked for it without
// waiting.
func (g *commitGroup) saveIfDue(h *handle) {
	if h.dirty.CompareAndSwap(true, false) && h.owns() { // before the state is taken: what comes later asks again
		g.saveState(h, false)
	}
}

// saveState writes the delivery state of h as it is now.
func (g *commitGroup) saveState(h *handle, closed bool) {
	h.due = false
	if h.state == nil {
		return
	}
	r := g.progressOf(h, h.withoutGiven(h.state()))
	h.durable(r)
	sess := g.s.sessions.at(h.member)
	if sess.stored() || sess.spilled() {
		g.saved = append(g.saved, saved{member: h.member, incarnation: h.incarnation, state: r.sweepable(), closed: closed})
	}
	if sess.stored() {
		g.putProgress(h.incarnation, r)
	} else {
		h.saved = r.State
	}
	if h.hasAcked() {
		g.settleLater(h.incarnation, h.member)
	}
	g.settleLeavings(h) // behind the state: what is given up is forgotten only once it is passed
}

// sweepable returns the state as it is for the sweeper, which may delete what is sent
// and not open.
func (r progressRecord) sweepable() inbox.State {
	st := r.State
	if len(r.waiting) > 0 {
		st.Sent = min(st.Sent, r.waiting[0].After)
	}
	return st
}

// putProgress writes how far an inbox has come, and up to where it is swept.
func (g *commitGroup) putProgress(inc incarnation, r progressRecord) {
	r.swept = min(max(r.swept, g.s.sweeper.sweptUpTo(inc)), r.finished())
	g.put(numberKey(prefixState, uint64(inc)), appendProgress(nil, r))
}
