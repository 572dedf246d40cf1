package storetest

import (
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// ends waits until a session is not listed any more, and fails if that was
// before its time, which is so many seconds after begin.
func (tr *trial) ends(r inbox.Receiver, begin time.Time, seconds int) {
	tr.Helper()
	tr.eventually("the session ends", func() bool {
		_, there := tr.sessions()[r]
		return !there
	})
	if waited := time.Since(begin); waited < time.Duration(seconds)*time.Second-time.Millisecond {
		tr.Fatalf("the session ended after %v, not %d s", waited, seconds)
	}
}

func expiryByItself(tr *trial) {
	other := tr.connect("other", lasting)
	other.subscribe("a", 1)
	other.close(lasting)
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", "m")
	begin := time.Now()
	c.close(1)
	tr.ends("c", begin, 1)
	matched(tr, tr.publish("a", "later")[0], 1)
	tr.forgotten("c", lasting)
	tr.restart()
	if c = tr.connect("c", lasting); !c.resumed {
		tr.Fatal("the new session is gone")
	}
	c.only()
	tr.connect("other", lasting).only("m", "later")
}

func expiryRestarted(tr *trial) {
	c := tr.connect("closed", lasting)
	begin := time.Now()
	c.close(1)
	tr.connect("connected", 1)
	tr.restart()
	tr.ends("closed", begin, 1)
	tr.ends("connected", begin, 1)
	tr.restart()
	if got := tr.sessions(); len(got) != 0 {
		tr.Fatalf("after another restart: %+v", got)
	}
}

func expiryWhileClosed(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", "m")
	c.close(1)
	over := time.Now().Add(1001 * time.Millisecond)
	tr.closeStore()
	tr.eventually("the time is over", func() bool { return time.Now().After(over) })
	tr.store = tr.open(tr.T, tr.dir)
	if got := tr.sessions(); len(got) != 0 {
		tr.Fatalf("sessions: %+v", got)
	}
	if _, err := tr.tryConnect("c", inbox.OpenOptions{Resume: true}); err == nil {
		tr.Fatal("the session was resumed")
	}
	tr.forgotten("c", lasting)
}

// A session whose receiver stays away ends in time though the store is opened
// again and again, whether the receiver or the process left the other.
func expiryNotProlonged(tr *trial) {
	for _, close := range []bool{true, false} {
		c := tr.connect("c", 2)
		begin := time.Now()
		if close {
			c.close(2)
		}
		tr.restart()
		ended := tr.sessions()["c"].Ended
		for {
			again := begin.Add(time.Since(begin) + 300*time.Millisecond)
			tr.eventually("some time passes", func() bool { return time.Now().After(again) })
			tr.restart()
			s, there := tr.sessions()["c"]
			if !there {
				break
			}
			if s.Ended != ended {
				tr.Fatalf("ended at %d, after another restart %d", ended, s.Ended)
			}
		}
		if waited := time.Since(begin); waited < 2*time.Second-time.Millisecond {
			tr.Fatalf("the session ended after %v, not 2 s", waited)
		}
	}
}

// Each link says anew how long the session lasts, and a timer of an earlier one
// ends nothing.
func expiryChanges(tr *trial) {
	for _, r := range []inbox.Receiver{"longer", "connected", "for ever", "shorter"} {
		tr.connect(r, lasting).close(2)
	}
	tr.connect("longer", lasting).close(lasting)
	connected := tr.connect("connected", 1)
	tr.connect("for ever", lasting).close(inbox.ExpiryNever)
	for range 5 {
		tr.connect("shorter", lasting).close(lasting)
	}
	begin := time.Now()
	tr.connect("shorter", lasting).close(1)
	tr.connect("clock", lasting).close(3) // ends when the first timers have fired
	tr.ends("shorter", begin, 1)
	tr.ends("clock", begin, 3)
	if got := tr.sessions(); len(got) != 3 {
		tr.Fatalf("sessions: %+v", got)
	}
	connected.subscribe("a", 1)
	tr.publish("a", "m")
	connected.only("m")
}
