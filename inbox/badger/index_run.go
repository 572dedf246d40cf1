package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of what is indexed in one step. It must fit into one transaction, with the
// records that are written anew, whatever the entries are.
const (
	stepEntries = 2 * mostPostings
	stepBytes   = 512 << 10 // as estimated: then no more entries are gathered
	stepMost    = 768 << 10 // then no more records are written anew
	stepDeletes = 2000
)

// fewPostings is how many a record has at least that is not the last of its list.
const fewPostings = 32

// indexStep is what is written together: the index of one inbox goes from one whole
// state to another.
type indexStep struct {
	incarnation incarnation
	was, is     indexed
	deletes     [][]byte
	puts        []*badger.Entry
	size        int
	damaged     bool // what there is of it is not to be used, whatever it was
}

// run does one step of what is to be done for an inbox, and returns what is left. Cost:
// about 1 µs an entry, most of it for reading.
func (ix *indexer) run(inc incarnation, w indexWork) (rest indexWork, err error) {
	step := &indexStep{incarnation: inc}
	upTo := inbox.Position(ix.s.visible.Load())
	err = ix.s.view(func(txn *badger.Txn) error {
		was, ok, err := readIndexed(txn, inc)
		if err != nil || !ok {
			return err
		}
		step.was, step.is = was, was
		swept := ix.s.sweptOf(txn, inc)
		switch {
		case w.remake:
			step.damaged = true
		case was.phase == indexNew:
			rest.index = true
			step.remake(txn, swept)
		case w.index:
			rest.clean, rest.swept = w.clean, w.swept
			rest.index, err = ix.s.indexMore(txn, step, upTo)
		case w.clean:
			rest.swept = max(swept, w.swept)
			rest.clean, err = ix.s.cleanIndex(txn, step, rest.swept)
		}
		return err
	})
	if errors.Is(err, inbox.ErrDamaged) {
		step.damaged, err = true, nil
	}
	if step.damaged {
		step.deletes, step.puts, rest = nil, nil, indexWork{index: true}
	}
	if err == nil {
		err = ix.write(step)
	}
	if err != nil {
		return indexWork{}, fmt.Errorf("index: %w", err)
	}
	if !rest.index && !rest.clean {
		return indexWork{}, nil
	}
	return rest, nil
}

// sweptOf returns up to where everything in an inbox or stream is gone, by its record.
func (s *Store) sweptOf(txn *badger.Txn, inc incarnation) inbox.Position {
	r, err := readProgress(txn, inc)
	if err != nil {
		s.reportDamage("delivery state", numberKey(prefixState, uint64(inc)), err)
		return 0
	}
	return r.swept
}

// write has the committer write a step, in one transaction, if the inbox has not
// ended meanwhile.
func (ix *indexer) write(step *indexStep) error {
	if step.is == step.was && len(step.deletes) == 0 && !step.damaged {
		return nil
	}
	return ix.s.do(ix.s.background, "write", func(g *commitGroup) error {
		x := ix.s.indexes[step.incarnation]
		switch {
		case x == nil:
			return nil
		case step.damaged:
			step.is = indexed{phase: indexNew, kinds: x.kinds}
		case x.indexed != step.was:
			return nil
		}
		if keys := len(step.deletes) + len(step.puts) + 1; !g.fits(keys, step.size) {
			if err := g.separate(); err != nil {
				return err
			}
		}
		for _, k := range step.deletes {
			g.delete(k)
		}
		for _, e := range step.puts {
			g.write(e)
			g.size += len(e.Key) + len(e.Value)
		}
		g.put(indexedKey(step.incarnation), appendIndexed(nil, step.is))
		x.indexed = step.is
		return nil
	})
}

// indexMore adds to a step what came in behind what is indexed, or a part of it, and
// reports whether there may be more.
func (s *Store) indexMore(txn *badger.Txn, step *indexStep, upTo inbox.Position) (more bool, err error) {
	g := newGathering(step.was.kinds, step.was.clock, step.was.skew)
	s.gather(txn, step.incarnation, step.was.through, upTo, func(p posting, e *inbox.Envelope, expiresAt uint64) bool {
		g.add(p, e, expiresAt)
		step.is.through = p.position
		more = g.entries == stepEntries || g.size >= stepBytes
		return !more
	})
	if g.entries == 0 {
		return false, nil
	}
	if !more {
		step.is.through = upTo
	}
	step.is.clock, step.is.skew = g.clock, g.skew
	l := &lists{s: s, txn: txn, incarnation: step.incarnation, through: step.was.through, tail: newGathering(0, 0, 0)}
	defer l.close()
	for id, fresh := range g.lists {
		step.extend(l, id, fresh)
	}
	return more, l.err
}

