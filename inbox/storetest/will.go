package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// far is a delay that no test waits for, in seconds.
const far = 3600

func willOf(topic, payload string, delay uint32) *inbox.Will {
	e := message(topic, 1, payload)
	e.Time = 0
	return &inbox.Will{Envelope: e, Delay: delay}
}

// mourner is who gets the wills of a test, on "will/#".
func (tr *trial) mourner() *client {
	tr.Helper()
	c := tr.connect("mourner", lasting)
	c.subscribe("will/#", 2)
	return c
}

func (tr *trial) connectMortal(r inbox.Receiver, expiry inbox.Expiry, will *inbox.Will) *client {
	tr.Helper()
	return tr.connectWith(r, inbox.OpenOptions{Expiry: expiry, Will: will})
}

// sorted are the payloads in order, for messages that come in any.
func sorted(entries []inbox.Entry) []string {
	out := payloads(entries)
	slices.Sort(out)
	return out
}

func willWithoutGoodbye(tr *trial) {
	absent := tr.connect("absent", lasting)
	absent.subscribe("will/+", 1)
	absent.close(lasting)
	zero := tr.connect("zero", lasting)
	zero.subscribe("will/+", 0)
	mourner := tr.mourner()
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		name := inbox.Receiver(fmt.Sprint("c", expiry))
		own := tr.connectMortal(name, expiry, willOf("will/c", "goodbye "+string(name), 0))
		own.subscribe("will/c", 1)
		own.leave(inbox.Ending{Expiry: expiry, Goodbye: true})
		own = tr.connectMortal(name, expiry, willOf("will/c", string(name), 0))
		own.subscribe("will/c", 1)
		own.close(expiry)
		mourner.expect(string(name))
		same(tr, "heard", payloads(zero.heard(1)), []string{string(name)})
	}
	tr.connect("c"+"0", lasting).only()
	tr.connect("c"+"3600", lasting).expect("c3600", "c0") // its own as well: it is subscribed
	mourner.only()
	tr.connect("absent", lasting).only("c3600", "c0")
}

func willDelayed(tr *trial) {
	mourner := tr.mourner()
	c := tr.connectMortal("c", lasting, willOf("will/c", "m", 1))
	begin := time.Now()
	c.close(lasting)
	e := mourner.expect("m")[0]
	if waited := time.Since(begin); waited < time.Second-time.Millisecond {
		tr.Fatalf("the will came after %v, its delay is 1 s", waited)
	}
	if at := time.UnixMilli(e.Envelope.Time); at.Before(begin) {
		tr.Fatalf("the will has time %v, it is from after %v", at, begin)
	}
	if got := tr.sessions()["c"]; got.Receiver != "c" {
		tr.Fatal("the session ended with its will")
	}
	tr.connect("c", lasting).close(lasting) // has none any more
	tr.restart()
	mourner = tr.connect("mourner", lasting)
	mourner.only("m")
}

// A link that comes in time holds the will back; the one it brings counts.
func willHeldBack(tr *trial) {
	tr.mourner()
	tr.connectMortal("resumed", lasting, willOf("will/c", "resumed", 2)).close(lasting)
	tr.connectMortal("resumed", lasting, nil)
	tr.connectMortal("restarted", lasting, willOf("will/c", "restarted", 4)).close(lasting)
	tr.restart()
	mourner := tr.connect("mourner", lasting)
	tr.connectMortal("restarted", lasting, nil).close(lasting)
	tr.connectMortal("replaced", lasting, willOf("will/c", "replaced", 2))
	tr.connectMortal("replaced", lasting, willOf("will/c", "in its place", 0)).close(lasting)
	mourner.expect("in its place")
	tr.connectMortal("removed", lasting, willOf("will/c", "removed", 0))
	tr.connectMortal("removed", lasting, nil).close(lasting)
	left := tr.connectMortal("goodbye", lasting, willOf("will/c", "goodbye", 2))
	left.leave(inbox.Ending{Expiry: lasting, Goodbye: true})
	// The last one comes when all the others would have come.
	tr.connectMortal("last", lasting, willOf("will/c", "last", 4)).close(lasting)
	mourner.expect("last")
	mourner.only()
}

// The end of the session does not wait for the delay.
func willSessionEnds(tr *trial) {
	mourner := tr.mourner()
	tr.connectMortal("fresh", lasting, willOf("will/c", "fresh", far))
	tr.connectFresh("fresh", lasting)
	mourner.expect("fresh")
	tr.connectMortal("fresh again", lasting, willOf("will/c", "fresh again", far)).close(lasting)
	tr.connectFresh("fresh again", lasting).close(lasting)
	mourner.expect("fresh again")
	tr.connectMortal("at once", lasting, willOf("will/c", "at once", far)).close(inbox.ExpiryAtOnce)
	mourner.expect("at once")
	tr.connectMortal("linked", inbox.ExpiryAtOnce, willOf("will/c", "linked", far)).close(inbox.ExpiryAtOnce)
	mourner.expect("linked")
	tr.connectMortal("taken over", inbox.ExpiryAtOnce, willOf("will/c", "taken over", far))
	tr.connect("taken over", inbox.ExpiryAtOnce)
	mourner.expect("taken over")
	begin := time.Now()
	tr.connectMortal("expired", lasting, willOf("will/c", "expired", far)).close(1)
	mourner.expect("expired")
	if waited := time.Since(begin); waited < time.Second-time.Millisecond {
		tr.Fatalf("the will came after %v, the session lasts 1 s", waited)
	}
	mourner.only()
}

