package badger

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What comes in is sorted when it is much: the more there is to sort, the less is written
// for each entry.
const (
	sortAtMost = 16 * mostPostings // entries of the blocks that are in memory at once
	sortBytes  = 8 << 20           // likewise, as estimated
)

// fewPostings is how many the last record of a list has at most, which is written again
// with what comes.
const fewPostings = 64

// toSort is what is to be sorted into the lists of one inbox: what came, and is behind a
// position.
type toSort struct {
	gathered *fresh
	frozen   *recentView // nil if nothing is
	after    inbox.Position

	buffer []posting
}

// collect returns what came in behind what is sorted, or gone, and is to be sorted now, nil
// if it is not much. It reports whether there may be more.
func (ix *indexer) collect(txn *badger.Txn, step *indexStep, r *recent, after, upTo inbox.Position) (sorting *toSort, more bool) {
	frozen, from := r.toSort(upTo)
	came := &ix.came
	came.reset()
	ix.s.gather(txn, step.incarnation, after, from, func(p posting, sender, topic string, expiresAt uint64) bool {
		came.add(p, sender, topic, expiresAt)
		more = len(came.entries) >= sortAtMost || came.size >= sortBytes
		return !more
	})
	sorting = &toSort{gathered: newFresh(step.was.kinds, step.was.clock), after: after}
	sorting.gathered.add(came)
	clock := &sorting.gathered.clock
	switch {
	case more:
		step.is.sorted = came.last()
	case frozen != nil:
		sorting.frozen = frozen.view()
		sorting.frozen.addTo(clock)
		step.is.sorted = frozen.last()
	case len(came.entries) >= ix.s.sizes.tell:
		step.is.sorted = from
	default:
		return nil, false
	}
	step.is.clock = *clock
	return sorting, more
}

// lists returns which lists there are, in the order of their keys.
func (t *toSort) lists() []listID {
	all := map[listID]struct{}{}
	for id := range t.gathered.lists {
		all[id] = struct{}{}
	}
	if t.frozen != nil && t.frozen.of.last() > t.after {
		for _, id := range t.frozen.ids(func(listID) bool { return true }) {
			all[id] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b listID) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), bytes.Compare(a.name[:], b.name[:]))
	})
}

// list returns what came of one list, which is valid until the next call.
func (t *toSort) list(id listID) *freshList {
	if t.frozen == nil {
		return t.gathered.lists[id]
	}
	one := freshList{expiresAt: t.frozen.seen.expiresAt, postings: t.buffer[:0]}
	if f := t.gathered.lists[id]; f != nil {
		one = freshList{sender: f.sender, topic: f.topic, expiresAt: laterExpiry(one.expiresAt, f.expiresAt), postings: append(t.buffer[:0], f.postings...)}
	}
	if l, numbers, ok := t.frozen.list(id); ok {
		first := sort.Search(len(numbers), func(i int) bool { return t.frozen.seen.entries[numbers[i]].position > t.after })
		one.sender, one.topic = l.names[0], l.names[1]
		one.postings = t.frozen.postings(one.postings, numbers[first:])
	}
	t.buffer = one.postings
	return &one
}

// sort writes what came to the lists, a step at a time, and leaves the last step
// to be written. If it ends before, what is in a list is passed over the next time.
func (step *indexStep) sort(ix *indexer, came *toSort) error {
	is := step.is
	step.is = step.was
	lists := came.lists()
	for len(lists) > 0 {
		err := ix.s.view(func(txn *badger.Txn) error {
			records := openRecordsOf(txn, step.incarnation)
			defer records.close()
			for len(lists) > 0 && !step.isFull() {
				open, err := records.of(lists[0])
				if err != nil {
					return err
				}
				if step.extend(lists[0], came.list(lists[0]), open) {
					lists = lists[1:]
				}
			}
			return nil
		})
		if err == nil {
			err = ix.write(step)
		}
		if err != nil {
			return err
		}
	}
	step.is = is
	return nil
}

// extend adds the postings of one list to a step, or as many as fit, and reports
// whether those are all. The open record of the list, which is small, is written again
// with them; if that is many, all but the last go into records of their own, which are
// never written again.
func (step *indexStep) extend(id listID, f *freshList, open *postings) (done bool) {
	all, before, expiresAt := f.postings, tally{}, f.expiresAt
	if open != nil {
		all = behind(all, open.last())
	}
	if len(all) == 0 {
		return true
	}
	if open != nil {
		before, expiresAt = open.before, laterExpiry(expiresAt, open.expiresAt) // no record goes before one in front of it
		all = append(open.appendTo(step.buffer[:0]), all...)
		step.buffer = all
	}
	begun := origin{all[0], expiresAt}
	if before.messages > 0 {
		begun = open.origin
	}
	step.note(id, f, open)
	for len(all) > fewPostings && !step.isFull() {
		part := all[:min(len(all)-1, mostPostings)]
		all = all[len(part):]
		before = step.putRecord(id, f.sender, f.topic, before, part, expiresAt)
	}
	last := all[:min(len(all), fewPostings)]
	step.putOpen(id, f.sender, f.topic, before, begun, last, expiresAt)
	return len(last) == len(all)
}

// putOpen has a step write the open record of a list.
func (step *indexStep) putOpen(id listID, sender, topic string, before tally, begun origin, all []posting, expiresAt uint64) {
	record := appendPostings(nil, sender, topic, before, all)
	if before.messages > 0 {
		record = appendOrigin(record, begun)
	}
	step.put(id.key(step.incarnation, endless), record, expiresAt)
}

// putRecord has a step write a closed record of a list, and returns what the list comes to
// up to its end.
func (step *indexStep) putRecord(id listID, sender, topic string, before tally, all []posting, expiresAt uint64) (total tally) {
	step.put(id.key(step.incarnation, all[len(all)-1].position), appendPostings(nil, sender, topic, before, all), expiresAt)
	total = before
	for i := range all {
		total = total.plus(all[i].tally())
	}
	return total
}

// behind returns those of some postings that are behind p.
func behind(all []posting, p inbox.Position) []posting {
	i, found := slices.BinarySearchFunc(all, p, func(e posting, p inbox.Position) int { return cmp.Compare(e.position, p) })
	if found {
		i++
	}
	return all[i:]
}
