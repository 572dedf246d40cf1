package badger

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// sentTo says what is published at a position.
func sentTo(p inbox.Position) (sender, topic string) {
	return fmt.Sprintf("sender %d", p%3), fmt.Sprintf("topic %d", p%2)
}

// What is in memory is everything behind a position, for each list, whatever is sorted,
// forgotten and added meanwhile.
func TestRecentIsWhole(t *testing.T) {
	all := newRecents()
	recent := newRecent(all, kindsOf(listPair, listTopic, listAll))
	var visible atomic.Uint64
	committed, readers := make(chan struct{}), sync.WaitGroup{}
	for range 2 {
		readers.Go(func() {
			for range committed {
				checkRecent(t, recent, inbox.Position(visible.Load()))
			}
		})
	}
	r := rand.New(rand.NewPCG(4, 4))
	position := inbox.Position(0)
	for range 200 {
		for range r.IntN(100) {
			position++
			sender, topic := sentTo(position)
			recent.add(&inbox.Envelope{ID: inbox.MessageID{Sequence: position}, Client: sender, Topic: topic, Time: int64(position)})
		}
		recent.closed(uint64(position), 1200)
		visible.Store(uint64(position))
		switch frozen, _ := recent.toSort(position); {
		case frozen != nil && r.IntN(10) == 0:
			recent.release(frozen)
		case r.IntN(60) == 0:
			recent.forget()
		}
		select {
		case committed <- struct{}{}:
		default: // they are reading
		}
		before := position - min(position, inbox.Position(r.IntN(100)))
		if r.IntN(10) == 0 {
			checkRecent(t, recent, before)
		}
		if frozen, from := recent.toSort(before); from > before || frozen != nil && frozen.last() > before {
			t.Errorf("what comes behind %d is to be sorted", before)
		}
	}
	close(committed)
	readers.Wait()
	if recent.forget(); all.bytes.Load() != 0 {
		t.Errorf("nothing takes %d bytes", all.bytes.Load())
	}
}

// However little there is of each inbox, what it takes is counted.
func TestRecentOfManyIsCounted(t *testing.T) {
	all, many := newRecents(), make([]*recent, 10_000)
	heap := func() int64 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	before := heap()
	for i := range many {
		many[i] = newRecent(all, kindsOfInbox)
		many[i].add(&inbox.Envelope{ID: inbox.MessageID{Sequence: 1}, Client: "sender", Topic: "topic"})
		many[i].closed(0, 2)
	}
	if taken := heap() - before; taken > all.bytes.Load() {
		t.Errorf("%d bytes are counted, and they take %d", all.bytes.Load(), taken)
	}
	runtime.KeepAlive(many)
}

// An inbox that has ended, or is indexed by other lists, is not held in memory.
func TestRecentOfNobodyIsForgotten(t *testing.T) {
	s, err := Open(indexOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enter(t, s, "a", nil, sub("a", 1))
	for _, end := range []func(g *commitGroup, m inbox.Member){
		func(g *commitGroup, m inbox.Member) { g.makeIndex(m, kindsOf(listAll)) },
		func(g *commitGroup, m inbox.Member) { g.end(m) },
	} {
		indexFor(t, s, "a", kindsOfInbox)
		appendAll(t, s, manySenders(3, 1)...)
		left, err := run(t.Context(), s, "end", func(g *commitGroup) (int, error) {
			if len(s.recents.filled) != 1 {
				t.Errorf("%d inboxes have something, want 1", len(s.recents.filled))
			}
			end(g, s.sessions.member("a"))
			return len(s.recents.filled), nil
		})
		if err != nil || left != 0 {
			t.Errorf("%d inboxes have something, want none: %v", left, err)
		}
	}
}

// checkRecent compares each list with what was sent.
func checkRecent(t *testing.T, recent *recent, upTo inbox.Position) {
	views, from := recent.view(upTo)
	l := &lists{fresh: newFresh(0, messageClock{}), recent: views}
	for _, id := range []listID{{kind: listAll}, topicList("topic 1"), {listPair, pairOf("sender 2", "topic 0")}} {
		want := from
		for _, r := range (&postingList{in: l, id: id, openRead: true}).tail() {
			for i := range r.n {
				for want++; !id.has(sentTo(want)); want++ {
				}
				if got := r.position(i); got != want {
					t.Errorf("list %v of (%d, %d] has %d, want %d", id, from, upTo, got, want)
					return
				}
			}
			if got := r.total().messages; id.kind == listAll && got != uint64(want-from) {
				t.Errorf("%d messages in (%d, %d]", got, from, want)
			}
		}
		for want++; want <= upTo; want++ {
			if id.has(sentTo(want)) {
				t.Errorf("list %v of (%d, %d] ends before %d", id, from, upTo, want)
				return
			}
		}
	}
}

// has reports whether a list has what a sender publishes in a topic.
func (id listID) has(sender, topic string) bool {
	for _, one := range kindsOf(id.kind).lists(sender, topic) {
		if one == id {
			return true
		}
	}
	return false
}
