package badger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// stateVersion is the version of the delivery state record:
//
//	version:1  swept:uvarint  state
//
// swept is how far the sweeper has come: blocks up to there are deleted, but
// for those with open entries.
const stateVersion = 1

func parseStateRecord(b []byte) (swept inbox.Position, st inbox.State, err error) {
	if len(b) == 0 {
		return 0, st, fmt.Errorf("read delivery state: empty: %w", inbox.ErrDamaged)
	}
	if err := checkVersion("delivery state", int(b[0]), stateVersion); err != nil {
		return 0, st, err
	}
	v, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return 0, st, fmt.Errorf("read delivery state: swept: %w", inbox.ErrDamaged)
	}
	st, err = inbox.ParseState(b[1+n:])
	return inbox.Position(v), st, err
}

// readState reads the delivery state of a session, and up to where it is swept.
func readState(txn *badger.Txn, inc incarnation) (swept inbox.Position, st inbox.State, err error) {
	item, err := txn.Get(numberKey(prefixState, uint64(inc)))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return 0, inbox.State{}, nil
	}
	if err != nil {
		return 0, inbox.State{}, err
	}
	err = item.Value(func(v []byte) (err error) { swept, st, err = parseStateRecord(v); return err })
	return swept, st, err
}

// finishedIn returns up to where everything is finished in a state.
func finishedIn(st inbox.State) inbox.Position {
	if len(st.Open) > 0 {
		return st.Open[0].Position - 1
	}
	return st.Sent
}

// saveLazily writes the states of inboxes whose owners asked for it without
// waiting. Many acknowledgements are one write.
func (g *commitGroup) saveLazily(lazy []*handle) {
	for _, h := range lazy {
		h.dirty.Store(false) // before the state is taken: what comes later asks again
		if h.owns() {
			g.saveState(h, false)
		}
	}
}

// saveState writes the delivery state of h as it is now.
func (g *commitGroup) saveState(h *handle, closed bool) {
	if h.state == nil {
		return
	}
	st := h.withoutGiven(h.state())
	h.durable(st)
	sess := g.s.sessions.at(h.member)
	if sess.stored() || sess.spilled() {
		g.saved = append(g.saved, saved{incarnation: h.incarnation, state: st, closed: closed})
	}
	if sess.stored() {
		value := binary.AppendUvarint([]byte{stateVersion}, uint64(g.s.sweeper.sweptUpTo(h.incarnation)))
		g.put(numberKey(prefixState, uint64(h.incarnation)), inbox.AppendState(value, st))
	}
	g.settleLeavings(h) // behind the state: what is given up is forgotten only once it is passed
}
