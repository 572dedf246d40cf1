package badger

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// openSorting opens a store with a history of everything, of which the index is sorted
// when so many entries have come in.
func openSorting(t *testing.T, dir string, from int) *Store {
	t.Helper()
	s, err := Open(Options{
		Dir: dir, Reserve: -1, Retention: -1, Log: slog.New(slog.DiscardHandler), sweepEvery: time.Hour,
		History: []inbox.Kept{{Filter: "#"}}, sizes: indexSizes{few: 1, tell: 5, sort: from, keys: indexDefaults.keys}, Pull: []string{"to/+/s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tellOf publishes messages of some senders, in turn, to topics named after them.
func tellOf(t *testing.T, s *Store, n int, senders ...string) {
	t.Helper()
	for i := range n {
		sender := senders[i%len(senders)]
		done := make(chan error, 1)
		e := &inbox.Envelope{Topic: fmt.Sprintf("to/%d/%c", i%7, sender[0]), QoS: 1, Payload: fmt.Append(nil, i), Client: sender}
		s.Append(t.Context(), e, func(_ inbox.Receipt, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// saying returns the keys whose key or value has a text.
func (s *Store) saying(t *testing.T, text string) (keys []string) {
	t.Helper()
	err := s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			key := it.Item().KeyCopy(nil)
			value, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			if bytes.Contains(key, []byte(text)) || bytes.Contains(value, []byte(text)) {
				keys = append(keys, fmt.Sprintf("%q", key))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func countHistory(t *testing.T, s *Store, sel inbox.Selection) (n int) {
	t.Helper()
	q := inbox.Query{Selection: sel, Max: 50, MaxBytes: 1 << 20}
	for {
		page, err := s.History(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Entries)
		if !page.More {
			return n
		}
		if q.After.Position = page.Next; page.Next == 0 {
			q.After.Position = page.Entries[len(page.Entries)-1].Position
		}
	}
}

// The name of a sender who was erased is nowhere any more: whether the index is sorted into
// lists, or not, or made anew. What the same sender publishes then is found.
func TestErasedNameIsNowhere(t *testing.T) {
	for _, sortFrom := range []int{40, 75, 1000} {
		dir := t.TempDir()
		s := openSorting(t, dir, sortFrom)
		inc := s.histories.all[0].incarnation
		enter(t, s, "reader", nil, sub("to/#", 1), sub("to/+/s", 1))
		tellOf(t, s, 100, "someone", "another")
		unread := func(want int64) {
			t.Helper()
			if sum, err := s.Summarize(t.Context(), "reader", inbox.SummaryQuery{Max: 10}); err != nil || sum.Total.Messages != want {
				t.Fatalf("%d messages are unread, %v, want %d", sum.Total.Messages, err, want)
			}
		}
		unread(100)
		for inc := range s.indexes { // that of the history, and those of inbox and stream; nobody changes them now
			if err := s.indexer.await(t.Context(), inc); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.saying(t, "someone")); n < 50+1 {
			t.Fatalf("%d records have the name: the test would test nothing", n)
		}
		if n, err := s.Erase(t.Context(), "someone"); n != 50 || err != nil {
			t.Fatalf("%d erased, %v", n, err)
		}
		if keys := s.saying(t, "someone"); len(keys) > 0 {
			t.Errorf("sorted from %d on: the name stands in %v", sortFrom, keys)
		}
		unread(50)
		tellOf(t, s, 30, "someone", "another")
		if err := s.indexer.await(t.Context(), inc); err != nil {
			t.Fatal(err)
		}
		check := func() {
			t.Helper()
			for sel, want := range map[inbox.Selection]int{
				{Sender: "someone"}: 15, {Sender: "another"}: 65, {}: 130, {Filter: "to/+/s"}: 65, {Filter: "to/3/#"}: 14 + 4,
			} {
				if got := countHistory(t, s, sel); got != want {
					t.Errorf("sorted from %d on: %d messages of %+v, want %d", sortFrom, got, sel, want)
				}
			}
		}
		check()
		if n, err := s.Erase(t.Context(), "another"); n != 65 || err != nil { // while there is something of both that stays
			t.Fatalf("%d erased, %v", n, err)
		}
		tellOf(t, s, 65, "another")
		if got := countHistory(t, s, inbox.Selection{Sender: "another"}); got != 65 {
			t.Errorf("%d messages of who was erased since", got)
		}
		closeArchive(t, s)
	}
}

// markAll makes marks without names of what a sender has published, as Erase does before
// it sees to indexes.
func markAll(t *testing.T, s *Store, sender string) {
	t.Helper()
	page, err := s.History(t.Context(), inbox.Query{Selection: inbox.Selection{Sender: sender}, Max: 100, MaxBytes: 1 << 20})
	if err == nil {
		_, err = run(t.Context(), s, "erase", func(g *commitGroup) (int, error) { return g.erase(page.Entries, sender) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A history whose index is being made anew when a sender is erased does not get the name
// from memory.
func TestErasedWhileTheIndexIsNew(t *testing.T) {
	s := openSorting(t, t.TempDir(), 40)
	defer closeArchive(t, s)
	inc := s.histories.all[0].incarnation
	tellOf(t, s, 20, "someone")
	markAll(t, s, "someone")
	ix := s.indexer
	ix.mu.Lock() // both before it looks
	ix.forgotten[inc] = append(ix.forgotten[inc], erasure{"someone", inbox.Position(s.visible.Load())})
	ix.hintLocked(indexWork{remake: true, forget: true}, inc)
	ix.mu.Unlock()
	if err := ix.await(t.Context(), inc); err != nil {
		t.Fatal(err)
	}
	tellOf(t, s, 50, "another")
	if err := ix.await(t.Context(), inc); err != nil {
		t.Fatal(err)
	}
	if s.Keys()["s"] == 0 {
		t.Error("nothing is sorted: the test tests nothing")
	}
	if keys := s.saying(t, "someone"); len(keys) > 0 {
		t.Errorf("the name stands in %v", keys)
	}
}

// What is being sorted while a sender is erased has the name, whether it is still in memory
// or was forgotten there.
func TestErasedWhileItIsSorted(t *testing.T) {
	for _, isForgotten := range []bool{false, true} {
		s := openSorting(t, t.TempDir(), 1000)
		inc := enter(t, s, "reader", nil, sub("to/#", 1)).Inbox.(*handle).incarnation
		indexFor(t, s, "reader", kindsOfInbox)
		if err := s.indexer.await(t.Context(), inc); err != nil {
			t.Fatal(err)
		}
		tellOf(t, s, 20, "someone")
		markAll(t, s, "someone")
		r := s.indexer.recentOf(inc)
		r.mu.Lock()
		part := r.live
		r.frozen, r.live = part, nil
		r.mu.Unlock()
		part.mu.Lock() // so that sorting begins and does not go on
		s.indexer.hint(indexWork{index: true}, inc)
		eventually(t, func() bool {
			isReading := !s.reading.TryLock()
			if !isReading {
				s.reading.Unlock()
			}
			return isReading
		})
		if isForgotten {
			r.forget()
		}
		forgotten := make(chan error, 1)
		go func() { forgotten <- s.forgetInInboxes(t.Context(), "someone") }()
		select {
		case err := <-forgotten:
			t.Errorf("nobody waits for what is being sorted: %v", err)
			forgotten <- err
		case <-time.After(20 * time.Millisecond): // it waits
		}
		part.mu.Unlock()
		if err := <-forgotten; err != nil {
			t.Fatal(err)
		}
		if err := s.indexer.await(t.Context(), inc); err != nil {
			t.Fatal(err)
		}
		if keys := s.saying(t, "someone"); len(keys) > 0 {
			t.Errorf("forgotten %v: the name stands in %v", isForgotten, keys)
		}
		closeArchive(t, s)
	}
}

// What came while a sender was erased stays under the name.
func TestErasedUpToHere(t *testing.T) {
	s := openSorting(t, t.TempDir(), 20)
	defer closeArchive(t, s)
	inc := s.histories.all[0].incarnation
	tellOf(t, s, 60, "someone")
	upTo := inbox.Position(s.visible.Load())
	markAll(t, s, "someone")
	tellOf(t, s, 40, "someone")
	s.indexer.recentOf(inc).forget() // so that all is sorted
	if err := s.indexer.await(t.Context(), inc); err != nil {
		t.Fatal(err)
	}
	if err := s.indexer.forget(t.Context(), inc, erasure{"someone", upTo}); err != nil {
		t.Fatal(err)
	}
	tellOf(t, s, 10, "someone")
	if got := countHistory(t, s, inbox.Selection{Sender: "someone"}); got != 50 {
		t.Errorf("%d messages are found, want 50", got)
	}
}

// Topics are found by any filter that matches, be they long, or new, or of messages that
// are gone, and when none of theirs is left they are forgotten.
func TestTopicsByFilter(t *testing.T) {
	long := "long/" + strings.Repeat("x", longName)
	topics := []string{"a", "a/b", "a/b/c", "ab", "ab/c", "/a", "a//b", long, long + "/b", "b/c", "a/c"}
	dir := t.TempDir()
	s := openSorting(t, dir, 4*(len(topics)-1))
	inc := s.histories.all[0].incarnation
	for round := range 8 {
		for _, topic := range topics[:len(topics)-1] {
			tell(t, s, topic, false, fmt.Sprint(round))
		}
		// After four rounds, and after eight, nothing is only recent.
		if err := s.indexer.await(t.Context(), inc); err != nil {
			t.Fatal(err)
		}
	}
	tell(t, s, topics[len(topics)-1], false, "new")
	for _, filter := range []string{"#", "+", "a/#", "a/+", "+/c", "ab/#", "/+", "a/+/b", "long/+", long + "/#", long + "/+", "nothing/#", "+/b/c"} {
		want := slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return !inbox.MatchTopic(filter, topic) })
		err := s.view(func(txn *badger.Txn) error {
			l, err := s.openLists(txn, inc, 0, inbox.Position(s.visible.Load()))
			if err != nil {
				return err
			}
			defer l.close()
			got, ok := l.topics(filter)
			slices.Sort(got)
			slices.Sort(want)
			if !ok || !slices.Equal(got, want) {
				t.Errorf("%.20s matches %.200q, want %.200q", filter, got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if keys := s.Keys(); keys["t"] != len(topics)-1 {
		t.Errorf("%d topics are noted", keys["t"])
	}
	s.indexer.hint(indexWork{remake: true}, inc)
	if err := s.indexer.await(t.Context(), inc); err != nil {
		t.Fatal(err)
	}
	if keys := s.Keys(); keys["t"] != len(topics)-1 {
		t.Errorf("%d topics are noted when the index is made anew", keys["t"])
	}
	closeArchive(t, s)

	s = openSorting(t, dir, 30)
	err := s.do(t.Context(), "damage", func(g *commitGroup) error {
		g.delete(topicKey(inc, "a"))
		g.put(topicKey(nobody, "a"), nil)
		return nil
	})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	_, err = Verify(t.Context(), Options{Dir: dir, Retention: -1, Log: slog.New(slog.DiscardHandler)}, func(f Fault) { faults = append(faults, f.String()) })
	if err != nil || len(faults) != 2 || !strings.Contains(faults[0], "topic of incarnation 999") || !strings.Contains(faults[1], `topic "a" is not found`) {
		t.Errorf("verify finds %q, %v", faults, err)
	}
}
