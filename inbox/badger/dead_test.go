package badger

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Field case 061: very many sessions under random ids that want everything and
// never come back. What they are sent costs once, and they go when their time is
// over, with everything that they had.
func TestManyDeadSessions(t *testing.T) {
	n := 100_000
	if raceEnabled {
		n = 20_000
	}
	dead := fleet{expiry: 24 * 3600, filter: func(inbox.Receiver) string { return "#" }}
	dir := t.TempDir()
	dead.fill(t, dir, n)
	s, err := OpenSweeping(dead.options(dir), 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	alive, _, err := s.Open(ctx, "alive", inbox.OpenOptions{Expiry: 3600})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alive.Subscribe(ctx, inbox.Subscription{Filter: "#", QoS: 1}); err != nil {
		t.Fatal(err)
	}

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const messages = 100
	done := make(chan inbox.Receipt, messages)
	for i := range messages {
		e := &inbox.Envelope{Topic: fmt.Sprint("t/", i), Payload: make([]byte, 1000), QoS: 1, Time: time.Now().UnixMilli()}
		s.Append(ctx, e, func(r inbox.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
			done <- r
		})
	}
	for range messages {
		if r := <-done; r.Matched < 2 {
			t.Errorf("message %v has %d receivers", r.ID, r.Matched)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("%d messages to %d sessions take %d bytes of memory", messages, n, grown)
	}
	if keys := s.Keys(); keys["i"] == 0 || keys["i"] > messages || keys["m"] > 0 {
		t.Errorf("%d blocks and %d bodies for %d messages: they are not stored once", keys["i"], keys["m"], messages)
	}

	for got := 0; got < messages; {
		page, err := alive.Next(ctx, messages, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		got += len(page)
	}
	if err := alive.Close(ctx, inbox.Ending{}); err != nil { // with the last one the stream ends
		t.Fatal(err)
	}
	for s.Timers() > 0 { // a day passes
		err := s.do(ctx, "pass time", func(g *commitGroup) error { g.now = g.now.Add(25 * time.Hour); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Eventually(t, func() bool { return !s.hasEnded(t) }, func() string { return fmt.Sprintf("%v are left", s.Keys()) })
	if keys := s.Keys(); keys["S"]+keys["u"]+keys["i"]+keys["p"]+keys["k"] > 0 {
		t.Errorf("%v are left", keys)
	}
}

// hasEnded reports whether sessions have ended of which something is there.
func (s *Store) hasEnded(t *testing.T) (some bool) {
	t.Helper()
	err := s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte{prefixPurge}})
		defer it.Close()
		it.Rewind()
		some = it.Valid()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return some
}
