package storetest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// sessions lists the sessions, each of which must come once.
func (tr *trial) sessions() map[inbox.Receiver]inbox.Session {
	tr.Helper()
	all := map[inbox.Receiver]inbox.Session{}
	for s, err := range tr.store.Sessions(tr.ctx) {
		if err != nil {
			tr.Fatalf("sessions: %v", err)
		}
		if _, twice := all[s.Receiver]; twice {
			tr.Fatalf("session of %.40q is listed twice", s.Receiver)
		}
		all[s.Receiver] = s
	}
	return all
}

func sessionsList(tr *trial) {
	if got := tr.sessions(); len(got) != 0 {
		tr.Fatalf("a new store has sessions %+v", got)
	}
	begin := time.Now().UnixMilli()
	tr.connect("connected", 10)
	tr.connect("linked", inbox.ExpiryAtOnce)
	tr.connect("absent", 10).close(7)
	tr.connect("for ever", inbox.ExpiryNever).close(inbox.ExpiryNever)
	tr.connect("again", 10).close(10)
	tr.connect("again", 20)

	check := func(when string, want ...inbox.Session) {
		tr.Helper()
		got := tr.sessions()
		for _, w := range want {
			s := got[w.Receiver]
			if ended := s.Ended; !s.Connected && (ended < begin || ended > time.Now().UnixMilli()) {
				tr.Errorf("%s: %q ended at %d", when, w.Receiver, ended)
			} else if s.Connected && ended != 0 {
				tr.Errorf("%s: %q is connected and ended at %d", when, w.Receiver, ended)
			}
			s.Ended, s.Mode = 0, 0 // a clause of its own has the mode
			if s != w {
				tr.Errorf("%s: session %+v, want %+v", when, s, w)
			}
		}
		if len(got) != len(want) {
			tr.Errorf("%s: sessions of %q, want %d", when, slices.Sorted(maps.Keys(got)), len(want))
		}
	}
	check("at first",
		inbox.Session{Receiver: "connected", Expiry: 10, Connected: true},
		inbox.Session{Receiver: "linked", Expiry: inbox.ExpiryAtOnce, Connected: true},
		inbox.Session{Receiver: "absent", Expiry: 7},
		inbox.Session{Receiver: "for ever", Expiry: inbox.ExpiryNever},
		inbox.Session{Receiver: "again", Expiry: 20, Connected: true},
	)
	for range tr.store.Sessions(tr.ctx) {
		break // a reader may stop early
	}
	ended := tr.sessions()["absent"].Ended

	tr.restart()
	check("after a restart",
		inbox.Session{Receiver: "connected", Expiry: 10},
		inbox.Session{Receiver: "absent", Expiry: 7},
		inbox.Session{Receiver: "for ever", Expiry: inbox.ExpiryNever},
		inbox.Session{Receiver: "again", Expiry: 20},
	)
	if got := tr.sessions()["absent"].Ended; got != ended {
		tr.Errorf("the session that ended at %d says %d after a restart", ended, got)
	}
	tr.connect("absent", 30)
	check("connected again",
		inbox.Session{Receiver: "connected", Expiry: 10},
		inbox.Session{Receiver: "absent", Expiry: 30, Connected: true},
		inbox.Session{Receiver: "for ever", Expiry: inbox.ExpiryNever},
		inbox.Session{Receiver: "again", Expiry: 20},
	)
}

// Names that begin alike, hold separators or are very long: whatever is done to
// one inbox leaves the others alone.
func sessionsApart(tr *trial) {
	long := strings.Repeat("x", 64<<10-2)
	names := []inbox.Receiver{
		"a", "a:", "a/", "a/b", "a\x00", "a\x00\x00", "a\x01", "a\xff", "aa", "b", "\xff", "\xff\xff", "é", " ",
		inbox.Receiver(long), inbox.Receiver(long + "x"), inbox.Receiver(long + "y"), inbox.Receiver("y" + long),
	}
	want := map[inbox.Receiver][]string{}
	for i, r := range names {
		c := tr.connect(r, lasting)
		if c.resumed {
			tr.Fatalf("a session of %.40q was resumed", r)
		}
		c.add(inbox.Subscription{Filter: "all", QoS: 1, Identifier: uint32(i + 1)})
		tr.publish("all", "first")
		c.finish(c.expect("first")...)
		c.save()
		for _, before := range names[:i] {
			want[before] = append(want[before], "first")
		}
	}
	tr.publish("all", "last")
	for _, r := range names {
		want[r] = append(want[r], "last")
	}

	for len(names) > 0 {
		tr.restart()
		if got := len(tr.sessions()); got != len(names) {
			tr.Fatalf("%d sessions, want %d", got, len(names))
		}
		for i, r := range names {
			c := tr.connect(r, lasting)
			if !c.resumed {
				tr.Fatalf("the session of %.40q is gone", r)
			}
			c.expect(want[r]...)
			if i > 0 {
				continue
			}
			if len(names)%2 == 0 {
				c.close(inbox.ExpiryAtOnce)
			} else {
				tr.connectFresh(r, inbox.ExpiryAtOnce)
			}
		}
		names = names[1:]
	}
}
