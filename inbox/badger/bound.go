package badger

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// knows reports whether an id is of a message of this store, which need not be kept
// any more. last is the number that was given last.
func (s *Store) knows(id inbox.MessageID, last inbox.Position) bool {
	return id.Store == s.id && id.Sequence > 0 && id.Sequence <= last
}

// bounds returns behind which position, and up to which, the entries are that a query
// asks for.
func (u *unread) bounds(q inbox.Query) (after, upTo inbox.Position, err error) {
	if after, _, err = u.place(q.After); err != nil {
		return 0, 0, err
	}
	if q.Before == (inbox.Bound{}) {
		return after, u.upTo, nil
	}
	upTo, between, err := u.place(q.Before)
	if !between && upTo > 0 {
		upTo-- // what is there itself is not in front of it
	}
	return after, upTo, err
}

// place returns the position of a bound. It is that of an entry, or, if it is
// between two, that of the one in front.
func (u *unread) place(b inbox.Bound) (p inbox.Position, between bool, err error) {
	switch {
	case b.ID != (inbox.MessageID{}):
		if !u.s.knows(b.ID, u.upTo) {
			return 0, false, inbox.ErrUnknownID
		}
		return u.placeOf(b.ID.Sequence), false, nil
	case b.Time != 0:
		return u.placeAt(b.Time), true, nil
	default:
		return b.Position, false, nil
	}
}

// placeOf returns where the message with a number is, or was when it was stored.
func (u *unread) placeOf(id inbox.Position) (p inbox.Position) {
	for _, e := range u.memory {
		if e.Envelope.ID.Sequence == id {
			return e.Position
		}
	}
	p = id
	found, at := false, []inbox.Position{id}
	note := func(_ int, e stored) { found = found || e.id == id }
	u.s.eachAt(u.txn, u.incarnation, at, note)
	for _, src := range u.sources {
		if !found && src.reads(id) {
			u.s.eachAt(u.txn, src.stream.incarnation, at, note)
		}
	}
	if !found {
		u.s.eachBehind(u.txn, u.incarnation, at, func(_, at inbox.Position) {
			if p == id {
				p = at
			}
		})
	}
	return p
}

// placeAt returns the position behind which everything is that was stored at a time,
// Unix ms, or later. Where messages are not in the order of their times, it is one
// of the places between earlier and later ones. Messages that came in later
// than they were stored are passed over. Cost: 40 seeks, and one for each stream.
func (u *unread) placeAt(time int64) inbox.Position {
	earlier, later := inbox.Position(0), u.upTo+1 // the place is behind the one, and in front of the other
	for _, e := range u.memory {
		if e.Envelope.ID.Sequence == e.Position && e.Envelope.Time >= time {
			later = min(later, e.Position)
		}
	}
	earlier, later = u.s.narrow(u.txn, u.incarnation, time, earlier, later)
	for _, src := range u.sources {
		from, end := max(earlier, src.since), later
		if src.until < end {
			end = src.until + 1
		}
		if from+1 >= end || u.s.headOf(u.txn, src.stream) <= from {
			continue
		}
		last, first := u.s.narrow(u.txn, src.stream.incarnation, time, from, end)
		if last > from {
			earlier = last
		}
		if first < end {
			later = first
		}
	}
	return later - 1
}

// narrow brings two positions together: all messages of an inbox, or a stream, up to
// the first are earlier than a time, and those at the second and behind it are not.
func (s *Store) narrow(txn *badger.Txn, inc incarnation, time int64, earlier, later inbox.Position) (inbox.Position, inbox.Position) {
	it := blocksOf(txn, inc)
	defer it.Close()
	from, end := earlier, later // from here on up to end it is not known
	for from+1 < end {
		middle := from + (end-from)/2
		p, at, ok := s.timeAt(txn, it, inc, middle, end)
		switch {
		case !ok:
			end = middle
		case at < time:
			from, earlier = p, p
		default:
			end, later = middle, p
		}
	}
	return earlier, later
}

// timeAt returns the first message at a position or behind it, and in front of
// another, and its time, Unix ms.
func (s *Store) timeAt(txn *badger.Txn, it *badger.Iterator, inc incarnation, from, end inbox.Position) (p inbox.Position, time int64, ok bool) {
	for it.Seek(blockKey(inc, from)); it.Valid(); it.Next() {
		block := s.readEntries(it.Item())
		for e, ok := block.next(); ok; e, ok = block.next() {
			switch {
			case e.position >= end:
				return 0, 0, false
			case e.position < from || e.id != e.position:
				continue
			}
			if entry, ok := s.decode(txn, e); ok {
				return e.position, entry.Envelope.Time, true
			}
		}
	}
	return 0, 0, false
}
