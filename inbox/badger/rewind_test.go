package badger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// beginAgain opens an inbox from a bound on.
func beginAgain(t testing.TB, s inbox.Store, r inbox.Receiver, m inbox.Mode, from inbox.Bound) *receiver {
	t.Helper()
	c := &receiver{window: inbox.NewWindow(1000, inbox.State{})}
	in, _, err := s.Open(background, r, inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: c.state, Mode: m, From: &from})
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Inbox, c.window = in, inbox.NewWindow(1000, in.State())
	return c
}

// halfRead has twelve messages to a receiver who is away: 0 to 3 were delivered and
// acknowledged, of the others those of c1, which are 4, 7 and 10, by asking.
func halfRead(t testing.TB, s inbox.Store) (ids []inbox.MessageID) {
	t.Helper()
	a := connect(t, s, "a", inbox.ExpiryNever, "g/#")
	for i := range 12 {
		e := &inbox.Envelope{
			Client: fmt.Sprint("c", i%3), Topic: fmt.Sprint("g/", i%2), QoS: 1, Payload: fmt.Append(nil, i),
			Time: time.Now().Add(time.Duration(i-12) * time.Second).UnixMilli(),
		}
		ids = append(ids, storeAll(t, s, e)...)
	}
	sent, _ := a.take(t, 4)
	a.finish(sent...)
	leave(t, a, inbox.ExpiryNever)
	acknowledge(t, s, "a", inbox.Acknowledgement{Selection: inbox.Selection{Sender: "c1"}, After: ids[3].Sequence}, 3)
	wantTexts(t, "unread", pull(t, s, "a", inbox.Query{}).Entries, "5", "6", "8", "9", "11")
	return ids
}

// eachMode runs a test in both ways of keeping and both modes.
func eachMode(t *testing.T, test func(t *testing.T, o badger.Options, m inbox.Mode)) {
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		o.Rewind = time.Hour
		for name, m := range map[string]inbox.Mode{"push": inbox.ModePush, "pull": inbox.ModePull} {
			o.Dir = t.TempDir()
			t.Run(name, func(t *testing.T) { test(t, o, m) })
		}
	})
}

// What was acknowledged, in either way, is there again for who begins at an older place,
// and what is unread is there in any case, over restarts.
func TestRewindWithinItsTime(t *testing.T) {
	eachMode(t, func(t *testing.T, o badger.Options, m inbox.Mode) {
		s := verifying(t, o)
		defer func() { s.Close() }()
		ids := halfRead(t, s)
		at := time.Now().UnixMilli()
		wantTexts(t, "with what was read", pull(t, s, "a", inbox.Query{Read: true}).Entries, numbered(0, 12)...)
		for _, c := range []struct {
			from inbox.Bound
			want []string
		}{
			{inbox.Bound{Time: at + time.Hour.Milliseconds()}, []string{"5", "6", "8", "9", "11"}},
			{inbox.Bound{ID: ids[8]}, []string{"5", "6", "8", "9", "10", "11"}},
			{inbox.Bound{Position: ids[2].Sequence}, numbered(3, 12)},
			{inbox.Bound{ID: ids[6]}, numbered(3, 12)}, // what is unread by now stays so
			{inbox.Bound{}, numbered(0, 12)},
		} {
			s.Close()
			s = verifying(t, o)
			leave(t, beginAgain(t, s, "a", m, c.from), inbox.ExpiryNever)
			wantTexts(t, fmt.Sprintf("from %+v", c.from), pull(t, s, "a", inbox.Query{}).Entries, c.want...)
			wantTexts(t, fmt.Sprintf("from %+v, with what was read", c.from), pull(t, s, "a", inbox.Query{Read: true}).Entries, numbered(0, 12)...)
			if m == inbox.ModePush {
				a := connect(t, s, "a", inbox.ExpiryNever)
				_, sent := a.take(t, len(c.want))
				wantTexts(t, fmt.Sprintf("delivered from %+v", c.from), sent, c.want...)
				leave(t, a, inbox.ExpiryNever)
			}
		}
	})
}

