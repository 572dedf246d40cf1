package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A page read from disk ends with the block in which it reaches one of these, and
// at twice as much in any case.
const (
	pageEntries = 200
	pageBytes   = 256 << 10
)

// readPage returns the entries of an inbox after one position and up to another,
// and their size. It seeks to the first, so a page costs the same wherever it is:
// about 10 µs, as much again for each stream that has something in it, and 0.2 µs
// an entry in blocks, 1 µs an entry by reference. It is for what reads ahead: see [merger.noteRead].
func (s *Store) readPage(from reading, after, upTo inbox.Position) (page []inbox.Entry, size int, err error) {
	err = s.view(func(txn *badger.Txn) error {
		p := s.partOf(txn, from, after, upTo)
		defer p.acked.close()
		m := s.merge(txn, from, p)
		defer m.close()
		defer m.noteRead()
		for len(page) < 2*pageEntries && size < 2*pageBytes {
			e, ok := m.next()
			if !ok {
				return nil
			}
			if !e.over {
				page = append(page, e.Entry)
				size += e.Envelope.Size()
			}
			if e.blockEnds && (len(page) >= pageEntries || size >= pageBytes) {
				return nil
			}
		}
		return nil
	})
	s.stats.pages.Add(1)
	return page, size, err
}

// partOf returns the part of an inbox that lies between two positions, without what
// is acknowledged, which must be closed in the end.
func (s *Store) partOf(txn *badger.Txn, from reading, after, upTo inbox.Position) part {
	p := part{after: after, upTo: upTo}
	if from.acked {
		p.acked = s.ackedIn(txn, from.incarnation)
		p.within = p.acked.without(inbox.Span{After: after, Through: upTo})
	}
	return p
}

// readAt returns the entries at the given ascending positions that exist: the
// receiver's own, and those of its streams.
func (s *Store) readAt(from reading, at []inbox.Position) (found []inbox.Entry, err error) {
	if len(at) == 0 {
		return nil, nil
	}
	all, now := make([]inbox.Entry, len(at)), time.Now()
	err = s.view(func(txn *badger.Txn) error {
		s.eachAt(txn, from.incarnation, at, func(i int, e stored) {
			if entry, ok := s.entry(txn, e, now); ok {
				all[i] = entry
			}
		})
		for _, src := range from.sources {
			if s.headOf(txn, src.stream) < at[0] || src.until < at[0] {
				continue
			}
			s.eachAt(txn, src.stream.incarnation, at, func(i int, e stored) {
				if !src.reads(e.position) {
					return
				}
				entry := all[i]
				if entry.Envelope == nil {
					entry, _ = s.entry(txn, e, now)
					entry.Grant = inbox.Grant{}
				}
				if entry.Envelope != nil && src.grant(&entry.Grant, entry.Envelope, from.receiver) {
					all[i] = entry
				}
			})
		}
		if from.acked {
			s.dropAcked(txn, from.incarnation, all)
		}
		return nil
	})
	return slices.DeleteFunc(all, func(e inbox.Entry) bool { return e.Envelope == nil || isAside(e) }), err
}

// eachAt calls do with the entries that one inbox or stream has at the given
// ascending positions, and which of them it is. It looks for each block once, and
// copies no more of it than those entries: about 25 µs for each block, or 5 µs where they
// are next to each other.
func (s *Store) eachAt(txn *badger.Txn, inc incarnation, at []inbox.Position, do func(i int, e stored)) {
	it := blocksOf(txn, inc)
	defer it.Close()
	last := inbox.Position(0) // of the block at hand
	for n := 0; n < len(at); {
		if key := blockKey(inc, at[n]); n > 0 && at[n]-last <= nearEntries {
			advance(it, key)
		} else {
			it.Seek(key)
		}
		if !it.Valid() {
			return
		}
		item, first := it.Item(), n
		last = inbox.Position(keyNumber(item.Key()))
		for n < len(at) && at[n] <= last {
			n++
		}
		err := item.Value(func(value []byte) error {
			return eachWanted(value, at[first:n], func(i int, e stored) { do(first+i, e) })
		})
		if err != nil {
			s.reportDamage("block", item.KeyCopy(nil), err)
		}
	}
}

// nearEntries is how far behind a block an entry is that may well be in the next one.
const nearEntries = 50

