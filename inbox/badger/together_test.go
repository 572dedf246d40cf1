package badger

import (
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// aside opens a store in which nobody queues anything but the test.
func aside(t *testing.T, change func(*Options)) (*Store, Options) {
	t.Helper()
	o := everythingOptions(t.TempDir())
	o.sweepEvery = time.Hour
	if change != nil {
		change(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, o
}

// A will that is stored and published in one group is not published again by the next
// process: as when a client connects twice, and is in memory only, or starts anew.
func TestWillIsStoredAndPublishedInOneGroup(t *testing.T) {
	for name, o := range map[string][2]inbox.OpenOptions{
		"in memory":    {{Expiry: inbox.ExpiryAtOnce}, {Expiry: inbox.ExpiryAtOnce}},
		"starts anew":  {{Expiry: inbox.ExpiryNever}, {Expiry: inbox.ExpiryNever, Fresh: true}},
		"first anew":   {{Expiry: inbox.ExpiryNever, Fresh: true}, {Expiry: inbox.ExpiryNever, Fresh: true}},
		"comes to end": {{Expiry: inbox.ExpiryAtOnce}, {Expiry: inbox.ExpiryNever}},
	} {
		t.Run(name, func(t *testing.T) {
			s, opts := aside(t, nil)
			for _, r := range []inbox.Receiver{"b", "c"} { // so that it has a body
				receiver := enter(t, s, r, nil, sub("will", 1))
				if err := receiver.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
					t.Fatal(err)
				}
			}
			will := &inbox.Will{Envelope: &inbox.Envelope{Topic: "will", QoS: 1, Client: "a", Payload: []byte("gone")}}
			err := s.do(t.Context(), "connect twice", func(g *commitGroup) error {
				o[0].Will = will
				if _, err := g.open("a", o[0]); err != nil {
					return err
				}
				_, err := g.open("a", o[1])
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := s.Keys()["w"]; n != 0 {
				t.Errorf("%d wills are stored", n)
			}
			closeSound(t, s, opts.Dir)
			if s, err = Open(opts); err != nil {
				t.Fatal(err)
			}
			page, err := s.Pull(t.Context(), "b", inbox.Query{Max: 10, MaxBytes: 1 << 20})
			if err != nil || len(page.Entries) != 1 {
				t.Errorf("the will is there %d times: %v", len(page.Entries), err)
			}
			closeSound(t, s, opts.Dir)
		})
	}
}

// A packet id that is forgotten and recorded again in one group is recorded.
func TestPacketIDIsForgottenAndRecordedInOneGroup(t *testing.T) {
	s, opts := aside(t, nil)
	enter(t, s, "b", nil, sub("x", 1))
	enter(t, s, "c", nil, sub("x", 1)) // so that it has a body
	a := enter(t, s, "a", nil)
	stored := make(chan inbox.Receipt, 3)
	publish := func(in inbox.Inbox) {
		in.Publish(t.Context(), 7, &inbox.Envelope{Topic: "x", QoS: 2, Client: "a"}, func(r inbox.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
			stored <- r
		})
	}
	publish(a)
	<-stored
	s.Together(func() {
		a.Complete(7, func(known bool, err error) {
			if err != nil || !known {
				t.Error(known, err)
			}
		})
		publish(a)
	})
	if r := <-stored; r.Duplicate {
		t.Error("taken for a repeat")
	}
	again, _, err := s.Open(t.Context(), "a", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: a.state})
	if err != nil {
		t.Fatal(err)
	}
	publish(again)
	if r := <-stored; !r.Duplicate {
		t.Error("stored twice")
	}
	closeSound(t, s, opts.Dir)
}

// Who leaves a stream, is forgotten there and joins again in one group has joined now, and
// not when it did the first time.
func TestStreamIsLeftAndJoinedInOneGroup(t *testing.T) {
	s, opts := aside(t, func(o *Options) { o.Rewind, o.Pull = time.Hour, []string{"x"} })
	enter(t, s, "b", nil, sub("x", 1)) // has the stream go on
	a := enter(t, s, "a", nil, sub("x", 1))
	h := a.Inbox.(*handle)
	err := s.do(t.Context(), "leave and join", func(g *commitGroup) error {
		g.unsubscribe(h, []string{"x"}, nil)
		g.streamsToSweep()
		e := &inbox.Envelope{Topic: "x", QoS: 1, Payload: []byte("between")}
		if _, err := g.append(e, inbox.AppendEnvelope(nil, e)); err != nil {
			return err
		}
		g.subscribe(h, sub("x", 1))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Open(t.Context(), "a", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: a.state, From: &inbox.Bound{}})
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Pull(t.Context(), "a", inbox.Query{Max: 10, MaxBytes: 1 << 20})
	if err != nil || len(page.Entries) != 0 {
		t.Errorf("%d messages: %v", len(page.Entries), err)
	}
	closeSound(t, s, opts.Dir)
}
