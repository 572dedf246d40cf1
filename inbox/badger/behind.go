package badger

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A message that came into an inbox later than it was stored, as a retained one does
// or one that a group has given, is not where its id says. So that it is found by that,
// each block that has such messages stands a second time under a key of another kind,
// with the range of their numbers:
//
//	version:1  lowest:uvarint  (highest - lowest):uvarint
const behindVersion = 1

func behindKey(inc incarnation, last inbox.Position) []byte {
	k := make([]byte, 0, 17)
	k = append(k, prefixBehind)
	k = binary.BigEndian.AppendUint64(k, uint64(inc))
	return binary.BigEndian.AppendUint64(k, uint64(last))
}

// idRange is the lowest and the highest of some messages' numbers; zero for none.
type idRange struct{ lowest, highest inbox.Position }

func (r *idRange) add(id inbox.Position) {
	if r.highest == 0 {
		*r = idRange{id, id}
	}
	r.lowest, r.highest = min(r.lowest, id), max(r.highest, id)
}

func (r idRange) append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, behindVersion), uint64(r.lowest))
	return binary.AppendUvarint(dst, uint64(r.highest-r.lowest))
}

func parseBehind(b []byte) (r idRange, err error) {
	damaged := fmt.Errorf("read numbers of earlier messages: %w", inbox.ErrDamaged)
	if len(b) == 0 {
		return r, damaged
	}
	if err := checkVersion("numbers of earlier messages", int(b[0]), behindVersion); err != nil {
		return r, err
	}
	lowest, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return r, damaged
	}
	more, m := binary.Uvarint(b[1+n:])
	if m <= 0 || 1+n+m != len(b) || lowest == 0 || lowest+more < lowest {
		return r, damaged
	}
	return idRange{inbox.Position(lowest), inbox.Position(lowest + more)}, nil
}

// eachBehind calls do with the places in an inbox where messages with some ascending
// numbers are that came in later than they were stored. Cost: 1 µs for each block that has
// such, and reading those whose range fits.
func (s *Store) eachBehind(txn *badger.Txn, inc incarnation, ids []inbox.Position, do func(id, at inbox.Position)) {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixBehind, uint64(inc))})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		key := it.Item().KeyCopy(nil)
		var r idRange
		err := it.Item().Value(func(v []byte) (err error) { r, err = parseBehind(v); return err })
		if err != nil {
			s.reportDamage("numbers of earlier messages", key, err)
			continue
		}
		if i, _ := slices.BinarySearch(ids, r.lowest); i == len(ids) || ids[i] > r.highest {
			continue
		}
		item, err := txn.Get(blockKey(inc, inbox.Position(keyNumber(key))))
		if err != nil {
			continue // its time was over a moment earlier
		}
		block := s.readEntries(item)
		for e, ok := block.next(); ok; e, ok = block.next() {
			if _, wanted := slices.BinarySearch(ids, e.id); wanted && e.id != e.position {
				do(e.id, e.position)
			}
		}
	}
}
