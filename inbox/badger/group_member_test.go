package badger_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// sweepingStreams opens a store that has a stream for each filter, and sweeps all
// the time.
func sweepingStreams(t testing.TB, dir string) *badger.Store {
	t.Helper()
	s, err := badger.OpenSweeping(badger.Options{Dir: dir, Pull: []string{"#"}, Reserve: -1, Retention: -1, Log: quiet()}, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// say publishes one message for each text.
func say(t testing.TB, s inbox.Store, topic string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		publish(t, s, &inbox.Envelope{Topic: topic, QoS: 1, Payload: []byte(text)})
	}
}

// finishAll reads what is said and acknowledges it.
func finishAll(t testing.TB, c *receiver, want ...string) {
	t.Helper()
	ids, entries := c.take(t, len(want))
	if got := texts(entries); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	c.finish(ids...)
}

// A member that is behind reads through: a stream, the references that it had
// while there was none, and the stream again.
func TestBehindAStreamThatClosesAndOpens(t *testing.T) {
	o := badger.Options{Dir: t.TempDir(), StreamFrom: 8}
	s := openKeeping(t, o)
	defer func() { s.Close() }()
	var want []string
	behind := connect(t, s, "behind", inbox.ExpiryNever, "g")
	leave(t, behind, inbox.ExpiryNever)
	var others []*receiver
	for i := range 7 {
		others = append(others, connect(t, s, inbox.Receiver(fmt.Sprint("other", i)), inbox.ExpiryNever))
	}
	for round := range 6 {
		open := round%2 == 1
		for _, c := range others {
			if open {
				subscribeTo(t, c, inbox.Subscription{Filter: "g", QoS: 1})
			} else {
				unsubscribe(t, c, "g")
			}
		}
		if now := s.Groups(); now.Open != round%2 {
			t.Fatalf("round %d: streams %+v", round, now)
		}
		for i := range 3 {
			text := fmt.Sprintf("%d.%d", round, i)
			want = append(want, text)
			say(t, s, "g", text)
		}
	}
	s = reopen(t, s, o)
	connect(t, s, "behind", inbox.ExpiryNever, "drain/end")
	got := drain(t, s, "behind")
	if !slices.Equal(texts(got), want) || !slices.IsSortedFunc(got, func(a, b inbox.Entry) int { return int(a.Position) - int(b.Position) }) {
		t.Errorf("got %q, want %q", texts(got), want)
	}
}

// What was sent and not acknowledged stays when its subscription is left and made
// again, whatever others have finished; what was not sent does not.
func TestLeaveWithOpenEntries(t *testing.T) {
	dir := t.TempDir()
	s := sweepingStreams(t, dir)
	defer func() { s.Close() }()
	a := connect(t, s, "a", inbox.ExpiryNever, "g")
	b := connect(t, s, "b", inbox.ExpiryNever, "g")
	say(t, s, "g", "open 1", "open 2", "unread")
	_, entries := a.take(t, 2)
	unsubscribe(t, a, "g")
	say(t, s, "g", "away")
	subscribeTo(t, a, inbox.Subscription{Filter: "g", QoS: 1, Identifier: 7})
	say(t, s, "g", "later")
	finishAll(t, b, "open 1", "open 2", "unread", "away", "later")
	leave(t, a, inbox.ExpiryNever)
	leave(t, b, inbox.ExpiryNever)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = sweepingStreams(t, dir)
	settled(t, s, 5)
	a = connect(t, s, "a", inbox.ExpiryNever)
	if open := a.state().Open; len(open) != 2 || open[0].Position != entries[0].Position {
		t.Fatalf("open is %+v", open)
	}
	got, err := a.Read(background, []inbox.Position{entries[0].Position, entries[1].Position})
	if err != nil || !slices.Equal(texts(got), []string{"open 1", "open 2"}) || got[0].Identifiers != nil {
		t.Fatalf("open entries read as %+v, %v", got, err)
	}
	ids, rest := a.take(t, 1)
	if !slices.Equal(texts(rest), []string{"later"}) || !slices.Equal(rest[0].Identifiers, []uint32{7}) {
		t.Fatalf("then came %+v", rest)
	}
	a.finish(append(ids, a.state().Open[0].PacketID, a.state().Open[1].PacketID)...)
	eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0})
}

// settled lets the sweeper go round a few times.
func settled(t testing.TB, s *badger.Store, rounds int) {
	t.Helper()
	for range rounds {
		<-time.After(5 * time.Millisecond) // the sweeper's own time
		publish(t, s, &inbox.Envelope{Topic: "$nobody"})
	}
}

