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

// bySender acknowledges what one sender has sent.
func bySender(name string) inbox.Acknowledgement {
	return inbox.Acknowledgement{Selection: inbox.Selection{Sender: name}}
}

// sayAs publishes a message of a client, in a commit of its own, and returns its id.
func sayAs(t testing.TB, s inbox.Store, client, topic, text string) inbox.MessageID {
	t.Helper()
	return storeAll(t, s, &inbox.Envelope{Client: client, Topic: topic, QoS: 1, Payload: []byte(text)})[0]
}

// What a receiver who only pulls has acknowledged goes, with what is noted of that, once
// nothing in front of it is unread; what is unread stays, over restarts.
func TestPulledIsSwept(t *testing.T) {
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		s := verifying(t, o)
		defer func() { s.Close() }()
		again := func() {
			s.Close()
			s = verifying(t, o)
		}
		away(t, s, "a", "g/#")
		for i := range 9 {
			sayAs(t, s, fmt.Sprint("c", i%3), fmt.Sprint("g/", i%2), fmt.Sprint(i))
		}
		acknowledge(t, s, "a", bySender("c1"), 3)
		eventually(t, s.Store, map[string]int{"i": 9, "a": 2})
		again()
		acknowledge(t, s, "a", bySender("c0"), 3)
		wantTexts(t, "of c2", pull(t, s, "a", inbox.Query{}).Entries, "2", "5", "8")
		eventually(t, s.Store, map[string]int{"i": 7, "a": 4})
		again()
		wantTexts(t, "of c2, again", pull(t, s, "a", inbox.Query{}).Entries, "2", "5", "8")
		acknowledge(t, s, "a", inbox.Acknowledgement{Selection: inbox.Selection{Sender: "c2", Filter: "g/0"}}, 2)
		eventually(t, s.Store, map[string]int{"i": 4})
		sayAs(t, s, "c2", "g/1", "9")
		acknowledge(t, s, "a", bySender("c2"), 2)
		eventually(t, s.Store, map[string]int{"i": 0, "a": 0})
		again()
		sayAs(t, s, "c0", "g/0", "10")
		wantTexts(t, "new", pull(t, s, "a", inbox.Query{}).Entries, "10")
		eventually(t, s.Store, map[string]int{"i": 1, "a": 0})
	})
}

// What one process was told, and did not sweep, the next one does, though nobody asks
// for anything.
func TestPulledIsSweptAfterARestart(t *testing.T) {
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		o.Reserve, o.Retention, o.Log = -1, -1, quiet()
		s, err := badger.OpenSweeping(o, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []inbox.Receiver{"all", "some"} {
			away(t, s, r, "to/"+string(r))
			for i := range 4 {
				sayAs(t, s, fmt.Sprint("c", i%2), "to/"+string(r), fmt.Sprint(i))
			}
		}
		acknowledge(t, s, "all", bySender("c0"), 2)
		acknowledge(t, s, "all", bySender("c1"), 2)
		acknowledge(t, s, "some", bySender("c0"), 2)
		if keys := s.Keys(); keys["i"] != 8 || keys["a"] != 3 {
			t.Fatalf("keys %v: the test would test nothing", keys)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		v := verifying(t, o)
		defer func() { v.Close() }()
		eventually(t, v.Store, map[string]int{"i": 3, "a": 1})
		wantTexts(t, "some", pull(t, v, "some", inbox.Query{}).Entries, "1", "3")
	})
}

// A stream keeps what one of its readers has not read, in whatever way the others have.
func TestPulledInAStreamOfSeveral(t *testing.T) {
	o := badger.Options{Dir: t.TempDir(), Pull: []string{"#"}}
	s := verifying(t, o)
	defer func() { s.Close() }()
	for _, r := range []inbox.Receiver{"a", "b"} {
		away(t, s, r, "g")
	}
	pushed := connect(t, s, "pushed", inbox.ExpiryNever, "g")
	for i := range 6 {
		sayAs(t, s, fmt.Sprint("c", i%2), "g", fmt.Sprint(i))
	}
	ids, _ := pushed.take(t, 6)
	pushed.finish(ids...)
	acknowledge(t, s, "a", bySender("c1"), 3)
	acknowledge(t, s, "a", bySender("c0"), 3)
	eventually(t, s.Store, map[string]int{"i": 6, "a": 0})
	first := pull(t, s, "b", inbox.Query{Max: 2}).Entries
	acknowledge(t, s, "b", inbox.Acknowledgement{Through: first[1].Position}, 2)
	eventually(t, s.Store, map[string]int{"i": 4})
	s.Close()
	s = verifying(t, o)
	wantTexts(t, "b", pull(t, s, "b", inbox.Query{}).Entries, "2", "3", "4", "5")
	acknowledge(t, s, "b", inbox.Acknowledgement{}, 4)
	eventually(t, s.Store, map[string]int{"i": 0, "a": 0})
}

