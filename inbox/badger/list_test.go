package badger

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// listsOf writes postings as lists of one inbox, some at a time, and calls read with
// what is on disk then and the rest in memory.
func listsOf(t *testing.T, r *rand.Rand, all map[listID][]posting, steps int, read func(*lists)) {
	t.Helper()
	db, err := badger.Open(badger.DefaultOptions("").WithInMemory(true).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const inc = 7
	through, end := inbox.Position(0), inbox.Position(0)
	for _, postings := range all {
		end = max(end, postings[len(postings)-1].position)
	}
	within := func(after, upTo inbox.Position) *fresh {
		f := newFresh(kindsOfInbox, messageClock{skew: 300})
		for id, postings := range all {
			for _, p := range postings {
				if p.position > after && p.position <= upTo {
					l := f.list(id, string(id.name[:4]), "t", 0)
					l.postings = append(l.postings, p)
				}
			}
		}
		return f
	}
	for range steps {
		before := through
		through += inbox.Position(r.IntN(int(end) * 2 / steps))
		if r.IntN(4) == 0 {
			before /= 2 // what is in the lists already is passed over
		}
		for id, f := range within(before, through).lists {
			step := &indexStep{incarnation: inc, most: indexDefaults.keys}
			err := db.View(func(txn *badger.Txn) error {
				open, err := readOpen(txn, inc, id)
				if err == nil && !step.extend(id, f, open) {
					t.Error("a list is not done")
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(txn *badger.Txn) error {
				for _, e := range step.puts {
					if err := txn.SetEntry(e); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	err = db.View(func(txn *badger.Txn) error {
		l := &lists{txn: txn, incarnation: inc, fresh: within(through/2, endless)}
		defer l.close()
		read(l)
		return l.err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Lists answer like the plain slices that they were made of, whatever of them is on
// disk and in how many records.
func TestLists(t *testing.T) {
	for round := range 12 {
		r := rand.New(rand.NewPCG(5, uint64(round)))
		all := map[listID][]posting{}
		for i := range 1 + r.IntN(6) {
			id := listID{listPair, pair{byte(i + 1), 9, 9, 9, byte(i)}}
			all[id] = somePostings(r, 1+r.IntN([]int{3, 100, 5000}[r.IntN(3)]), inbox.Position(r.IntN(1000)), round)
		}
		listsOf(t, r, all, 1+r.IntN(60), func(l *lists) {
			found := map[listID]bool{}
			for one := range l.all(listPair, nil) {
				found[one.id] = true
				if sender, _ := one.names(); sender != string(one.id.name[:4]) {
					t.Errorf("names of %v: %q", one.id, sender)
				}
				checkList(t, r, one, all[one.id])
			}
			if len(found) != len(all) {
				t.Errorf("%d lists, want %d", len(found), len(all))
			}
			checkMerged(t, r, l, all)
			if none := l.list(listID{listPair, pair{99}}); none.last() != nil || none.upTo(endless) != (tally{}) {
				t.Error("a list that is not there has something")
			}
		})
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func checkList(t *testing.T, r *rand.Rand, l *postingList, all []posting) {
	t.Helper()
	some := func() inbox.Position {
		if r.IntN(10) == 0 {
			return endless
		}
		return inbox.Position(r.IntN(int(all[len(all)-1].position) + 10))
	}
	if first, ok := l.origin(); !ok || first != all[0] {
		t.Errorf("the first is %v (%v), want %v", first, ok, all[0])
	}
	for range 40 {
		after, upTo, d := some(), some(), someDeadline(r)
		if got, want := l.between(after, upTo), tallyOf(all, after, upTo, nil); got != want {
			t.Fatalf("in (%d, %d]: %v, want %v", after, upTo, got, want)
		}
		want := tallyOf(all, after, upTo, nil).minus(tallyOf(all, after, upTo, &d))
		if after >= upTo {
			want = tally{}
		}
		if got := l.live(after, upTo, d); got != want {
			t.Fatalf("live in (%d, %d] at %v: %v, want %v", after, upTo, d, got, want)
		}
	}
	for range 10 {
		p := some()
		behind, before := l.after(min(p, endless-1)), l.before(p)
		i, _ := slices.BinarySearchFunc(all, p, func(e posting, p inbox.Position) int {
			if e.position <= p {
				return -1
			}
			return 1
		})
		j := i - 1
		if j >= 0 && all[j].position == p {
			j--
		}
		for n := r.IntN(600); n > 0; n-- {
			got, ok := behind.next()
			if ok != (i < len(all)) || ok && got != all[i] {
				t.Fatalf("behind %d: %v %v, want number %d of %d", p, got, ok, i, len(all))
			}
			back, ok := before.next()
			if ok != (j >= 0) || ok && back != all[j] {
				t.Fatalf("before %d: %v %v, want number %d", p, back, ok, j)
			}
			i, j = min(i+1, len(all)), max(j-1, -1)
		}
	}
}

// checkMerged goes over some of the lists as over one.
func checkMerged(t *testing.T, r *rand.Rand, l *lists, all map[listID][]posting) {
	t.Helper()
	for _, back := range []bool{false, true} {
		at := map[inbox.Position]bool{}
		var walks []*walk
		from := inbox.Position(r.IntN(3000))
		for id, postings := range all {
			if r.IntN(4) == 0 {
				continue
			}
			one := l.list(id)
			if back {
				walks = append(walks, one.before(from))
			} else {
				walks = append(walks, one.after(from))
			}
			for _, p := range postings {
				if back && p.position < from || !back && p.position > from {
					at[p.position] = true
				}
			}
		}
		var want []inbox.Position
		for p := range at {
			want = append(want, p)
		}
		slices.Sort(want)
		if back {
			slices.Reverse(want)
		}
		m := mergeLists(back, walks...)
		for i, p := range want {
			if got, ok := m.next(); !ok || got.position != p {
				t.Fatalf("merged, back %v, number %d: %d %v, want %d", back, i, got.position, ok, p)
			}
		}
		if got, ok := m.next(); ok {
			t.Fatalf("merged, at the end: %v", got)
		}
	}
}

// Where the records in front have gone by themselves, what is left counts, whatever the open
// record says of where its list began.
func TestListsWithoutTheirFirst(t *testing.T) {
	db, err := badger.Open(badger.DefaultOptions("").WithInMemory(true).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := somePostings(rand.New(rand.NewPCG(7, 7)), 300, 10, 1)
	gone, id, now := all[:200], listID{kind: listAll}, uint64(time.Now().Unix())
	step := &indexStep{incarnation: 7}
	before := step.putRecord(id, "", "", tally{}, gone, now-1)
	step.putOpen(id, "", "", before, origin{all[0], now - 1}, all[200:], 0)
	err = db.Update(func(txn *badger.Txn) error {
		return errors.Join(txn.SetEntry(step.puts[0]), txn.SetEntry(step.puts[1]))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(txn *badger.Txn) error {
		l := &lists{txn: txn, incarnation: 7, fresh: newFresh(kindsOfInbox, messageClock{skew: 300}), now: now}
		defer l.close()
		if got, want := l.list(id).live(0, endless, deadline{}), tallyOf(all[200:], 0, endless, nil); got != want {
			t.Errorf("%v are left, want %v", got, want)
		}
		return l.err
	})
	if err != nil {
		t.Fatal(err)
	}
}
