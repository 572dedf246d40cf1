package badger

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Give implements [inbox.Inbox]. The caller's goroutine encodes. Cost for the
// committer: that of an Append for each entry, and the state of h once.
func (h *handle) Give(to inbox.Inbox, entries []inbox.Entry, done func(error)) {
	records := make([][]byte, len(entries))
	for i := range entries {
		records[i] = inbox.AppendEnvelope(nil, entries[i].Envelope)
	}
	member, ok := to.(*handle)
	h.s.later(func(g *commitGroup) error {
		if !ok || member.s != h.s {
			return errors.New("not an inbox of this store")
		}
		return g.move(h, member, entries, records)
	}, func(err error) {
		if err != nil {
			err = fmt.Errorf("give: %w", err)
		}
		done(err)
	})
}

// move gives entries of a group's inbox to a member.
func (g *commitGroup) move(from, to *handle, entries []inbox.Entry, records [][]byte) error {
	if !from.owns() || !to.owns() {
		return inbox.ErrFenced
	}
	if g.full {
		return inbox.ErrFull
	}
	for len(entries) > 0 {
		n, size := 0, 0
		for n < len(entries) && (n == 0 || size+len(records[n]) <= pageBytes) {
			size += len(records[n])
			n++
		}
		g.moveTogether(from, to, entries[:n], records[:n], size)
		entries, records = entries[n:], records[n:]
	}
	return nil
}

// stateRoom is what the state of a group takes at most, with every delivery that a
// window can have open.
const stateRoom = 128 << 10

// moveTogether moves what fits into one transaction: after a crash the entries
// are in one inbox and not in the other.
func (g *commitGroup) moveTogether(from, to *handle, entries []inbox.Entry, records [][]byte, size int) {
	g.closeBlock(g.block(to.member))
	g.makeRoom(size + stateRoom)
	for i := range entries {
		e := &entries[i]
		if !g.s.isDeleted(g.txn, e.Envelope.ID.Sequence) {
			p := g.nextSequence()
			g.kept = g.kept[:0]
			g.give(to.member, e.Envelope, p, e.Grant, false)
			g.keep(p, e.Envelope, records[i], e.Envelope.Time)
		}
		from.given[e.Position] = struct{}{}
	}
	g.closeBlock(g.block(to.member))
	g.saveState(from, false)
}

// makeRoom begins a new transaction if size bytes more may not fit into the one
// at hand. The group is still answered as one, after the last.
func (g *commitGroup) makeRoom(size int) {
	if g.pending == 0 || g.size+size <= groupBytes && g.pending < groupKeys {
		return
	}
	_ = g.separate() // what fails has failed the store
}

// withoutGiven takes out of a state of h what was given away since its owner
// made it, and remembers no more than that. Runs on the committer.
func (h *handle) withoutGiven(st inbox.State) inbox.State {
	if len(h.given) == 0 {
		return st
	}
	still := map[inbox.Position]struct{}{}
	st.Open = slices.DeleteFunc(st.Open, func(d inbox.Delivery) bool {
		_, given := h.given[d.Position]
		if given {
			still[d.Position] = struct{}{}
		}
		return given
	})
	h.given = still
	return st
}