// In pull mode, what waits is acknowledged by asking and what is live by PUBACK: what both
// have finished goes, while the receiver is connected too.
func TestPulledIsSweptBesideDelivery(t *testing.T) {
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		s := verifying(t, o)
		defer func() { s.Close() }()
		away(t, s, "a", "g/#")
		for i := range 4 {
			sayAs(t, s, fmt.Sprint("c", i%2), "g/a", fmt.Sprint(i))
		}
		if err := second(s.SetMode(background, "a", inbox.ModePull)); err != nil {
			t.Fatal(err)
		}
		a := connect(t, s, "a", inbox.ExpiryNever)
		for i := range 4 {
			sayAs(t, s, fmt.Sprint("c", i%2), "g/a", fmt.Sprint("live ", i))
		}
		ids, live := a.take(t, 4)
		wantTexts(t, "live", live, "live 0", "live 1", "live 2", "live 3")
		a.finish(ids[0], ids[1], ids[3])
		acknowledge(t, s, "a", bySender("c0"), 3) // and live 2, which is on its way
		eventually(t, s.Store, map[string]int{"i": 7})
		wantTexts(t, "what waits", pull(t, s, "a", inbox.Query{}).Entries, "1", "3")
		acknowledge(t, s, "a", bySender("c1"), 2)
		a.finish(ids[2])
		eventually(t, s.Store, map[string]int{"i": 0})
		leave(t, a, inbox.ExpiryNever) // what is noted behind its last message is its owner's to pass
		eventually(t, s.Store, map[string]int{"a": 0})
		s.Close()
		s = verifying(t, o)
		sayAs(t, s, "c0", "g/a", "later")
		wantTexts(t, "later", pull(t, s, "a", inbox.Query{}).Entries, "later")
	})
}

// Copies of earlier messages go like all others, with the notes by which they are found.
func TestPulledCopiesAreSwept(t *testing.T) {
	s := verifying(t, badger.Options{Dir: t.TempDir()})
	defer func() { s.Close() }()
	var kept []inbox.MessageID
	for i := range 3 {
		e := &inbox.Envelope{Client: "c", Topic: fmt.Sprint("r/", i), QoS: 1, Retain: true, Payload: fmt.Append(nil, i)}
		kept = append(kept, storeAll(t, s, e)...)
	}
	connect(t, s, "a", inbox.ExpiryNever, "r/0", "r/1", "r/2").finish()
	sayAs(t, s, "c", "r/0", "new")
	eventually(t, s.Store, map[string]int{"i": 4, "b": 3})
	leave(t, connect(t, s, "a", inbox.ExpiryNever), inbox.ExpiryNever)
	acknowledge(t, s, "a", inbox.Acknowledgement{IDs: kept[1:2]}, 1)
	eventually(t, s.Store, map[string]int{"i": 4, "b": 3, "a": 1})
	acknowledge(t, s, "a", inbox.Acknowledgement{IDs: kept[:1]}, 1)
	eventually(t, s.Store, map[string]int{"i": 2, "b": 1})
	wantTexts(t, "left", pull(t, s, "a", inbox.Query{}).Entries, "2", "new")
	acknowledge(t, s, "a", inbox.Acknowledgement{}, 2)
	eventually(t, s.Store, map[string]int{"i": 0, "b": 0, "a": 0})
}

// Whatever is acknowledged in whatever order: what is on disk in the end of each step is
// what is at the first unread message or behind it, and all that is unread is there.
func TestPulledIsSweptRandomly(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	eachKeeping(t, func(t *testing.T, o badger.Options) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := verifying(t, o)
		defer func() { s.Close() }()
		away(t, s, "a", "g/#")
		type message struct {
			id            inbox.MessageID
			client, topic string
			read          bool
		}
		var all []message
		for range 60 {
			e := rng.IntN(max(len(all), 1))
			a := inbox.Acknowledgement{}
			var meant func(i int) bool
			switch kind := rng.IntN(8); {
			case kind < 3 || len(all) == 0:
				m := message{client: fmt.Sprint("c", rng.IntN(3)), topic: fmt.Sprint("g/", rng.IntN(2))}
				m.id = sayAs(t, s, m.client, m.topic, fmt.Sprint(len(all)))
				all = append(all, m)
				continue
			case kind < 5:
				a.IDs = []inbox.MessageID{all[e].id, all[len(all)/2].id}
				meant = func(i int) bool { return i == e || i == len(all)/2 }
			case kind == 5:
				a.Sender, a.Through = all[e].client, all[len(all)/3].id.Sequence
				meant = func(i int) bool { return all[i].client == all[e].client && i <= len(all)/3 }
			case kind == 6:
				a.Through = all[min(e, rng.IntN(4))].id.Sequence
				meant = func(i int) bool { return all[i].id.Sequence <= a.Through }
			default:
				s.Close()
				s = verifying(t, o)
				a.Filter, a.After = all[e].topic, all[len(all)*3/4].id.Sequence
				meant = func(i int) bool { return all[i].topic == all[e].topic && i > len(all)*3/4 }
			}
			n := 0
			for i := range all {
				if meant(i) && !all[i].read {
					all[i].read = true
					n++
				}
			}
			acknowledge(t, s, "a", a, n)
			var left []string
			first := slices.IndexFunc(all, func(m message) bool { return !m.read })
			if first < 0 {
				first = len(all)
			}
			for i, m := range all {
				if !m.read {
					left = append(left, fmt.Sprint(i))
				}
			}
			eventually(t, s.Store, map[string]int{"i": len(all) - first})
			wantTexts(t, "unread", pull(t, s, "a", inbox.Query{}).Entries, left...)
		}
	})
}