// extend adds to a step the postings of one list. They take the place of the last
// records of the list where those are small, or are no more than they: so that
// few records are small, and a posting is written again a few times at most.
func (step *indexStep) extend(l *lists, id listID, fresh *gathered) {
	all, expiresAt := fresh.postings, fresh.expiresAt
	r := l.seekBack(id, endless)
	for r != nil && (r.n < fewPostings || r.n <= len(all)) && r.n+len(all) <= mostPostings && step.size < stepMost {
		step.delete(id.key(step.incarnation, r.last()))
		all = append(r.appendTo(make([]posting, 0, r.n+len(all))), all...)
		expiresAt = laterExpiry(expiresAt, r.expiresAt)
		r = l.seekBack(id, r.first-1)
	}
	before := tally{}
	if r != nil {
		before = r.total()
		expiresAt = laterExpiry(expiresAt, r.expiresAt) // no record goes before one in front of it
	}
	for part := range slices.Chunk(all, mostPostings) {
		value := appendPostings(nil, fresh.sender, fresh.topic, before, part)
		step.put(id.key(step.incarnation, part[len(part)-1].position), value, expiresAt)
		for i := range part {
			before = before.plus(part[i].tally())
		}
	}
	if id.kind == listPair {
		step.put(listID{listOfTopic, id.name.swapped()}.key(step.incarnation, 0), nil, expiresAt)
	}
}

func (step *indexStep) delete(key []byte) {
	step.deletes = append(step.deletes, key)
	step.size += len(key)
}

func (step *indexStep) put(key, value []byte, expiresAt uint64) {
	step.puts = append(step.puts, &badger.Entry{Key: key, Value: value, ExpiresAt: expiresAt})
	step.size += len(key) + len(value)
}

// remake has a step delete what there is of an index, or a part of it, and then begin
// anew with what is kept of the inbox.
func (step *indexStep) remake(txn *badger.Txn, swept inbox.Position) {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixList, uint64(step.incarnation))})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if len(step.deletes) == stepDeletes {
			return
		}
		step.delete(it.Item().KeyCopy(nil))
	}
	step.is = indexed{kinds: step.was.kinds, through: swept}
}

// cleanIndex has a step delete records of which everything is gone, or some of them, if
// that is more than what is not, and reports whether there may be more. So a list is
// looked at about once for each entry that goes.
func (s *Store) cleanIndex(txn *badger.Txn, step *indexStep, swept inbox.Position) (more bool, err error) {
	l := &lists{s: s, txn: txn, incarnation: step.incarnation, through: step.was.through, tail: newGathering(0, 0, 0)}
	defer l.close()
	all := l.list(listID{kind: listAll})
	first := all.record(0)
	if first == nil {
		return false, l.err
	}
	gone, left := all.upTo(swept).minus(first.before).messages, all.between(swept, endless).messages
	if l.err != nil || gone < mostPostings+left {
		return false, l.err
	}
	return step.deleteUpTo(l, swept), l.err
}

// deleteUpTo has a step delete records that end at a position or before it, and the
// notes of lists of which nothing is left.
func (step *indexStep) deleteUpTo(l *lists, swept inbox.Position) (more bool) {
	prefix := numberKey(prefixList, uint64(step.incarnation))
	it := l.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	for it.Rewind(); it.Valid() && len(it.Item().Key()) == listKeyLength; {
		id := listOf(it.Item().Key())
		if id.kind == listOfTopic {
			it.Seek(listID{kind: listAll}.key(step.incarnation, 0))
			continue
		}
		for belongs := true; belongs && inbox.Position(keyNumber(it.Item().Key())) <= swept; {
			if len(step.deletes) >= stepDeletes {
				return true
			}
			step.delete(it.Item().KeyCopy(nil))
			it.Next()
			belongs = it.Valid() && bytes.HasPrefix(it.Item().Key(), id.key(step.incarnation, 0)[:listKeyLength-8])
			if !belongs && id.kind == listPair {
				step.delete(listID{listOfTopic, id.name.swapped()}.key(step.incarnation, 0))
			}
		}
		it.Seek(binary.BigEndian.AppendUint64(id.key(step.incarnation, 0)[:listKeyLength-8], uint64(endless)))
	}
	return false
}
