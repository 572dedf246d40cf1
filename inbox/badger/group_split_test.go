package badger_test

import (
	"fmt"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// A message for more members than a transaction takes is there for all or for none,
// whenever the process ends.
func TestSplitGroupIsWhole(t *testing.T) {
	const members = 20_000
	dir := t.TempDir()
	filter := badger.FillGroup(t, dir, members)
	o := badger.Options{Dir: dir, Push: []string{filter}}
	s := openKeeping(t, o)
	defer s.Close()
	var crashed []string
	err := s.AppendSplit(&inbox.Envelope{Topic: filter, QoS: 1, Payload: []byte("all")}, func() {
		crashed = append(crashed, t.TempDir())
		if err := copyDir(dir, crashed[len(crashed)-1]); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if keys := s.Keys(); keys["i"] != members || keys["m"] != 1 {
		t.Fatalf("keys %v", keys)
	}
	checkMembers(t, s, members, 1)

	for i, dir := range crashed {
		s := openKeeping(t, badger.Options{Dir: dir, Push: o.Push})
		if keys := s.Keys(); keys["m"] != 0 || keys["i"] == 0 || (keys["i"] == members) != (i > 0) {
			t.Errorf("crash %d left the keys %v: the test would test nothing", i, keys)
		}
		checkMembers(t, s, members, 0)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkMembers compares what some of the members have.
func checkMembers(t *testing.T, s *badger.Store, members, want int) {
	t.Helper()
	for i := 0; i < members; i += members / 10 {
		r := inbox.Receiver(fmt.Sprintf("device-%06d", i))
		connect(t, s, r, inbox.ExpiryNever, "drain/end")
		if got := drain(t, s, r); len(got) != want {
			t.Fatalf("%s has %q, want %d", r, texts(got), want)
		}
	}
}

// The last reader of a stream ends with it. Whenever the process ends, the store
// opens again, and nothing is left of those that are gone.
func TestSplitEndOfAStream(t *testing.T) {
	kept, gone := 0, 0
	for writes := range 8 {
		dir, crashed := t.TempDir(), t.TempDir()
		s := sweepingStreams(t, dir)
		a := connect(t, s, "a", inbox.ExpiryNever, "g", "g/+")
		leave(t, a, inbox.ExpiryNever)
		err := s.EndSplit("a", writes, func() {
			if err := copyDir(dir, crashed); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, s, map[string]int{"S": 0, "u": 0, "k": 0, "p": 0})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}

		s = sweepingStreams(t, crashed)
		if s.Keys()["S"] == 0 {
			gone++
		} else {
			kept++
		}
		leave(t, connect(t, s, "a", inbox.ExpiryNever), inbox.ExpiryAtOnce)
		eventually(t, s, map[string]int{"S": 0, "u": 0, "k": 0, "p": 0})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if kept == 0 || gone == 0 {
		t.Errorf("the session was there after %d crashes, and not after %d: the test would test nothing", kept, gone)
	}
}
