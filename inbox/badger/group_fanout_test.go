package badger_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// overlapping opens a store in which three filters have streams and two others
// have none, and returns the subscriptions to all five, which match g/a/x.
func overlapping(t *testing.T, dir string) (*badger.Store, []inbox.Subscription) {
	t.Helper()
	o := badger.Options{Dir: dir, StreamFrom: -1, Pull: []string{"g/a/x", "g/+/x", "g/#"}}
	return openKeeping(t, o), []inbox.Subscription{
		{Filter: "g/a/x", QoS: 1, Identifier: 1},
		{Filter: "g/+/x", QoS: 2, Identifier: 2, RetainAsPublished: true},
		{Filter: "g/#", QoS: 1, Identifier: 3},
		{Filter: "+/a/x", QoS: 1, Identifier: 4},
		{Filter: "+/+/x", QoS: 0, Identifier: 5},
	}
}

// linked opens an inbox that takes live messages too, and keeps the session.
func linked(t *testing.T, s inbox.Store, r inbox.Receiver) *link {
	t.Helper()
	l, _, err := openLink(s, r, inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What several streams and own subscriptions bring is one entry with what all of
// them grant, whether it is handed over or read from disk, and read again.
func TestOneEntryFromManySources(t *testing.T) {
	dir := t.TempDir()
	s, subs := overlapping(t, dir)
	defer func() { s.Close() }()
	online := linked(t, s, "online")
	subscribeTo(t, online, subs...)
	offline := linked(t, s, "offline")
	subscribeTo(t, offline, subs...)
	leave(t, offline, inbox.ExpiryNever)
	aside := linked(t, s, "aside") // whose own subscription keeps nothing
	subscribeTo(t, aside, subs[0], subs[1], subs[2], subs[4])

	check := func(l *link, identifiers ...uint32) {
		t.Helper()
		got, err := l.take(2)
		if err != nil {
			t.Fatal(err)
		}
		again, err := l.Read(background, []inbox.Position{got[0].Position, got[1].Position})
		if err != nil || len(again) != 2 {
			t.Fatalf("read again: %+v, %v", again, err)
		}
		for i, e := range slices.Concat(got, again) {
			want := inbox.Grant{QoS: 2, Retain: true, Identifiers: identifiers}
			if string(e.Envelope.Payload) != fmt.Sprint("m", i%2) || !sameGrant(e.Grant, want) {
				t.Errorf("entry %d: %s with %+v, want %+v", i, e.Envelope.Payload, e.Grant, want)
			}
		}
	}
	for i := range 2 {
		publish(t, s, &inbox.Envelope{Topic: "g/a/x", QoS: 2, Retain: true, Payload: fmt.Append(nil, "m", i)})
	}
	pages := s.Stats().Pages
	check(online, 1, 2, 3, 4, 5)
	check(aside, 1, 2, 3, 5)
	if n := s.Stats().Pages - pages; n > 0 {
		t.Errorf("%d pages were read from disk for who was online", n)
	}
	check(linked(t, s, "offline"), 1, 2, 3, 4, 5)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ = overlapping(t, dir)
	check(linked(t, s, "online"), 1, 2, 3, 4, 5) // nothing was saved
	check(linked(t, s, "aside"), 1, 2, 3, 5)
}

// However long the fan-out takes, no more than its bounds waits for it, and
// everybody gets the same in the end: from disk, and whole.
func TestFanoutIsBounded(t *testing.T) {
	for name, load := range map[string]struct{ messages, size int }{"items": {6000, 10}, "bytes": {600, 40_000}} {
		t.Run(name, func(t *testing.T) {
			s, subs := overlapping(t, t.TempDir())
			defer s.Close()
			a := linked(t, s, "a")
			subscribeTo(t, a, subs...)
			b := linked(t, s, "b")
			subscribeTo(t, b, subs[0], subs[1], subs[4])
			release := holdFanout(t, s)
			defer release()
			var stored sync.WaitGroup
			for i := range load.messages {
				stored.Add(1)
				e := &inbox.Envelope{Topic: "g/a/x", QoS: 1, Payload: append(fmt.Append(nil, i, " "), make([]byte, load.size)...)}
				s.Append(background, e, func(_ inbox.Receipt, err error) {
					if err != nil {
						t.Error(err)
					}
					stored.Done()
				})
			}
			stored.Wait()
			const more = 16 // one message, and the news for each
			if items, bytes := s.FanoutLoad(); items > badger.FanoutItems+more || bytes > badger.FanoutBytes || items < 100 {
				t.Errorf("%d steps with %d bytes wait for the fan-out", items, bytes)
			}
			release()
			for l, identifiers := range map[*link][]uint32{a: {1, 2, 3, 4, 5}, b: {1, 2, 5}} {
				for n := 0; n < load.messages; {
					got, err := l.take(min(500, load.messages-n))
					if err != nil {
						t.Fatal(err)
					}
					for i, e := range got {
						if at := fmt.Sprint(n+i, " "); string(e.Envelope.Payload[:len(at)]) != at || !slices.Equal(e.Identifiers, identifiers) {
							t.Fatalf("entry %d is %.6s with %d, want %d", n+i, e.Envelope.Payload, e.Identifiers, identifiers)
						}
					}
					l.acknowledge(l.state().Open...)
					n += len(got)
				}
			}
		})
	}
}

// holdFanout has a receiver take a live message for as long as the test wants.
func holdFanout(t *testing.T, s *badger.Store) (release func()) {
	t.Helper()
	gate, held := make(chan struct{}), make(chan struct{}, 1)
	in, _, err := s.Open(background, "gate", inbox.OpenOptions{Expiry: inbox.ExpiryNever, Live: func(inbox.Entry) {
		held <- struct{}{}
		<-gate
	}})
	if err != nil {
		t.Fatal(err)
	}
	subscribeTo(t, in, inbox.Subscription{Filter: "g/gate", QoS: 1})
	publish(t, s, &inbox.Envelope{Topic: "g/gate"})
	<-held
	return sync.OnceFunc(func() { close(gate) })
}

// One of very many who are online does not read. It holds up nobody, and gets
// everything later.
func TestOneOfManyDoesNotRead(t *testing.T) {
	const members, messages = 300, 1200 // more than a receiver holds in memory
	s := sweepingStreams(t, t.TempDir())
	defer s.Close()
	all := make([]*receiver, members)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = connect(t, s, inbox.Receiver(fmt.Sprint("m", i)), inbox.ExpiryNever, "g") })
	}
	wg.Wait()
	for _, c := range all[1:] {
		wg.Go(func() { readThrough(t, c, messages) })
	}
	for i := range messages {
		s.Append(background, &inbox.Envelope{Topic: "g", QoS: 1, Payload: fmt.Append(nil, i)}, func(_ inbox.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if items, bytes := s.FanoutLoad(); items > badger.FanoutItems+1 || bytes > badger.FanoutBytes {
			t.Fatalf("%d steps with %d bytes wait for the fan-out", items, bytes)
		}
	}
	wg.Wait()
	if n := s.Keys()["i"]; n == 0 {
		t.Error("nothing is left for who has not read")
	}
	readThrough(t, all[0], messages)
	eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0})
}

// readThrough reads and acknowledges so many numbers in order. Any goroutine calls
// it.
func readThrough(t *testing.T, c *receiver, messages int) {
	for n := 0; n < messages; {
		page, err := c.Next(background, 200, 1<<20)
		if err != nil {
			t.Error(err)
			return
		}
		var ids []uint16
		c.mu.Lock()
		for _, e := range page {
			if string(e.Envelope.Payload) != fmt.Sprint(n) {
				t.Errorf("entry %d is %s", n, e.Envelope.Payload)
			}
			ids = append(ids, c.window.Send(e.Position, e.QoS))
			n++
		}
		c.mu.Unlock()
		c.finish(ids...)
	}
}
