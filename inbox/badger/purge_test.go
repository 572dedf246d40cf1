package badger_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// An ended session leaves nothing, also if the process ends before it is purged.
func TestPurge(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir) // sweeps too late for this test
	a := connect(t, s, "a", inbox.ExpiryNever, "all", "x/+")
	b := connect(t, s, "b", inbox.ExpiryNever, "all")
	for range 3 {
		publish(t, s, &inbox.Envelope{Topic: "all", QoS: 1})
		publish(t, s, &inbox.Envelope{Topic: "x/1", QoS: 1})
	}
	if err := a.Close(background, inbox.Ending{Expiry: inbox.ExpiryAtOnce}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(background, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = sweeping(t, dir)
	defer s.Close()
	eventually(t, s, map[string]int{"S": 1, "u": 1, "i": 3, "m": 3, "p": 0, "k": 1})
	connect(t, s, "b", inbox.ExpiryAtOnce)
	connect(t, s, "b", inbox.ExpiryAtOnce) // takes over a session that now ends with its link
	eventually(t, s, map[string]int{"i": 0, "m": 0, "c": 0, "p": 0, "k": 0})
}

// Whatever ends a session, nothing of it is left: no will, no packet id, no
// membership, and no group of which it was the last.
func TestNothingLeft(t *testing.T) {
	ends := map[string]func(t *testing.T, s *badger.Store, dir string, a *receiver) *badger.Store{
		"closed": func(t *testing.T, s *badger.Store, _ string, a *receiver) *badger.Store {
			leave(t, a, inbox.ExpiryAtOnce)
			return s
		},
		"fresh": func(t *testing.T, s *badger.Store, _ string, _ *receiver) *badger.Store {
			in, _, err := s.Open(background, "a", inbox.OpenOptions{Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			leave(t, in, inbox.ExpiryAtOnce)
			return s
		},
		"expired": func(t *testing.T, s *badger.Store, _ string, a *receiver) *badger.Store {
			leave(t, a, 1)
			return s
		},
		"closed before a restart": func(t *testing.T, s *badger.Store, dir string, a *receiver) *badger.Store {
			leave(t, a, inbox.ExpiryAtOnce)
			return again(t, s, dir)
		},
		"expired over a restart": func(t *testing.T, s *badger.Store, dir string, a *receiver) *badger.Store {
			leave(t, a, 1)
			return again(t, s, dir)
		},
	}
	for name, end := range ends {
		for _, expiry := range []inbox.Expiry{inbox.ExpiryNever, inbox.ExpiryAtOnce} {
			t.Run(fmt.Sprint(name, ", expiry ", expiry), func(t *testing.T) {
				dir := t.TempDir()
				s := sweeping(t, dir)
				a := connect(t, s, "a", expiry, "all", "$share/g/all", "$share/g/x/#")
				in, _, err := s.Open(background, "a", inbox.OpenOptions{
					Expiry: expiry, State: a.state,
					Will: &inbox.Will{Envelope: &inbox.Envelope{Topic: "will", QoS: 1}, Delay: 3600},
				})
				if err != nil {
					t.Fatal(err)
				}
				a.Inbox = in
				for _, f := range []string{"all", "$share/g/all", "$share/g/x/#"} { // it may be a new session
					if _, err := a.Subscribe(background, inbox.Subscription{Filter: f, QoS: 2}); err != nil {
						t.Fatal(err)
					}
				}
				for id := range uint16(3) {
					done := make(chan error, 1)
					a.Publish(background, id+1, &inbox.Envelope{Topic: "all", QoS: 2}, func(_ inbox.Receipt, err error) { done <- err })
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				}
				ids, _ := a.take(t, 2)
				a.finish(ids[0])
				keys := s.Keys()
				if lasting := expiry != inbox.ExpiryAtOnce; keys["w"] != 1 || lasting && (keys["x"] != 3 || keys["S"] != 3) {
					t.Fatalf("keys %v: the test would test nothing", keys)
				}
				s = end(t, s, dir, a)
				defer func() { s.Close() }()
				eventually(t, s, map[string]int{"S": 0, "u": 0, "i": 0, "k": 0, "p": 0, "m": 0, "c": 0, "w": 0, "x": 0, "R": 0})
			})
		}
	}
}

func leave(t testing.TB, in inbox.Inbox, expiry inbox.Expiry) {
	t.Helper()
	if err := in.Close(background, inbox.Ending{Expiry: expiry}); err != nil {
		t.Fatal(err)
	}
}

func again(t testing.TB, s *badger.Store, dir string) *badger.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return sweeping(t, dir)
}

// Case 102: sessions are purged while others are published to: nothing that was
// acknowledged is missing afterwards, also over a restart, and nothing of the
// ended sessions is left.
func TestPurgeUnderLoad(t *testing.T) {
	dir := t.TempDir()
	s := sweeping(t, dir)
	a := connect(t, s, "a", inbox.ExpiryNever, "load/+", "drain/end")
	if err := a.Close(background, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Fatal(err)
	}

	const publishers, each = 4, 300
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				publish(t, s, &inbox.Envelope{Topic: fmt.Sprint("load/", p), QoS: 1, Payload: fmt.Appendf(nil, "%d %d", p, i)})
			}
		})
	}
	loaded := make(chan struct{})
	go func() { wg.Wait(); close(loaded) }()
	ended := 0
	for busy := true; busy; ended++ {
		b := connect(t, s, inbox.Receiver(fmt.Sprint("b", ended%25)), inbox.ExpiryNever, "load/0", "x/y")
		if err := b.Close(background, inbox.Ending{}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-loaded:
			busy = false
		default:
		}
	}
	if ended < 10 {
		t.Fatalf("%d sessions ended meanwhile: the test would test nothing", ended)
	}
	eventually(t, s, map[string]int{"S": 1, "u": 2, "p": 0})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = sweeping(t, dir)
	defer s.Close()
	next := make([]int, publishers)
	for _, e := range drain(t, s, "a") {
		var p, i int
		if _, err := fmt.Sscan(string(e.Envelope.Payload), &p, &i); err != nil {
			t.Fatal(err)
		}
		if next[p] != i {
			t.Fatalf("publisher %d: message %d, want %d", p, i, next[p])
		}
		next[p]++
	}
	for p, n := range next {
		if n != each {
			t.Errorf("publisher %d: %d messages, want %d", p, n, each)
		}
	}
	connect(t, s, "a", inbox.ExpiryAtOnce)
	connect(t, s, "a", inbox.ExpiryAtOnce) // ends what was there
	eventually(t, s, map[string]int{"u": 0, "i": 0, "m": 0, "c": 0, "p": 0})
}

// Case 089: the largest messages, for twenty absent receivers, are stored once.
func TestLargeMessagesAreStoredOnce(t *testing.T) {
	const receivers, messages, size = 20, 5, 880 << 10
	dir := t.TempDir()
	s := sweeping(t, dir)
	for i := range receivers {
		r := connect(t, s, inbox.Receiver(fmt.Sprint("r", i)), inbox.ExpiryNever, "large", "drain/end")
		if err := r.Close(background, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range messages {
		publish(t, s, &inbox.Envelope{Topic: "large", QoS: 1, Payload: bytes.Repeat([]byte{byte(i)}, size)})
	}
	if n := s.Keys()["m"]; n != messages {
		t.Errorf("%d bodies, want %d", n, messages)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = sweeping(t, dir)
	defer s.Close()
	for i := range receivers {
		got := drain(t, s, inbox.Receiver(fmt.Sprint("r", i)))
		if len(got) != messages {
			t.Fatalf("receiver %d: %d messages, want %d", i, len(got), messages)
		}
		for m, e := range got {
			if !bytes.Equal(e.Envelope.Payload, bytes.Repeat([]byte{byte(m)}, size)) {
				t.Fatalf("receiver %d: message %d is not what was published", i, m)
			}
		}
	}
}
