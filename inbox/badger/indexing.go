package badger

import (
	"errors"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// indexing is what the committer has of an index.
type indexing struct {
	indexed
	recent *recent
	since  int // entries since the indexer was last told
}

// indexSizes say from how many entries on something is done for an index.
type indexSizes struct {
	few  int // so many are read before an index is asked, and made where there is none: who has no more costs nothing later
	tell int // so many that a reader found in the blocks only are sorted
	sort int // so many that came in are sorted; readers take about 30 ns for each that is not
	keys int // so many are written in one step
}

var indexDefaults = indexSizes{few: 512, tell: 1024, sort: 32 * mostPostings, keys: 4000}

// noteIndexed notes that a message was added to the block of an inbox that has an index.
// Cost: about 0.2 µs.
func (x *indexing) noteIndexed(p inbox.Position, e *inbox.Envelope, grant inbox.Grant) {
	switch {
	case isAside(inbox.Entry{Envelope: e, Grant: grant}):
	case p == e.ID.Sequence:
		x.recent.add(e)
	default:
		x.recent.forget() // it is a copy, which is as long there as its block
	}
}

// blockIndexed notes that a block is finished, and has the indexer sort what came in if it
// is much.
func (g *commitGroup) blockIndexed(b *block) {
	x := b.index
	if x == nil {
		return
	}
	x.since += b.entries
	atMost := g.s.sizes.sort
	if g.s.recents.isMuch() {
		atMost /= 16
	}
	if x.recent.closed(expiresAt(b.until), atMost) || x.since >= g.s.sizes.sort {
		x.since = 0
		g.behind = append(g.behind, b.incarnation)
	}
	g.s.recents.shrink()
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
	if x != nil {
		g.s.recents.remove(x.recent)
	}
	x = g.s.addIndex(sess.incarnation, indexed{phase: indexNew, kinds: kinds})
	if i, ok := sess.block(); ok {
		g.blocks[i].index = x
	}
	g.put(indexedKey(sess.incarnation), appendIndexed(nil, x.indexed))
	g.behind = append(g.behind, sess.incarnation)
}

func (s *Store) addIndex(inc incarnation, is indexed) *indexing {
	x := &indexing{indexed: is, recent: newRecent(s.recents, is.kinds)}
	s.indexes[inc] = x
	s.indexer.add(inc, x.recent)
	return x
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
	if x := g.s.indexes[inc]; x != nil {
		g.s.recents.remove(x.recent)
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
		s.addIndex(inc, x)
		if x.phase == indexNew {
			s.indexer.hint(indexWork{index: true}, inc)
		}
		return err
	})
}
