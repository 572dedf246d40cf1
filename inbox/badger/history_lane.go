package badger

import (
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// lane is what there may be in one history of what is asked for, between two positions
// which do not belong to it. What a lane leads to is looked at before it counts.
type lane struct {
	history       *history
	after, before inbox.Position
	since, until  int64 // Unix ms; 0 if there is no bound
	backwards     bool
	way           way

	at    inbox.Position // the message at hand, unless the lane has ended
	ended bool
}

// way yields the positions of a lane, perhaps beyond its end, and of what times the
// messages there are, if it knows.
type way interface {
	next() (posting, bool)
	close()
}

// passedAtOnce is how many messages of other times are passed over before one of them is
// looked at, so that whoever counts is asked whether to go on.
const passedAtOnce = 1000

// step goes on to the next message that may be of the times that are asked for.
func (l *lane) step() {
	for range passedAtOnce {
		p, ok := l.way.next()
		l.at, l.ended = p.position, !ok || p.position <= l.after || p.position >= l.before
		if l.ended || p.time == 0 || p.time >= l.since && (l.until == 0 || p.time < l.until) {
			return
		}
	}
}

// isBefore reports whether l has its turn before another that has not ended either.
func (l *lane) isBefore(other *lane) bool {
	if l.backwards {
		return l.at > other.at
	}
	return l.at < other.at
}

// openLane finds the shortest way to what is asked for in one history.
func (r *historyReader) openLane(h *history, after, before inbox.Position, indexed bool) error {
	l := &lane{history: h, after: after, before: before, backwards: r.q.NewestFirst, since: r.q.After.Time, until: r.q.Before.Time}
	filter, sender := r.q.Filter, r.q.Sender
	isTopic := filter != "" && !strings.ContainsAny(filter, "+#")
	hasAll := filter == "" || filter == "#" || filter == h.Filter
	if isTopic && !inbox.MatchTopic(h.Filter, filter) {
		return nil
	}
	if indexed && (isTopic || sender != "" || !hasAll) {
		lists, err := r.s.openLists(r.txn, h.incarnation, after, before-1)
		if err != nil {
			return err
		}
		r.lists = append(r.lists, lists)
		switch {
		case isTopic && sender != "":
			l.way = intersect(l.walk(lists.list(topicList(filter))), l.walk(lists.list(senderList(sender))))
		case isTopic:
			l.way = listWay{l.walk(lists.list(topicList(filter)))}
		case sender != "":
			l.way = listWay{l.walk(lists.list(senderList(sender)))}
		default:
			l.way = l.topics(lists, filter)
		}
	}
	if l.way == nil {
		l.way = r.s.walkBlocks(r.txn, l)
	}
	r.lanes = append(r.lanes, l)
	l.step()
	return nil
}

// walk begins to go over a list.
func (l *lane) walk(list *postingList) *walk {
	if l.backwards {
		return list.before(l.before)
	}
	return list.after(l.after)
}

// topics returns the way over the lists of all topics that match a filter, nil if there
// are too many of them.
func (l *lane) topics(in *lists, filter string) way {
	topics, ok := in.topics(filter)
	if !ok {
		return nil
	}
	walks := make([]*walk, len(topics))
	for i, topic := range topics {
		walks[i] = l.walk(in.list(topicList(topic)))
	}
	return mergedWay{mergeLists(l.backwards, walks...)}
}

// listWay is the way over one list.
type listWay struct{ *walk }

func (listWay) close() {}

// mergedWay is the way over several lists.
type mergedWay struct{ *mergedLists }

func (mergedWay) close() {}

// intersection is the way over what is in both of two lists.
type intersection struct{ one, other *walk }

func intersect(one, other *walk) *intersection { return &intersection{one, other} }

// jumpsAtOnce is after how many jumps from one list to the other a position is yielded
// that is in one of them only, so that whoever counts is asked whether to go on.
const jumpsAtOnce = 50

func (w *intersection) next() (posting, bool) {
	at, ok := w.one.next()
	for range jumpsAtOnce {
		if !ok {
			return at, false
		}
		w.other.skipTo(at.position)
		var met posting
		if met, ok = w.other.next(); ok && met.position == at.position {
			break
		}
		at = met
		w.one, w.other = w.other, w.one
	}
	return at, ok
}

func (*intersection) close() {}

// skipTo has the next posting be the one at p, or the first after it in the order of
// walking.
func (w *walk) skipTo(p inbox.Position) {
	if w.back {
		w.skip(p + 1)
	} else {
		w.skip(p - 1)
	}
}

// blockWay is the way over everything that is in a history.
type blockWay struct {
	s     *Store
	it    *badger.Iterator
	lane  *lane
	block []inbox.Position // of the block at hand, what comes next
}

// walkBlocks begins to go over the blocks of a lane.
func (s *Store) walkBlocks(txn *badger.Txn, l *lane) *blockWay {
	inc := l.history.incarnation
	from := blockKey(inc, l.after+1)
	if l.backwards {
		from = blockKey(inc, l.before-1)
		it := blocksOf(txn, inc)
		if it.Seek(from); it.Valid() { // it may begin in front of the bound
			from = it.Item().KeyCopy(nil)
		}
		it.Close()
	}
	w := &blockWay{s: s, lane: l}
	w.it = txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixBlock, uint64(inc)), Reverse: l.backwards})
	w.it.Seek(from)
	return w
}

func (w *blockWay) close() { w.it.Close() }

func (w *blockWay) next() (p posting, ok bool) {
	for len(w.block) == 0 {
		if !w.it.Valid() {
			return p, false
		}
		entries := w.s.readEntries(w.it.Item())
		for e, ok := entries.next(); ok; e, ok = entries.next() {
			w.block = append(w.block, e.position)
		}
		if w.lane.backwards {
			slices.Reverse(w.block)
		}
		w.it.Next()
		for len(w.block) > 0 && w.isInFront(w.block[0]) {
			w.block = w.block[1:]
		}
	}
	p.position = w.block[0]
	w.block = w.block[1:]
	return p, true
}

// isInFront reports whether p comes before the first message of the lane.
func (w *blockWay) isInFront(p inbox.Position) bool {
	if w.lane.backwards {
		return p >= w.lane.before
	}
	return p <= w.lane.after
}
