package badger

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// stepBytes bounds what is written in one step: then it is not added to. With
// indexSizes.keys, which does so too, it fits into one transaction, whatever the entries are.
const stepBytes = 512 << 10

// indexStep is what is written together: the index of one inbox goes from one whole
// state to another.
type indexStep struct {
	incarnation incarnation
	most        int // keys; then it is not added to
	was, is     indexed
	deletes     [][]byte
	puts        []*badger.Entry
	size        int
	buffer      []posting // room that is used again
	damaged     bool      // what there is of the index is not to be used, whatever it was
}

func (step *indexStep) isFull() bool {
	return step.size >= stepBytes || len(step.deletes)+len(step.puts) >= step.most
}

func (step *indexStep) delete(key []byte) {
	step.deletes = append(step.deletes, key)
	step.size += len(key)
}

func (step *indexStep) put(key, value []byte, expiresAt uint64) {
	step.puts = append(step.puts, &badger.Entry{Key: key, Value: value, ExpiresAt: expiresAt})
	step.size += len(key) + len(value)
}

// run does some of what is to be done for an inbox, and returns what is left. Cost:
// about 1 µs an entry, most of it for reading.
func (ix *indexer) run(inc incarnation, w indexWork) (rest indexWork, err error) {
	step, upTo := &indexStep{incarnation: inc, most: ix.s.sizes.keys}, inbox.Position(ix.s.visible.Load())
	var sorting *toSort
	forgot := 0
	r := ix.recentOf(inc)
	err = ix.s.view(func(txn *badger.Txn) error {
		was, ok, err := readIndexed(txn, inc)
		if err != nil || !ok || r == nil {
			return err
		}
		step.was, step.is = was, was
		swept := ix.s.sweptOf(txn, inc)
		switch {
		case w.remake:
			step.damaged = true
		case was.phase == indexNew:
			rest.index = true
			if forgot = len(ix.toForget(inc)); forgot > 0 { // what is made of the blocks now has their names no more
				r.forget()
			}
			step.remake(txn, swept)
		case w.forget:
			rest.index, rest.clean, rest.swept = w.index, w.clean, w.swept
			r.forget()
			all := ix.toForget(inc)
			forgot, err = step.forget(txn, all)
			rest.forget = forgot < len(all)
		case w.index:
			rest.clean, rest.swept = w.clean, w.swept
			sorting, rest.index = ix.collect(txn, step, r, max(was.sorted, swept), upTo)
		case w.clean:
			rest.swept = max(swept, w.swept)
			rest.clean, err = ix.s.cleanIndex(txn, step, rest.swept)
		}
		return err
	})
	if err == nil && sorting != nil {
		err = step.sort(ix, sorting)
	}
	if errors.Is(err, inbox.ErrDamaged) {
		step.damaged, err = true, nil
	}
	if step.damaged {
		step.deletes, step.puts, rest, forgot = nil, nil, indexWork{index: true}, 0
	}
	if err == nil {
		err = ix.write(step)
	}
	if err != nil {
		return indexWork{}, fmt.Errorf("index: %w", err)
	}
	if sorting != nil && sorting.frozen != nil {
		r.release(sorting.frozen.of)
	}
	if forgot > 0 {
		ix.forgot(inc, forgot)
	}
	if !rest.index && !rest.clean && !rest.forget {
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
// ended meanwhile. The step can be used again.
func (ix *indexer) write(step *indexStep) error {
	if step.is == step.was && len(step.deletes)+len(step.puts) == 0 && !step.damaged {
		return nil
	}
	err := ix.s.do(ix.s.background, "write", func(g *commitGroup) error {
		x := ix.s.indexes[step.incarnation]
		switch {
		case x == nil:
			return nil
		case step.damaged:
			step.is = indexed{phase: indexNew, kinds: x.kinds}
		case x.indexed != step.was:
			return nil
		}
		g.together(len(step.deletes)+len(step.puts)+1, step.size)
		for _, k := range step.deletes {
			g.delete(k)
		}
		for _, e := range step.puts {
			g.write(e)
			g.size += len(e.Key) + len(e.Value)
		}
		if step.is != x.indexed || step.damaged {
			g.put(indexedKey(step.incarnation), appendIndexed(nil, step.is))
			x.indexed = step.is
		}
		return nil
	})
	step.deletes, step.puts, step.size = nil, nil, 0
	return err
}

// remake has a step delete what there is of an index, or a part of it, and then begin
// anew with what is kept of the inbox.
func (step *indexStep) remake(txn *badger.Txn, swept inbox.Position) {
	for _, prefix := range []byte{prefixList, prefixTopic} {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefix, uint64(step.incarnation))})
		for it.Rewind(); it.Valid() && !step.isFull(); it.Next() {
			step.delete(it.Item().KeyCopy(nil))
		}
		it.Close()
	}
	if step.isFull() {
		return
	}
	step.is = indexed{kinds: step.was.kinds, sorted: swept}
}
