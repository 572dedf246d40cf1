package badger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// indexedVersion is the version of the record that says how far an inbox is indexed:
//
//	version:1  phase:1  kinds:1  sorted:uvarint  through:uvarint  unsorted:uvarint  newest:uvarint  skew:uvarint
//
// kinds has bit n set for kind n. newest is the time of the newest message up to
// through, and skew by how much one behind it was older at most, Unix milliseconds.
const indexedVersion = 1

// indexPhase is what is to be done with the index of an inbox.
type indexPhase byte

const (
	indexKept indexPhase = iota // it is kept up
	indexNew                    // it is to be made; what there is of it is deleted before
	phases
)

// indexed is how far an inbox is indexed. The lists themselves may be ahead, each
// for itself, while arrivals are being sorted into them: what is at the last posting of
// a list or before it counts as it is there.
type indexed struct {
	phase    indexPhase
	kinds    listKinds
	sorted   inbox.Position // everything up to here is in the lists,
	through  inbox.Position // and everything up to here in the arrivals behind that,
	unsorted uint64         // so many entries, of which some may be gone
	clock    messageClock   // up to through
}

func indexedKey(inc incarnation) []byte { return numberKey(prefixIndexed, uint64(inc)) }

func appendIndexed(dst []byte, x indexed) []byte {
	dst = append(dst, indexedVersion, byte(x.phase), byte(x.kinds))
	for _, v := range [...]uint64{uint64(x.sorted), uint64(x.through), x.unsorted, uint64(x.clock.newest), uint64(x.clock.skew)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func parseIndexed(b []byte) (x indexed, err error) {
	if len(b) < 3 {
		return x, fmt.Errorf("read index: %d bytes: %w", len(b), inbox.ErrDamaged)
	}
	if err := checkVersion("index", int(b[0]), indexedVersion); err != nil {
		return x, err
	}
	x.phase, x.kinds = indexPhase(b[1]), listKinds(b[2])
	d := postingsReader{rest: b[3:]}
	x.sorted, x.through, x.unsorted = inbox.Position(d.number("sorted")), inbox.Position(d.number("through")), d.number("unsorted")
	x.clock = messageClock{int64(d.number("newest")), int64(d.number("skew"))}
	if d.err == nil && (len(d.rest) > 0 || x.phase >= phases || x.through < x.sorted) {
		d.fail("end")
	}
	return x, d.err
}

// readIndexed reads how far an inbox is indexed, and whether it is at all.
func readIndexed(txn *badger.Txn, inc incarnation) (x indexed, ok bool, err error) {
	item, err := txn.Get(indexedKey(inc))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return x, false, nil
	}
	if err == nil {
		err = item.Value(func(v []byte) (err error) { x, err = parseIndexed(v); return err })
	}
	return x, err == nil, err
}

// indexing is what the committer has of an index.
type indexing struct {
	indexed
	since int // entries since the indexer was last told
}

// indexSizes say from how many entries on something is done for an index.
type indexSizes struct {
	few  int // so many are read before an index is asked, and made where there is none: who has no more costs nothing later
	tell int // so many that came in are told the indexer; readers take those from the blocks
	sort int // so many are sorted into lists; readers take about 50 ns for each that is not
}

var indexDefaults = indexSizes{few: 512, tell: 1024, sort: 4 * mostPostings}

// noteIndexed notes that entries are being added to an inbox. Cost where there is no
// index: a look into a map, for each inbox and group.
func (g *commitGroup) noteIndexed(inc incarnation, entries int) {
	x := g.s.indexes[inc]
	if x == nil {
		return
	}
	if x.since += entries; x.since >= g.s.sizes.tell {
		x.since = 0
		g.behind = append(g.behind, inc)
	}
}

// makeIndex has an inbox or stream be indexed from now on, by lists of these kinds.
// What it has is indexed in the background; see Store.openLists. If it has such an
// index, this changes nothing. It must be one of a session that outlives its link.
func (g *commitGroup) makeIndex(m inbox.Member, kinds listKinds) {
	sess := g.s.sessions.at(m)
	x := g.s.indexes[sess.incarnation]
	if x != nil && x.kinds == kinds {
		return
	}
	x = &indexing{indexed: indexed{phase: indexNew, kinds: kinds}}
	g.s.indexes[sess.incarnation] = x
	g.put(indexedKey(sess.incarnation), appendIndexed(nil, x.indexed))
	g.s.indexer.add(sess.incarnation)
	g.behind = append(g.behind, sess.incarnation)
}

// remakeIndex has an index be made anew of what is kept, if there is one.
func (g *commitGroup) remakeIndex(inc incarnation) {
	if x := g.s.indexes[inc]; x != nil {
		x.indexed = indexed{phase: indexNew, kinds: x.kinds}
		g.put(indexedKey(inc), appendIndexed(nil, x.indexed))
		g.behind = append(g.behind, inc)
	}
}

// endIndex forgets the index of an inbox that ends. What is on disk goes with the
// rest of it.
func (g *commitGroup) endIndex(inc incarnation) {
	if g.s.indexes[inc] != nil {
		delete(g.s.indexes, inc)
		g.s.indexer.remove(inc)
	}
}

// kindsOfInbox are the lists that an inbox or a stream has.
var kindsOfInbox = kindsOf(listAll, listPair)

// loadIndexes finds the inboxes that are indexed. A record that is damaged is made
// anew, with all that it speaks of.
func (s *Store) loadIndexes(txn *badger.Txn) error {
	return each(txn, []byte{prefixIndexed}, func(k, v []byte) error {
		inc := incarnation(keyNumber(k))
		if s.sessions.ofIncarnation(inc) == 0 {
			return nil // it is being purged
		}
		x, err := parseIndexed(v)
		if errors.Is(err, inbox.ErrDamaged) {
			s.reportDamage("index", k, err)
			x, err = indexed{phase: indexNew, kinds: kindsOfInbox}, nil
		}
		s.indexes[inc] = &indexing{indexed: x}
		s.indexer.add(inc)
		if x.phase == indexNew {
			s.indexer.hint(indexWork{index: true}, inc)
		}
		return err
	})
}
