package badger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// sortAll is from how many entries on an index has lists.
const sortAll = 2048

func indexOptions(dir string) Options {
	o := everythingOptions(dir)
	o.sizes = indexSizes{few: indexDefaults.few, tell: 256, sort: sortAll, keys: indexDefaults.keys}
	return o
}

// indexFor has the inbox of a receiver be indexed, and returns which it is.
func indexFor(t testing.TB, s *Store, r inbox.Receiver, kinds listKinds) incarnation {
	t.Helper()
	inc, err := run(t.Context(), s, "index", func(g *commitGroup) (incarnation, error) {
		m := s.sessions.member(r)
		if m == 0 {
			return 0, inbox.ErrNoSession
		}
		g.makeIndex(m, kinds)
		return s.sessions.at(m).incarnation, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return inc
}

// closeSound closes a store, in which nothing must be wrong.
func closeSound(t *testing.T, s *Store, dir string) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, faults := verifyAll(t, dir); len(faults) > 0 {
		t.Fatal(faults)
	}
}

// appendAll stores messages, and returns when all are.
func appendAll(t testing.TB, s *Store, all ...*inbox.Envelope) {
	t.Helper()
	var wg sync.WaitGroup
	for _, e := range all {
		wg.Add(1)
		s.Append(t.Context(), e, func(_ inbox.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		})
	}
	wg.Wait()
}

// someMessage is one of a few senders and topics; some expire by themselves.
func someMessage(r *rand.Rand, topics ...string) *inbox.Envelope {
	e := &inbox.Envelope{
		Topic: topics[r.IntN(len(topics))], Client: fmt.Sprintf("c%d", r.IntN(5)), QoS: 1,
		Time: time.Now().UnixMilli(), Payload: make([]byte, r.IntN(30)),
	}
	if r.IntN(3) == 0 {
		e.User = fmt.Sprintf("u%d", r.IntN(3))
	}
	if r.IntN(5) == 0 {
		e.Expiry = e.Time + r.Int64N(3_600_000)
	}
	return e
}

// readLists calls read with what is indexed of an inbox, when that is far enough.
func readLists(t testing.TB, s *Store, inc incarnation, read func(txn *badger.Txn, l *lists, upTo inbox.Position) error) error {
	for {
		upTo := inbox.Position(s.visible.Load())
		err := s.view(func(txn *badger.Txn) error {
			l, err := s.openLists(txn, inc, 0, upTo)
			if err != nil {
				return err
			}
			defer l.close()
			return errors.Join(read(txn, l, upTo), l.err)
		})
		var behind behindError
		if !errors.As(err, &behind) {
			return err
		}
		if err := s.indexer.await(t.Context(), incarnation(behind)); err != nil {
			return err
		}
	}
}

// checkIndex compares what an index answers with the blocks themselves: those that a
// reader has not finished.
func checkIndex(t testing.TB, s *Store, inc, reader incarnation, kinds listKinds) {
	t.Helper()
	err := readLists(t, s, inc, func(txn *badger.Txn, l *lists, upTo inbox.Position) error {
		progress, err := readProgress(txn, reader)
		if err != nil {
			return err
		}
		finished := progress.finished()
		want := map[listID][]posting{}
		names, ofTopic := map[listID][2]string{}, map[string]map[listID]bool{}
		s.gather(txn, inc, finished, upTo, func(p posting, sender, topic string, _ uint64) bool {
			for _, id := range kinds.lists(sender, topic) {
				s, t := id.kind.names(sender, topic)
				want[id] = append(want[id], p)
				names[id] = [2]string{strings.Clone(s), strings.Clone(t)}
			}
			return true
		})
		for id, postings := range want {
			one := l.list(id)
			if sender, topic := one.names(); names[id] != [2]string{sender, topic} {
				t.Errorf("list of %q in %q, want %v", sender, topic, names[id])
			}
			var got []posting
			w := one.after(finished)
			for p, ok := w.next(); ok; p, ok = w.next() {
				got = append(got, p)
			}
			if !slices.Equal(got, postings) {
				t.Errorf("list of %v has %d entries, want %d", names[id], len(got), len(postings))
			}
			if got, want := one.between(finished, upTo), tallyOf(postings, finished, upTo, nil); got != want {
				t.Errorf("list of %v comes to %v, want %v", names[id], got, want)
			}
			if topic := names[id][1]; id.kind == listPair {
				if ofTopic[topic] == nil {
					ofTopic[topic] = map[listID]bool{}
					for one := range l.ofTopic(topic) {
						ofTopic[topic][one.id] = true
					}
				}
				if !ofTopic[topic][id] {
					t.Errorf("list of %v is not found by its topic", names[id])
				}
			}
		}
		for _, kind := range []listKind{listPair, listTopic, listSender, listAll} {
			for one := range l.all(kind, nil) {
				if want[one.id] == nil && one.between(finished, endless) != (tally{}) {
					t.Errorf("list %v has something", one.id)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Whatever comes into an inbox or a stream, by whatever way, and is taken from it,
// its index answers like its blocks, before and after the indexer has been there and
// over restarts.
func TestIndexFollows(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 9))
	open := func() *Store {
		s, err := Open(indexOptions(dir))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	appendAll(t, s, &inbox.Envelope{Topic: "kept/1", Client: "k", QoS: 1, Retain: true, Payload: []byte{1}, Time: 1})
	a := enter(t, s, "a", nil, sub("all/#", 1), sub("a", 1), sub("kept/+", 1))
	b := enter(t, s, "b", nil, sub("all/#", 1), sub("news", 1))
	appendAll(t, s, someMessage(r, "a", "all/1", "news"))
	everyKind := kindsOf(listPair, listTopic, listSender, listAll)
	kindsOfReceiver := map[inbox.Receiver]listKinds{"a": kindsOfInbox, "b": everyKind, streamReceiver("news"): kindsOfInbox}
	indexes := map[incarnation]listKinds{}
	for receiver, kinds := range kindsOfReceiver {
		indexes[indexFor(t, s, receiver, kinds)] = kinds
	}
	stream := indexFor(t, s, streamReceiver("news"), kindsOfInbox)
	inboxOfB := b.Inbox.(*handle).incarnation
	for round := range 12 {
		var some []*inbox.Envelope
		for range r.IntN(900) {
			some = append(some, someMessage(r, "a", "all/1", "all/2", "news", "nobody"))
		}
		appendAll(t, s, some...)
		for inc, kinds := range indexes {
			reader := inc
			if inc == stream {
				reader = inboxOfB
			}
			checkIndex(t, s, inc, reader, kinds)
		}
		if round == 3 {
			b.finish(t, 500)
		}
		if round == 5 {
			for _, in := range []*actor{a, b} {
				if err := in.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
					t.Fatal(err)
				}
			}
			closeSound(t, s, dir)
			s = open()
		}
	}
	for inc := range indexes {
		if err := s.indexer.await(t.Context(), inc); err != nil {
			t.Fatal(err)
		}
	}
	closeSound(t, s, dir)
}

// manySenders are n messages of so many senders in turn.
func manySenders(n, senders int) (all []*inbox.Envelope) {
	for i := range n {
		all = append(all, &inbox.Envelope{
			Topic: "a", Client: fmt.Sprintf("sender %d", i%senders), QoS: 1, Time: time.Now().UnixMilli(), Payload: []byte("hello"),
		})
	}
	return all
}

// indexRecords counts the records of an index by kind.
func indexRecords(t testing.TB, s *Store) map[listKind]int {
	t.Helper()
	records := map[listKind]int{}
	err := s.view(func(txn *badger.Txn) error {
		return each(txn, []byte{prefixList}, func(k, _ []byte) error {
			records[listOf(k).kind]++
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// What comes in is in memory until it is much; then it is sorted into lists, of which few
// records are small.
func TestIndexOfMany(t *testing.T) {
	s, err := Open(indexOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enter(t, s, "a", nil, sub("a", 1))
	inc := indexFor(t, s, "a", kindsOfInbox)
	const senders = 1200
	appendAll(t, s, manySenders(sortAll-1, senders)...)
	if err := s.indexer.await(t.Context(), inc); err != nil {
		t.Fatal(err)
	}
	checkIndex(t, s, inc, inc, kindsOfInbox)
	if records := indexRecords(t, s); len(records) != 0 {
		t.Errorf("records %v of few entries", records)
	}
	for range 8 {
		appendAll(t, s, manySenders(sortAll, 3)...)
		if err := s.indexer.await(t.Context(), inc); err != nil {
			t.Fatal(err)
		}
	}
	checkIndex(t, s, inc, inc, kindsOfInbox)
	records := indexRecords(t, s)
	lists, large := senders+1, 2*9*sortAll/fewPostings
	if n := records[listPair] + records[listAll]; records[listOfTopic] != senders || n < lists || n > lists+large {
		t.Errorf("records %v of %d lists", records, lists)
	}
}

// However much is in memory only, and in one list, it counts.
func TestIndexOfManyInMemory(t *testing.T) {
	o := indexOptions(t.TempDir())
	o.sizes.sort = 4 * mostPostings
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enter(t, s, "a", nil, sub("a", 1))
	inc := indexFor(t, s, "a", kindsOfInbox)
	appendAll(t, s, manySenders(2*mostPostings, 1)...)
	checkIndex(t, s, inc, inc, kindsOfInbox)
	if records := indexRecords(t, s); len(records) != 0 {
		t.Errorf("records %v: the test would test nothing", records)
	}
	s.recents.most = 0 // they are forgotten with the next one
	appendAll(t, s, manySenders(1, 1)...)
	if n := s.recents.bytes.Load(); n != 0 {
		t.Errorf("%d bytes in memory", n)
	}
	checkIndex(t, s, inc, inc, kindsOfInbox)
}

// When a process ends while it sorts, some lists are ahead of what is noted as sorted.
// Nothing counts twice then, and sorting goes on.
func TestIndexSortedInPart(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(indexOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	enter(t, s, "a", nil, sub("a", 1))
	inc := indexFor(t, s, "a", kindsOfInbox)
	for _, n := range []int{sortAll + 500, sortAll / 2} { // some is sorted, and some is not
		appendAll(t, s, manySenders(n, 40)...)
		if err := s.indexer.await(t.Context(), inc); err != nil {
			t.Fatal(err)
		}
	}
	appendAll(t, s, manySenders(100, 40)...)
	step := &indexStep{incarnation: inc, most: indexDefaults.keys}
	err = s.view(func(txn *badger.Txn) error {
		x, _, err := readIndexed(txn, inc)
		if err != nil {
			return err
		}
		step.was, step.is = x, x
		views, _ := s.indexer.recentOf(inc).view(endless - 1)
		f := newFresh(x.kinds, x.clock)
		for _, v := range views {
			f.add(&v.seen)
		}
		if len(f.lists) == 0 || x.sorted == 0 {
			t.Fatalf("%+v, %d lists: the test would test nothing", x, len(f.lists))
		}
		i := 0
		for id, list := range f.lists {
			if i++; i%2 == 0 {
				open, err := readOpen(txn, inc, id)
				if err != nil {
					t.Fatal(err)
				}
				if !step.extend(id, list, open) {
					t.Fatal("a list is not done")
				}
			}
		}
		return nil
	})
	if err == nil {
		err = s.indexer.write(step)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkIndex(t, s, inc, inc, kindsOfInbox)
	closeSound(t, s, dir)
	if s, err = Open(indexOptions(dir)); err != nil {
		t.Fatal(err)
	}
	checkIndex(t, s, inc, inc, kindsOfInbox)
	appendAll(t, s, manySenders(sortAll, 40)...)
	if err := s.indexer.await(t.Context(), inc); err != nil {
		t.Fatal(err)
	}
	checkIndex(t, s, inc, inc, kindsOfInbox)
	closeSound(t, s, dir)
}

// What a session has in the index goes with it, and what it has finished is cleaned
// up when that is much, or everything, however the sweeps divide it.
func TestIndexGoes(t *testing.T) {
	const few = 100 // of the 3*sortAll that each has
	s, err := Open(indexOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, b := enter(t, s, "a", nil, sub("a", 1)), enter(t, s, "b", nil, sub("b", 1))
	for _, r := range []inbox.Receiver{"a", "b"} {
		inc := indexFor(t, s, r, kindsOfInbox)
		for _, n := range []int{sortAll, sortAll, sortAll - few, few} {
			all := manySenders(n, 300)
			for _, e := range all {
				e.Topic = string(r)
			}
			appendAll(t, s, all...)
			if err := s.indexer.await(t.Context(), inc); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := s.Keys()["s"]
	keys := func() string { return fmt.Sprint("keys ", s.Keys(), ", before ", before) }
	if err := a.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryAtOnce}); err != nil {
		t.Fatal(err)
	}
	s.Eventually(t, func() bool { return s.Keys()["j"] == 1 && s.Keys()["s"] <= before/2+1 }, keys)
	both := s.Keys()["s"]
	for range 3*sortAll - few {
		b.finish(t, 1)
	}
	s.Eventually(t, func() bool { n := s.Keys()["s"]; return 0 < n && n < both }, keys)
	for range few {
		b.finish(t, 1)
	}
	s.Eventually(t, func() bool { return s.Keys()["s"] == 0 }, keys)
	inc := b.Inbox.(*handle).incarnation
	checkIndex(t, s, inc, inc, kindsOfInbox)
}

// eventually waits for what does not come with a commit.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never is")
		}
	}
}

// An index that is damaged is made anew, and readers are told meanwhile.
func TestIndexDamaged(t *testing.T) {
	for name, harm := range map[string]func(d *damager, inc incarnation){
		"postings": func(d *damager, inc incarnation) { d.cut(d.first(listID{kind: listPair}.key(inc, 0)[:10])) },
		"head":     func(d *damager, inc incarnation) { d.cut(indexedKey(inc)) },
		"version 2, whose lists stood elsewhere": func(d *damager, inc incarnation) {
			x := d.get(indexedKey(inc))
			x[0] = 2
			d.set(indexedKey(inc), x, 0)
			old := listID{kind: listPair}.key(inc, 9)
			old[9] = 1
			d.set(old, []byte("postings"), 0)
		},
		"version 1, which had another kind": func(d *damager, inc incarnation) {
			d.set(indexedKey(inc), []byte{1, 0, byte(kindsOfInbox), 5, 5, 0, 0, 0}, 0)
			d.set(listID{kind: listAll + 1}.key(inc, 9), []byte("arrivals"), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(indexOptions(dir))
			if err != nil {
				t.Fatal(err)
			}
			const n = sortAll + 1000
			enter(t, s, "a", nil, sub("a", 1))
			appendAll(t, s, manySenders(n-1000, 5)...)
			inc := indexFor(t, s, "a", kindsOfInbox)
			err = s.indexer.await(t.Context(), inc)
			appendAll(t, s, manySenders(1000, 5)...)
			if err = errors.Join(err, s.indexer.await(t.Context(), inc), s.Close()); err != nil {
				t.Fatal(err)
			}
			damage(t, dir, func(d *damager) { harm(d, inc) })
			if s, err = Open(indexOptions(dir)); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			count := func() (all uint64, err error) {
				err = readLists(t, s, inc, func(_ *badger.Txn, in *lists, _ inbox.Position) error {
					for l := range in.all(listPair, nil) {
						all += l.live(0, n/2, deadline{old: math.MinInt64}).messages + l.live(n/2, endless, deadline{old: math.MinInt64}).messages
					}
					return nil
				})
				return all, err
			}
			eventually(t, func() bool {
				all, err := count()
				if err != nil && !errors.Is(err, inbox.ErrDamaged) || err == nil && all != n {
					t.Fatalf("%d messages, %v", all, err)
				}
				return err == nil
			})
			checkIndex(t, s, inc, inc, kindsOfInbox)
		})
	}
}

// Who waits for an index is told when it does not come.
func TestIndexAwaited(t *testing.T) {
	s, err := Open(indexOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	a := enter(t, s, "a", nil, sub("a", 1))
	inc := a.Inbox.(*handle).incarnation
	if err := readLists(t, s, inc, nil); !errors.Is(err, errNotIndexed) {
		t.Errorf("without an index: %v", err)
	}
	if err := s.indexer.await(t.Context(), inc); !errors.Is(err, inbox.ErrNoSession) {
		t.Errorf("wait without an index: %v", err)
	}
	indexFor(t, s, "a", kindsOfInbox)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.indexer.await(over, inc); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("wait that is over: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.indexer.await(t.Context(), inc); !errors.Is(err, inbox.ErrClosed) {
		t.Errorf("wait after the end: %v", err)
	}
}

// Each damage to an index is found by Verify.
func TestVerifyIndex(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(indexOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	enter(t, s, "a", nil, sub("a", 1))
	appendAll(t, s, manySenders(mostPostings+sortAll, 2)...)
	inc := indexFor(t, s, "a", kindsOfInbox)
	err = s.indexer.await(t.Context(), inc)
	appendAll(t, s, manySenders(1000, 2)...)
	if err = errors.Join(err, s.indexer.await(t.Context(), inc), s.Close()); err != nil {
		t.Fatal(err)
	}
	kind := func(k listKind) []byte { return listID{kind: k}.key(inc, 0)[:10] }
	rewrite := func(d *damager, key []byte, change func([]posting) []posting) {
		r, err := parsePostings(d.get(key))
		if err != nil {
			t.Fatal(err)
		}
		d.set(key, appendPostings(nil, string(r.sender), string(r.topic), r.before, change(r.appendTo(nil))), 0)
	}
	const all = mostPostings + sortAll // what came later is not in the lists yet
	x := &everything{dir: dir}
	for name, c := range map[string]struct {
		do   func(d *damager)
		want []string
	}{
		"nothing":               {func(*damager) {}, nil},
		"postings not readable": {func(d *damager) { d.cut(d.first(kind(listPair))) }, []string{"damaged: read postings"}},
		"of another key": {func(d *damager) {
			key := d.first(kind(listPair))
			other := slices.Clone(key)
			other[15]++
			d.set(other, d.get(key), 0)
			d.drop(key)
		}, []string{"damaged: read postings: of \"sender"}},
		"postings gone": {func(d *damager) { d.drop(d.first(kind(listPair))) }, []string{"lost: session \"a\" has"}},
		"some before them gone": {func(d *damager) {
			key := d.first(kind(listAll))
			rewrite(d, key, func(p []posting) []posting { p[1].bytes++; return p })
		}, []string{"damaged: read postings: {"}},
		"one of another time": {func(d *damager) {
			rewrite(d, listID{kind: listAll}.key(inc, endless), func(p []posting) []posting { p[0].time++; return p })
		}, []string{fmt.Sprintf("lost: session \"a\" has %d entries of \"\" in \"\", and its index others, %d", all, all)}},
		"one counted wrong": {func(d *damager) {
			rewrite(d, listID{listPair, pairOf("sender 0", "a")}.key(inc, endless), func(p []posting) []posting { p[0].bytes++; return p })
		}, []string{fmt.Sprintf("lost: session \"a\" has %d entries of \"sender 0\" in \"a\", and its index others, %d", all/2, all/2)}},
		"origin of another": {func(d *damager) {
			key := listID{kind: listAll}.key(inc, endless)
			r, err := parsePostings(d.get(key))
			if err != nil {
				t.Fatal(err)
			}
			r.origin.bytes++
			d.set(key, appendOrigin(appendPostings(nil, "", "", r.before, r.appendTo(nil)), r.origin), 0)
		}, []string{"damaged: read postings: the first is"}},
		"open under the key of a closed one": {func(d *damager) {
			key := listID{kind: listAll}.key(inc, endless)
			closed := slices.Clone(key)
			closed[9]--
			d.set(closed, d.get(key), 0)
			d.drop(key)
		}, []string{"damaged: read postings: of"}},
		"not found by topic": {func(d *damager) { d.drop(d.first(kind(listOfTopic))) }, []string{"lost: messages of"}},
		"of nobody": {func(d *damager) { d.set(listID{kind: listAll}.key(nobody, endless), d.get(d.first(kind(listAll))), 0) },
			[]string{"stays: postings of incarnation 999"}},
		"not indexed":       {func(d *damager) { d.drop(indexedKey(inc)) }, []string{"stays: postings of session \"a\", which is not indexed"}},
		"head not readable": {func(d *damager) { d.cut(indexedKey(inc)) }, []string{"damaged: read"}},
	} {
		copied := x.copied(t)
		damage(t, copied, c.do)
		_, faults := verifyAll(t, copied)
		same := len(faults) == len(c.want)
		for i := range faults {
			same = same && strings.HasPrefix(faults[i], c.want[i])
		}
		if !same {
			t.Errorf("%s: faults %q, want %q", name, faults, c.want)
		}
	}
}