// numbered returns the texts of numbers from one up to another.
func numbered(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// What was acknowledged for longer than it is kept goes, also from disk, and nothing that is
// unread with it. Whoever begins again then has what is left.
func TestRewindAfterItsTime(t *testing.T) {
	eachMode(t, func(t *testing.T, o badger.Options, m inbox.Mode) {
		s := verifying(t, o)
		defer func() { s.Close() }()
		again := func() {
			s.Close()
			s = verifying(t, o)
		}
		halfRead(t, s)
		eventually(t, s.Store, map[string]int{"i": 12, "a": 2}) // of c1, in two topics
		if err := s.Passed(59 * time.Minute); err != nil {
			t.Fatal(err)
		}
		again()
		wantTexts(t, "while it is kept", pull(t, s, "a", inbox.Query{Read: true}).Entries, numbered(0, 12)...)
		if err := s.Passed(61 * time.Minute); err != nil {
			t.Fatal(err)
		}
		eventually(t, s.Store, map[string]int{"i": 7}) // 7 and 10 stand behind what is unread
		for range 2 {
			left := []string{"5", "6", "8", "9", "11"}
			wantTexts(t, "unread", pull(t, s, "a", inbox.Query{}).Entries, left...)
			wantTexts(t, "with what was read", pull(t, s, "a", inbox.Query{Read: true}).Entries, left...)
			again()
		}
		for i := range 3 {
			sayAs(t, s, "c1", "g/1", fmt.Sprint(12+i))
		}
		acknowledge(t, s, "a", inbox.Acknowledgement{Selection: inbox.Selection{Sender: "c1"}}, 3)
		left := []string{"5", "6", "8", "9", "11", "12", "13", "14"}
		for range 2 {
			a := beginAgain(t, s, "a", m, inbox.Bound{})
			wantTexts(t, "from the beginning", pull(t, s, "a", inbox.Query{}).Entries, left...)
			if m == inbox.ModePush {
				_, sent := a.take(t, len(left))
				wantTexts(t, "delivered", sent, left...)
			}
			leave(t, a, inbox.ExpiryNever)
			again()
		}
		acknowledge(t, s, "a", inbox.Acknowledgement{}, len(left))
		eventually(t, s.Store, map[string]int{"i": 3, "a": 0}) // those that are kept
		if err := s.Passed(61 * time.Minute); err != nil {
			t.Fatal(err)
		}
		leave(t, beginAgain(t, s, "a", m, inbox.Bound{}), inbox.ExpiryNever) // just before they go, or after
		if err := second(s.Acknowledge(background, "a", inbox.Acknowledgement{})); err != nil {
			t.Fatal(err)
		}
		if err := s.Passed(61 * time.Minute); err != nil {
			t.Fatal(err)
		}
		eventually(t, s.Store, map[string]int{"i": 0, "a": 0})
	})
}

// When the operator keeps nothing any more, what was kept goes.
func TestRewindSwitchedOff(t *testing.T) {
	eachMode(t, func(t *testing.T, o badger.Options, m inbox.Mode) {
		s := verifying(t, o)
		defer func() { s.Close() }()
		halfRead(t, s)
		eventually(t, s.Store, map[string]int{"i": 12, "T": 1})
		s.Close()
		o.Rewind = 0
		s = verifying(t, o)
		leave(t, beginAgain(t, s, "a", m, inbox.Bound{}), inbox.ExpiryNever)
		wantTexts(t, "unread", pull(t, s, "a", inbox.Query{Read: true}).Entries, "5", "6", "8", "9", "11")
		eventually(t, s.Store, map[string]int{"i": 7, "T": 0})
		wantTexts(t, "unread, after all", pull(t, s, "a", inbox.Query{Read: true}).Entries, "5", "6", "8", "9", "11")
	})
}

// Pages from the end are those from the beginning turned round, with what was read and
// without, over blocks of one message and of many, of the receiver's own and of streams.
func TestPagesFromTheEnd(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		rng := rand.New(rand.NewPCG(seed, 0))
		o.Rewind = time.Hour
		s := verifying(t, o)
		defer func() { s.Close() }()
		away(t, s, "a", "g/#", "g/1")
		away(t, s, "b", "g/0")
		for i := range 25 {
			var batch []*inbox.Envelope
			for j := range 1 + rng.IntN(8)*rng.IntN(2) {
				batch = append(batch, &inbox.Envelope{
					Client: fmt.Sprint("c", rng.IntN(3)), Topic: fmt.Sprint("g/", rng.IntN(3)), QoS: 1, Payload: fmt.Appendf(nil, "%d.%d", i, j),
				})
			}
			storeAll(t, s, batch...)
		}
		all := pull(t, s, "a", inbox.Query{}).Entries
		for range 12 {
			n, err := s.Acknowledge(background, "a", byID(all[rng.IntN(len(all))], all[rng.IntN(len(all))]))
			if err != nil || n > 2 {
				t.Fatalf("acknowledged %d, %v", n, err)
			}
		}
		if err := second(s.Acknowledge(background, "a", inbox.Acknowledgement{Selection: inbox.Selection{Sender: "c1"}, Through: all[len(all)/2].Position})); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			q := inbox.Query{Read: rng.IntN(2) == 0, Max: 1 + rng.IntN(9)}
			q.Sender = []string{"", "", "c0", "c1"}[rng.IntN(4)]
			q.Filter = []string{"", "", "g/0", "g/#"}[rng.IntN(4)]
			if first, last := rng.IntN(len(all)), rng.IntN(len(all)); first < last && rng.IntN(2) == 0 {
				q.After.Position, q.Before.Position = all[first].Position, all[last].Position
			}
			forwards := turn(t, s, q)
			q.NewestFirst = true
			back := turn(t, s, q)
			slices.Reverse(back)
			wantTexts(t, fmt.Sprintf("%+v", q), back, texts(forwards)...)
			if q.Read && q.Selection == (inbox.Selection{}) && q.After.Position == 0 {
				wantTexts(t, "everything", back, texts(all)...)
			}
		}
	})
}

func byID(entries ...inbox.Entry) (a inbox.Acknowledgement) {
	for _, e := range entries {
		a.IDs = append(a.IDs, e.Envelope.ID)
	}
	return a
}

// turn reads page after page of an inbox.
func turn(t testing.TB, s inbox.Store, q inbox.Query) (all []inbox.Entry) {
	t.Helper()
	for {
		page := pull(t, s, "a", q)
		all = append(all, page.Entries...)
		if !page.More {
			return all
		}
		last := inbox.Bound{Position: page.Next}
		if page.Next == 0 {
			last.Position = page.Entries[len(page.Entries)-1].Position
		}
		if q.NewestFirst {
			q.Before = last
		} else {
			q.After = last
		}
	}
}