// A member that is behind changes its options again and again: each message comes
// once, with the options of its time. One change too many is refused, until the
// member has read on; what changes nothing is not.
func TestManyOptionsWhileBehind(t *testing.T) {
	dir := t.TempDir()
	s := sweepingStreams(t, dir)
	defer func() { s.Close() }()
	a := connect(t, s, "a", inbox.ExpiryNever)
	const changes = badger.MostSegments + 1 // the present options are not of the past
	option := func(i int) inbox.Subscription {
		return inbox.Subscription{Filter: "g", QoS: byte(1 + i%2), Identifier: uint32(i + 1)}
	}
	for i := range changes {
		subscribeTo(t, a, option(i))
		say(t, s, "g", fmt.Sprint(i+1))
	}
	if _, err := a.Subscribe(background, option(changes)); !errors.Is(err, inbox.ErrFull) {
		t.Errorf("one change more: %v, want ErrFull", err)
	}
	subscribeTo(t, a, option(changes-1))
	unsubscribe(t, a, "other")
	leave(t, a, inbox.ExpiryNever)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = sweepingStreams(t, dir)
	a = connect(t, s, "a", inbox.ExpiryNever)
	ids, got := a.take(t, changes)
	for i, e := range got {
		if want := option(i); string(e.Envelope.Payload) != fmt.Sprint(i+1) || e.QoS != min(want.QoS, e.Envelope.QoS) || !slices.Equal(e.Identifiers, []uint32{want.Identifier}) {
			t.Errorf("entry %d is %s at QoS %d with %d, want %+v", i+1, e.Envelope.Payload, e.QoS, e.Identifiers, want)
		}
	}
	a.finish(ids...)
	eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0})
	subscribeTo(t, a, option(changes))
}

// Who comes and goes as often is refused too, and gets nothing of what was
// published while it was not subscribed.
func TestManyAbsencesWhileBehind(t *testing.T) {
	s := sweepingStreams(t, t.TempDir())
	defer s.Close()
	connect(t, s, "b", inbox.ExpiryNever, "g") // keeps the stream
	a := connect(t, s, "a", inbox.ExpiryNever, "g")
	say(t, s, "g", "open")
	ids, _ := a.take(t, 1)
	var err error
	for n := 0; err == nil; n++ {
		if n > 2*badger.MostSegments {
			t.Fatal("it is never refused")
		}
		unsubscribe(t, a, "g")
		say(t, s, "g", "away")
		if _, err = a.Subscribe(background, inbox.Subscription{Filter: "g", QoS: 1}); err == nil {
			say(t, s, "g", "unread")
		}
	}
	if !errors.Is(err, inbox.ErrFull) {
		t.Errorf("one time too many: %v, want ErrFull", err)
	}
	a.finish(ids...)
	for n := 0; err != nil; n++ {
		if n > 1000 {
			t.Fatal("it is still refused")
		}
		say(t, s, "mine", "own")
		settled(t, s, 1)
		_, err = a.Subscribe(background, inbox.Subscription{Filter: "g", QoS: 1})
	}
	say(t, s, "g", "again")
	if _, got := a.take(t, 1); string(got[0].Envelope.Payload) != "again" {
		t.Errorf("it got %s", got[0].Envelope.Payload)
	}
}

// The slowest member holds up the deletion, and does not when it is gone, or when
// it has left and read to its end.
func TestSlowestMemberGoes(t *testing.T) {
	for name, goes := range map[string]func(*testing.T, *badger.Store, *receiver){
		"session ends": func(t *testing.T, _ *badger.Store, slow *receiver) { leave(t, slow, inbox.ExpiryAtOnce) },
		"session anew": func(t *testing.T, s *badger.Store, _ *receiver) {
			if _, _, err := s.Open(background, "slow", inbox.OpenOptions{Fresh: true, Expiry: inbox.ExpiryNever}); err != nil {
				t.Fatal(err)
			}
		},
		"unsubscribes": func(t *testing.T, s *badger.Store, slow *receiver) {
			unsubscribe(t, slow, "g")
			say(t, s, "own", "end")
			finishAll(t, slow, "end")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := sweepingStreams(t, t.TempDir())
			defer s.Close()
			slow := connect(t, s, "slow", inbox.ExpiryNever, "g", "own")
			var others []*receiver
			for i := range 4 {
				others = append(others, connect(t, s, inbox.Receiver(fmt.Sprint("other", i)), inbox.ExpiryNever, "g"))
			}
			for i := range 20 {
				say(t, s, "g", fmt.Sprint(i))
				for _, c := range others {
					finishAll(t, c, fmt.Sprint(i))
				}
			}
			settled(t, s, 5)
			if n := s.Keys()["i"]; n != 20 {
				t.Fatalf("%d blocks, want 20 that the slowest has not read", n)
			}
			goes(t, s, slow)
			eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0})
		})
	}
}

// Who is not to have its own messages does not hold them up for deletion, by
// however many filters that is.
func TestOwnMessagesAreNotHeldUp(t *testing.T) {
	for name, filters := range map[string][]string{"one": {"g/#"}, "two": {"g/#", "g/+"}} {
		for _, also := range []string{"", "+/a"} {
			t.Run(name+" beside "+also, func(t *testing.T) {
				s := sweepingStreams(t, t.TempDir())
				defer s.Close()
				a := connect(t, s, "a", inbox.ExpiryNever)
				for _, f := range filters {
					subscribeTo(t, a, inbox.Subscription{Filter: f, QoS: 1, NoLocal: true})
				}
				if also != "" {
					subscribeTo(t, a, inbox.Subscription{Filter: also, QoS: 0})
				}
				b := connect(t, s, "b", inbox.ExpiryNever, filters...)
				for i := range 20 {
					publish(t, s, &inbox.Envelope{Topic: "g/a", QoS: 1, Client: "a", Payload: fmt.Append(nil, i)})
					finishAll(t, b, fmt.Sprint(i))
				}
				eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0})
			})
		}
	}
}
