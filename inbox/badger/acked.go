package badger

import (
	"encoding/binary"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What receivers acknowledge by themselves, rather than by PUBACK, stands under the
// inbox, and the sender and topic of the messages: spans of positions, in which
// everything of that pair is read. Spans of the zero pair are for all messages. Long
// lists are cut into pieces, so that to add to one costs the same however long it is;
// each stands under its last position:
//
//	version:1  spans
const ackedVersion = 1

// everyPair is the pair of what is acknowledged whoever has sent it, and whereto.
var everyPair pair

// mostSpans is from how many spans on a piece is cut in two.
const mostSpans = 256

// ackedKeyLength is that of all keys of what is acknowledged.
const ackedKeyLength = 1 + 8 + 16 + 8

func ackedKey(inc incarnation, of pair, through inbox.Position) []byte {
	k := make([]byte, 0, ackedKeyLength)
	k = append(k, prefixAcked)
	k = binary.BigEndian.AppendUint64(k, uint64(inc))
	k = append(k, of[:]...)
	return binary.BigEndian.AppendUint64(k, uint64(through))
}

// ackedPair returns the pair to which a key belongs.
func ackedPair(key []byte) pair { return pair(key[9:25]) }

func appendAcked(dst []byte, s inbox.Spans) []byte {
	return inbox.AppendSpans(append(dst, ackedVersion), s)
}

// parseAcked reads what appendAcked has written under key.
func parseAcked(key, b []byte) (inbox.Spans, error) {
	if len(b) == 0 || len(key) != ackedKeyLength {
		return nil, fmt.Errorf("read acknowledged: %d bytes under %d: %w", len(b), len(key), inbox.ErrDamaged)
	}
	if err := checkVersion("acknowledged", int(b[0]), ackedVersion); err != nil {
		return nil, err
	}
	s, rest, err := inbox.ParseSpans(b[1:])
	switch {
	case err != nil:
		return nil, fmt.Errorf("read acknowledged: %w", err)
	case len(rest) > 0 || len(s) == 0 || uint64(s[len(s)-1].Through) != keyNumber(key):
		return nil, fmt.Errorf("read acknowledged: end: %w", inbox.ErrDamaged)
	}
	return s, nil
}

// acked is what is acknowledged in one inbox, as one transaction has it. It reads
// the spans of a pair when it meets the first message of that pair. It is for one
// goroutine; close must be called in the end.
type acked struct {
	s           *Store
	incarnation incarnation
	it          *badger.Iterator
	upTo        inbox.Position            // what is behind this counts as if it were not
	all         inbox.Spans               // whatever the pair
	of          map[[2]string]inbox.Spans // by sender and topic
}

// ackedIn returns what is acknowledged in an inbox, nil if nothing is. Cost: a seek.
func (s *Store) ackedIn(txn *badger.Txn, inc incarnation) *acked {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixAcked, uint64(inc))})
	if it.Rewind(); !it.Valid() {
		it.Close()
		return nil
	}
	a := &acked{s: s, incarnation: inc, it: it, upTo: endless, of: map[[2]string]inbox.Spans{}}
	a.all = a.spans(everyPair)
	return a
}

func (a *acked) close() {
	if a != nil {
		a.it.Close()
	}
}

// spans reads what is acknowledged of one pair. A piece that cannot be read is
// reported and left out: what it says comes again.
func (a *acked) spans(of pair) (all inbox.Spans) {
	for a.it.Seek(ackedKey(a.incarnation, of, 0)); a.it.Valid() && isAckedOf(a.it.Item().Key(), of); a.it.Next() {
		piece, err := readAcked(a.it.Item())
		if err != nil {
			a.s.reportDamage("acknowledged", a.it.Item().KeyCopy(nil), err)
			continue
		}
		all = append(all, piece...)
	}
	return all
}

func isAckedOf(key []byte, of pair) bool { return len(key) == ackedKeyLength && ackedPair(key) == of }

func readAcked(item *badger.Item) (s inbox.Spans, err error) {
	err = item.Value(func(v []byte) (err error) { s, err = parseAcked(item.Key(), v); return err })
	return s, err
}

// allOnly reports whether what is acknowledged is so whatever its pair. Cost: a seek.
func (a *acked) allOnly() bool {
	a.it.Seek(append(ackedKey(a.incarnation, everyPair, endless), 0))
	return !a.it.Valid()
}

// covers reports whether an entry is acknowledged. What is so whatever its pair is
// known, see all. Cost: 0.1 µs, and a seek for the first of each pair.
func (a *acked) covers(e *inbox.Entry) bool {
	if e.Position > a.upTo {
		return false
	}
	if a.all.Contains(e.Position) {
		return true
	}
	names := [2]string{e.Envelope.Sender(), e.Envelope.Topic}
	spans, known := a.of[names]
	if !known {
		spans = a.spans(pairOf(names[0], names[1]))
		a.of[names] = spans
	}
	return spans.Contains(e.Position)
}

// without returns what is left of a span beside what is acknowledged whatever its
// pair, nil for all.
func (a *acked) without(span inbox.Span) *inbox.Spans {
	if a == nil || len(a.all) == 0 {
		return nil
	}
	rest := inbox.Spans{span}.Subtract(a.all)
	return &rest
}

// dropAcked takes the messages of entries away that are acknowledged.
func (s *Store) dropAcked(txn *badger.Txn, inc incarnation, all []inbox.Entry) {
	a := s.ackedIn(txn, inc)
	if a == nil {
		return
	}
	defer a.close()
	for i := range all {
		if all[i].Envelope != nil && a.covers(&all[i]) {
			all[i].Envelope = nil
		}
	}
}

// hasAcked reports whether anything is acknowledged in an inbox.
func hasAcked(txn *badger.Txn, inc incarnation) bool {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixAcked, uint64(inc))})
	defer it.Close()
	it.Rewind()
	return it.Valid()
}
