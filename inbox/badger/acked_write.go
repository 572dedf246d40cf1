package badger

import (
	"bytes"
	"maps"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// marks is what is to be acknowledged in one inbox.
type marks map[pair]inbox.Spans

func (m marks) add(of pair, span inbox.Span) { m[of] = m[of].Add(span) }

// markAcked writes what is acknowledged in an inbox, beside what was before. Cost:
// about 5 µs for each pair and piece.
func (g *commitGroup) markAcked(inc incarnation, m marks) {
	w := g.writeAcked(inc)
	defer w.close()
	for _, of := range slices.SortedFunc(maps.Keys(m), func(a, b pair) int { return bytes.Compare(a[:], b[:]) }) {
		w.add(of, m[of])
	}
}

// ackedWriter changes what is acknowledged in one inbox. It reads what is on disk:
// an iterator over what a group has yet to write would have to sort all of that.
type ackedWriter struct {
	g           *commitGroup
	incarnation incarnation
	txn         *badger.Txn
	up, down    *badger.Iterator
}

func (g *commitGroup) writeAcked(inc incarnation) *ackedWriter {
	if _, written := g.acked[inc]; written { // earlier in the group: it must be there to be read
		_ = g.separate() // what fails has failed the store
	}
	if g.acked == nil {
		g.acked = map[incarnation]struct{}{}
	}
	g.acked[inc] = struct{}{}
	w := &ackedWriter{g: g, incarnation: inc, txn: g.s.db.NewTransaction(false)}
	prefix := numberKey(prefixAcked, uint64(inc))
	w.up = w.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	w.down = w.txn.NewIterator(badger.IteratorOptions{Prefix: prefix, Reverse: true})
	return w
}

func (w *ackedWriter) close() {
	w.up.Close()
	w.down.Close()
	w.txn.Discard()
}

// ackedPiece is some of the spans of a pair that follow each other, and the keys
// under which they are on disk.
type ackedPiece struct {
	spans inbox.Spans
	keys  [][]byte
}

func (p *ackedPiece) end() inbox.Position {
	if n := len(p.spans); n > 0 {
		return p.spans[n-1].Through
	}
	return 0
}

// add adds spans to those of a pair.
func (w *ackedWriter) add(of pair, spans inbox.Spans) {
	var p ackedPiece
	for _, span := range spans {
		if len(p.spans) == 0 || span.After > p.end() {
			w.turnTo(of, span.After, &p)
		}
		p.spans = p.spans.Add(span)
		w.absorb(of, &p)
	}
	w.put(of, p)
}

// turnTo makes the piece the one at hand to which a span that begins at a position
// is to be added: the first that ends there or behind it, or else the last.
func (w *ackedWriter) turnTo(of pair, after inbox.Position, p *ackedPiece) {
	w.up.Seek(ackedKey(w.incarnation, of, after))
	it := w.up
	if !w.at(it, of) {
		it = w.down
		it.Seek(ackedKey(w.incarnation, of, endless))
		if len(p.spans) > 0 && (!w.at(it, of) || inbox.Position(keyNumber(it.Item().Key())) <= p.end()) {
			return // the last is at hand already
		}
	}
	w.put(of, *p)
	*p = ackedPiece{}
	if w.at(it, of) {
		p.take(w, it.Item())
	}
}

func (w *ackedWriter) at(it *badger.Iterator, of pair) bool {
	return it.Valid() && isAckedOf(it.Item().Key(), of)
}

// take adds what is on disk. What cannot be read is reported, and goes.
func (p *ackedPiece) take(w *ackedWriter, item *badger.Item) {
	key := item.KeyCopy(nil)
	spans, err := readAcked(item)
	if err != nil {
		w.g.s.reportDamage("acknowledged", key, err)
	}
	p.spans, p.keys = p.spans.Union(spans), append(p.keys, key)
}

// absorb adds the pieces behind the one at hand that have come to touch it.
func (w *ackedWriter) absorb(of pair, p *ackedPiece) {
	for {
		w.up.Seek(ackedKey(w.incarnation, of, p.next()))
		if !w.at(w.up, of) {
			return
		}
		spans, err := readAcked(w.up.Item())
		if err == nil && spans[0].After > p.end() {
			return
		}
		p.take(w, w.up.Item())
	}
}

// next is where what follows the piece on disk may end.
func (p *ackedPiece) next() inbox.Position {
	last := inbox.Position(0)
	for _, k := range p.keys {
		last = max(last, inbox.Position(keyNumber(k)))
	}
	return last + 1
}

// put writes a piece in the place of those that it was, in one transaction: after a crash
// that has one of them and not the others, the spans would not be in order.
func (w *ackedWriter) put(of pair, p ackedPiece) {
	size := mostSpans
	if len(p.spans) > mostSpans {
		size /= 2
	}
	var keys, records [][]byte
	bytes := len(p.keys) * ackedKeyLength
	for part := range slices.Chunk(p.spans, size) {
		keys = append(keys, ackedKey(w.incarnation, of, part[len(part)-1].Through))
		records = append(records, appendAcked(nil, part))
		bytes += ackedKeyLength + len(records[len(records)-1])
	}
	w.g.together(len(keys)+len(p.keys), bytes)
	written := map[string]bool{}
	for i, key := range keys {
		w.g.put(key, records[i])
		written[string(key)] = true
	}
	for _, key := range p.keys {
		if !written[string(key)] {
			w.g.delete(key)
		}
	}
}

// forgetAcked takes away what is acknowledged in an inbox behind a position.
func (g *commitGroup) forgetAcked(inc incarnation, after inbox.Position) {
	w := g.writeAcked(inc)
	defer w.close()
	w.forgetBehind(after)
}

// forgetBehind takes away what is acknowledged behind a position.
func (w *ackedWriter) forgetBehind(after inbox.Position) {
	for w.up.Rewind(); w.up.Valid(); w.up.Next() {
		if key := w.up.Item().Key(); len(key) != ackedKeyLength || inbox.Position(keyNumber(key)) <= after {
			continue
		}
		var p ackedPiece
		p.take(w, w.up.Item())
		p.spans = p.spans.Remove(inbox.Span{After: after, Through: endless})
		w.put(ackedPair(w.up.Item().Key()), p)
	}
}

// forgetUpTo takes away what is acknowledged up to a position at which everything is
// finished, and reports whether that was all. It takes so many pieces at most.
func (w *ackedWriter) forgetUpTo(p inbox.Position, most int) (all bool) {
	n := 0
	for w.up.Rewind(); w.up.Valid(); w.up.Next() {
		if key := w.up.Item().Key(); inbox.Position(keyNumber(key)) <= p {
			if n == most {
				return false
			}
			w.g.delete(w.up.Item().KeyCopy(nil))
			n++
		}
	}
	return true
}