// The end of the process is no goodbye. What is due comes once, however often
// the store is opened.
func willRestarted(tr *trial) {
	tr.mourner()
	tr.connectMortal("connected", lasting, willOf("will/c", "connected", 0))
	tr.connectMortal("linked", inbox.ExpiryAtOnce, willOf("will/c", "linked", far))
	resumed := tr.connect("last link", lasting)
	resumed.close(lasting)
	tr.connectMortal("last link", inbox.ExpiryAtOnce, willOf("will/c", "last link", far))
	tr.connectMortal("connected, delay", lasting, willOf("will/c", "connected, delay", 1))
	tr.connectMortal("closed, delay", lasting, willOf("will/c", "closed, delay", 1)).close(lasting)
	tr.connectMortal("closed, expiry", lasting, willOf("will/c", "closed, expiry", far)).close(1)
	tr.connectMortal("later", lasting, willOf("will/c", "later", far))
	gone := tr.connectMortal("goodbye", lasting, willOf("will/c", "goodbye", 0))
	gone.leave(inbox.Ending{Expiry: lasting, Goodbye: true})
	want := []string{"closed, delay", "closed, expiry", "connected", "connected, delay", "last link", "linked"}
	for range 3 {
		tr.restart()
		got := tr.connect("mourner", lasting).take(len(want)) // nothing is finished, so it comes again
		same(tr, "wills", sorted(got), want)
	}
	c := tr.connect("mourner", lasting)
	same(tr, "wills", sorted(c.rest()), want)
	later := tr.connectMortal("later", lasting, nil)
	later.close(inbox.ExpiryAtOnce)
	c.only()
}

// A will that was due cannot be held back any more, though nobody looked at the
// time until now.
func willLateResume(tr *trial) {
	tr.mourner()
	tr.connectMortal("c", lasting, willOf("will/c", "m", 1)).close(lasting)
	due := time.Now().Add(1001 * time.Millisecond)
	tr.closeStore()
	tr.eventually("the will is due", func() bool { return time.Now().After(due) })
	tr.store = tr.open(tr.T, tr.dir)
	tr.connect("c", lasting)
	tr.connect("mourner", lasting).only("m")
}

func willRetained(tr *trial) {
	tr.append(retain("will/there", 1, "before"), retain("will/removed", 1, "before"))
	for topic, payload := range map[string]string{"will/new": "m", "will/there": "m", "will/removed": ""} {
		w := willOf(topic, payload, 0)
		w.Envelope.Retain = true
		tr.connectMortal("c", inbox.ExpiryAtOnce, w).close(inbox.ExpiryAtOnce)
	}
	w := willOf("will/process", "m", far)
	w.Envelope.Retain = true
	tr.connectMortal("c", inbox.ExpiryAtOnce, w)
	tr.restart()
	tr.retains("will/new", "m", "will/there", "m", "will/process", "m")
}

// An expiry interval begins when the will is published.
func willExpiry(tr *trial) {
	mourner := tr.mourner()
	const interval = 60_000
	for _, delay := range []uint32{0, 1} {
		w := willOf("will/c", "m", delay)
		w.Envelope.Expiry = interval
		c := tr.connectMortal("c", lasting, w)
		begin := time.Now().UnixMilli() + int64(delay)*1000
		if c.close(lasting); delay > 0 {
			tr.restart()
			mourner = tr.connect("mourner", lasting)
			mourner.expect("m")
		}
		e := mourner.expect("m")[0].Envelope
		if end := time.Now().UnixMilli(); e.Expiry < begin+interval-1 || e.Expiry > end+interval || e.Expiry != e.Time+interval {
			tr.Fatalf("published between %d and %d with time %d and expiry %d", begin, end, e.Time, e.Expiry)
		}
	}
}

func willEveryField(tr *trial) {
	random := newRandom(tr)
	tr.mourner()
	n := size(40, 20)
	want := map[string]*inbox.Envelope{}
	for i := range n {
		e := randomEnvelope(random, fmt.Sprint("will/", i))
		e.Expiry = int64(i%2) * (1 << 40)
		kept := *e
		want[e.Topic] = &kept
		c := tr.connectMortal(inbox.Receiver(fmt.Sprint("c", i)), inbox.Expiry(i%3)*far, &inbox.Will{Envelope: e, Delay: uint32(i%4) * far})
		if i%4 == 0 {
			c.close(lasting)
		}
	}
	tr.restart()
	for i := range n {
		if i%3 > 0 && i%4 > 0 {
			tr.connectFresh(inbox.Receiver(fmt.Sprint("c", i)), lasting) // a pending will, read from disk
		}
	}
	mourner := tr.connect("mourner", lasting)
	for _, e := range mourner.take(n) {
		w := want[e.Envelope.Topic]
		if w == nil {
			tr.Fatalf("topic %q again", e.Envelope.Topic)
		}
		delete(want, e.Envelope.Topic)
		w.ID, w.Time = e.Envelope.ID, e.Envelope.Time
		if w.Expiry > 0 {
			w.Expiry += w.Time
		}
		sameEnvelope(tr, e.Envelope, w)
	}
	mourner.only()
}
