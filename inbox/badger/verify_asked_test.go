package badger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// fillAsked makes a store in which a receiver has acknowledged some messages by asking, has
// copies of earlier ones, and what was read is kept, and leaves it closed.
func fillAsked(t *testing.T) *everything {
	t.Helper()
	x := &everything{dir: t.TempDir()}
	o := everythingOptions(x.dir)
	o.sweepEvery, o.Rewind = time.Hour, time.Hour
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(topic string, retain bool) {
		x.top = storeOne(t, s, &inbox.Envelope{Topic: topic, Client: "c", QoS: 1, Retain: retain, Payload: []byte{1}}).ID.Sequence
	}
	publish("r/1", true)
	publish("r/2", true)
	a := enter(t, s, "a", nil, sub("g/#", 1), sub("r/1", 1))
	if _, err := a.Subscribe(t.Context(), sub("r/2", 1)); err != nil { // in a block of its own
		t.Fatal(err)
	}
	for range 3 {
		publish("g/x", false)
		publish("g/y", false)
	}
	x.own = x.top
	if err := a.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Fatal(err)
	}
	x.a = a.Inbox.(*handle).incarnation
	for _, sel := range []inbox.Selection{{Filter: "g/x"}, {Sender: "c", Filter: "r/1"}} {
		if _, err := s.Acknowledge(t.Context(), "a", inbox.Acknowledgement{Selection: sel, Through: x.own}); err != nil {
			t.Fatal(err)
		}
	}
	err = s.do(t.Context(), "acknowledge, and read the clock", func(g *commitGroup) error {
		g.markAcked(x.a, marks{askedPair: singles(0, 2, 3)})
		g.readClock()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return x
}

// askedPair has two spans, up to 6.
var askedPair = pairOf("somebody", "else")

// storeOne stores a message, and waits.
func storeOne(t *testing.T, s *Store, e *inbox.Envelope) inbox.Receipt {
	t.Helper()
	e.Time = time.Now().UnixMilli()
	done := make(chan inbox.Receipt, 1)
	s.Append(t.Context(), e, func(r inbox.Receipt, err error) {
		if err != nil {
			t.Error(err)
		}
		done <- r
	})
	return <-done
}

// Each damage of what belongs to asking is found, and nothing but that.
func TestVerifyFindsFaultsOfAsking(t *testing.T) {
	x := fillAsked(t)
	key := ackedKey(x.a, askedPair, 6)
	acked := func(d *damager, inc incarnation, of pair, spans ...inbox.Span) {
		d.set(ackedKey(inc, of, spans[len(spans)-1].Through), appendAcked(nil, spans), 0)
	}
	version := func(d *damager, key []byte) {
		value := d.get(key)
		d.set(key, append([]byte{9}, value[1:]...), 0)
	}
	note := func(d *damager) []byte { return d.first([]byte{prefixBehind}) }
	now := time.Now().UnixMilli()
	clock := func(d *damager, at int64, upTo inbox.Position) {
		d.set(stampKey(at), stamp{at, upTo}.value(), 0)
	}
	for _, test := range []struct {
		name string
		do   func(d *damager)
		want []string // a part of each fault
	}{
		{"nothing", func(*damager) {}, nil},
		{"more of everything", func(d *damager) {
			acked(d, x.a, askedPair, inbox.Span{After: 7, Through: 8})
			acked(d, x.a, everyPair, inbox.Span{After: 0, Through: 2})
			clock(d, now+10_000, x.top)
		}, nil},

		{"piece cut", func(d *damager) { d.cut(key) }, []string{"damaged: read acknowledged: parse spans"}},
		{"piece of another version", func(d *damager) { version(d, key) }, []string{"damaged: read acknowledged: version 9"}},
		{"piece without an end", func(d *damager) { d.set(key, append(d.get(key), 1), 0) }, []string{"damaged: read acknowledged: end"}},
		{"empty piece", func(d *damager) { d.set(key, nil, 0) }, []string{"damaged: read acknowledged: 0 bytes"}},
		{"piece under another end", func(d *damager) { d.set(ackedKey(x.a, askedPair, 7), d.get(key), 0); d.drop(key) },
			[]string{"damaged: read acknowledged: end"}},
		{"piece under a longer key", func(d *damager) { d.set(append(ackedKey(x.a, askedPair, 6), 0), d.get(key), 0) },
			[]string{"damaged: key of 34 bytes"}},
		{"pieces that overlap", func(d *damager) { acked(d, x.a, askedPair, inbox.Span{After: 4, Through: 7}) },
			[]string{"damaged: acknowledged behind 4, and up to 6 in the piece before"}},
		{"pieces that touch", func(d *damager) { acked(d, x.a, askedPair, inbox.Span{After: 6, Through: 7}) },
			[]string{"damaged: acknowledged behind 6, and up to 6 in the piece before"}},
		{"piece beyond the numbers", func(d *damager) { acked(d, x.a, everyPair, inbox.Span{After: 3, Through: 1 << 40}) },
			[]string{"lost: acknowledged position 1099511627776 is beyond"}},
		{"piece of nobody", func(d *damager) { acked(d, nobody, askedPair, inbox.Span{After: 3, Through: 5}) },
			[]string{"stays: what is acknowledged of incarnation 999"}},

		{"clock cut", func(d *damager) { d.cut(d.first([]byte{prefixStamp})) }, []string{"damaged: read clock: 8 bytes"}},
		{"clock of another version", func(d *damager) { version(d, d.first([]byte{prefixStamp})) }, []string{"damaged: read stamp: version 9"}},
		{"clock that goes back", func(d *damager) { clock(d, now+10_000, x.top-1) }, []string{"damaged: read clock: up to"}},
		{"clock beyond the numbers", func(d *damager) { clock(d, now+10_000, 1<<40) }, []string{"lost: number 1099511627776 is beyond"}},
		{"clock under a shorter key", func(d *damager) { d.set([]byte{prefixStamp, 1}, stamp{upTo: 1}.value(), 0) },
			[]string{"damaged: key of 2 bytes"}},

		{"note cut", func(d *damager) { d.cut(note(d)) }, []string{"damaged: read numbers of earlier messages"}},
		{"note of another version", func(d *damager) { version(d, note(d)) }, []string{"damaged: read numbers of earlier messages: version 9"}},
		{"note dropped", func(d *damager) { d.drop(note(d)) }, []string{"lost: block has messages that were stored before"}},
		{"note of other numbers", func(d *damager) { d.set(note(d), idRange{7, 9}.append(nil), 0) },
			[]string{"lost: block has messages that were stored before"}},
		{"note of no block", func(d *damager) { d.set(behindKey(x.a, 1), idRange{1, 1}.append(nil), 0) },
			[]string{"stays: a block up to 1 is noted, which is not there"}},
		{"note of nobody", func(d *damager) { d.set(behindKey(nobody, 1), idRange{1, 1}.append(nil), 0) },
			[]string{"stays: numbers of earlier messages of incarnation 999", "stays: a block up to 1 is noted"}},
		{"note that its block is not marked by", func(d *damager) {
			block := blockKey(x.a, inbox.Position(keyNumber(note(d))))
			d.set(block, d.get(block), 0)
		}, []string{"stays: block is not marked"}},
		{"block dropped, and its note not", func(d *damager) { d.drop(blockKey(x.a, inbox.Position(keyNumber(note(d))))) },
			[]string{"stays: a block up to"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := x.copied(t)
			damage(t, dir, test.do)
			_, faults := verifyAll(t, dir)
			ok := len(faults) == len(test.want)
			for i := range test.want {
				ok = ok && strings.Contains(fmt.Sprint(faults), test.want[i])
			}
			if !ok {
				t.Errorf("faults %q, want %q", faults, test.want)
			}
		})
	}
}