// eachWanted calls do with the entries of a block at some ascending positions, and
// which of them it is.
func eachWanted(value []byte, at []inbox.Position, do func(i int, e stored)) error {
	block, err := readBlock(value)
	if err != nil {
		return err
	}
	for i := 0; i < len(at); {
		e, ok, err := block.next()
		if err != nil || !ok {
			return err
		}
		for i < len(at) && at[i] < e.position {
			i++
		}
		if i < len(at) && at[i] == e.position {
			e.record = slices.Clone(e.record)
			do(i, e)
		}
	}
	return nil
}

// blocksOf returns an iterator over the blocks of one inbox. Values are not
// prefetched: a page needs few of them, and the iterator would read far more.
func blocksOf(txn *badger.Txn, inc incarnation) *badger.Iterator {
	return txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixBlock, uint64(inc))})
}

// entryReader reads the entries of one block; what is damaged is reported and
// left out, so that it holds up nobody.
type entryReader struct {
	s     *Store
	block blockReader
	key   []byte
}

func (s *Store) readEntries(item *badger.Item) entryReader {
	r := entryReader{s: s, key: item.KeyCopy(nil)}
	value, err := item.ValueCopy(nil)
	if err == nil {
		r.block, err = readBlock(value)
	}
	if err != nil {
		s.reportDamage("block", r.key, err)
	}
	return r
}

func (r *entryReader) next() (stored, bool) {
	e, ok, err := r.block.next()
	if err != nil {
		r.s.reportDamage("block", r.key, err)
		return stored{}, false
	}
	return e, ok
}

// entry makes an entry of what stands in a block, if its time is not over.
func (s *Store) entry(txn *badger.Txn, e stored, now time.Time) (inbox.Entry, bool) {
	entry, ok := s.decode(txn, e)
	if !ok || s.isOver(entry, now) {
		return inbox.Entry{}, false
	}
	return entry, true
}

// isOver reports whether an entry has waited for as long as the store keeps any,
// and counts it if so. A copy of a retained message waits since the subscription;
// its block goes in time.
func (s *Store) isOver(e inbox.Entry, now time.Time) bool {
	isCopy := e.Envelope.ID.Sequence != e.Position
	if isCopy || s.retention <= 0 || e.Envelope.Time+s.retention.Milliseconds() > now.UnixMilli() {
		return false
	}
	s.stats.expired.Add(1)
	return true
}

// decode makes an entry of what stands in a block, and fetches its body if that
// is kept apart, unless the message is gone or was deleted.
func (s *Store) decode(txn *badger.Txn, e stored) (inbox.Entry, bool) {
	entry, ok := s.decodeMark(txn, e)
	if !ok || entry.Envelope.Deleted || e.id != e.position && s.isDeleted(txn, e.id) {
		return inbox.Entry{}, false
	}
	return entry, true
}

// decodeMark is decode for those who have the mark of a message that was deleted.
func (s *Store) decodeMark(txn *badger.Txn, e stored) (inbox.Entry, bool) {
	record := e.record
	if e.reference {
		var ok bool
		if record, ok = s.body(txn, e.id); !ok {
			s.stats.expired.Add(1) // its time was over before that of the block
			return inbox.Entry{}, false
		}
	}
	env, err := inbox.ParseEnvelope(record)
	if err != nil {
		s.reportDamage("envelope", numberKey(prefixBody, uint64(e.id)), err)
		return inbox.Entry{}, false
	}
	env.ID = inbox.MessageID{Sequence: e.id, Store: s.id}
	return inbox.Entry{Position: e.position, Envelope: env, Grant: e.grant}, true
}

// body returns the record of the message with a number that stands apart, unless it
// is gone.
func (s *Store) body(txn *badger.Txn, id inbox.Position) (record []byte, ok bool) {
	key := numberKey(prefixBody, uint64(id))
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false
	}
	if err == nil {
		err = item.Value(func(v []byte) (err error) { _, record, err = parseBody(slices.Clone(v)); return err })
	}
	if err != nil {
		s.reportDamage("body", key, err)
		return nil, false
	}
	return record, true
}

// parseBody splits a body into how many inboxes referred to it at first, and
// the envelope's record.
func parseBody(b []byte) (references uint64, record []byte, err error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("read body: count: %w", inbox.ErrDamaged)
	}
	return v, b[n:], nil
}

func (s *Store) reportDamage(what string, key []byte, err error) {
	s.stats.damaged.Add(1)
	s.log.Error("stored record cannot be read and is left out", "what", what, "key", fmt.Sprintf("%x", key), "error", err)
}
