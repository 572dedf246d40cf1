package badger

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

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
	g.block(to.member).given = true
	g.makeRoom(size + stateRoom)
	for i := range entries {
		e := &entries[i]
		if !g.s.isDeleted(g.txn, e.Envelope.ID.Sequence) {
			p := g.nextSequence()
			to.noteGift(p)
			g.kept = g.kept[:0]
			g.give(to.member, e.Envelope, p, e.Grant, false)
			g.keep(p, e.Envelope, records[i], e.Envelope.Time)
		}
		from.given[e.Position] = struct{}{}
	}
	b := g.block(to.member)
	g.closeBlock(b)
	b.given = false
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

// What a group has given to an inbox came by no subscription of its receiver's own, and is
// not given up with one: the group has it no more, and nobody else would get it.

// noteGift notes that a group has given something since h was opened, and forgets
// what Next has returned since. Runs on the committer.
func (h *handle) noteGift(p inbox.Position) {
	h.mu.Lock()
	returned := h.returned
	h.mu.Unlock()
	n := 0
	for n < len(h.gifts) && h.gifts[n] <= returned {
		n++
	}
	h.gifts = append(h.gifts[n:], p)
}

// giftsBefore returns what groups have given before h was opened, of that which was not
// sent. Cost: 1 µs for each block with messages that were stored before, if there is
// anything that was not sent.
func (h *handle) giftsBefore() (gifts inbox.Spans, err error) {
	if !h.isResumed {
		return nil, nil
	}
	unsent := h.notSent(h.before).Remove(inbox.Span{After: h.before, Through: endless})
	if len(unsent) == 0 {
		return nil, nil
	}
	return gifts, h.s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixBehind, uint64(h.incarnation))})
		defer it.Close()
		for it.Seek(behindKey(h.incarnation, unsent[0].After+1)); it.Valid(); it.Next() {
			item, err := txn.Get(blockKey(h.incarnation, inbox.Position(keyNumber(it.Item().Key()))))
			if err != nil || item.UserMeta()&metaGiven == 0 {
				continue // its time was over a moment earlier, or nobody has given it
			}
			entries := h.s.readEntries(item)
			for e, ok := entries.next(); ok; e, ok = entries.next() {
				gifts = gifts.Append(inbox.Span{After: e.position - 1, Through: e.position})
			}
		}
		return nil
	})
}
