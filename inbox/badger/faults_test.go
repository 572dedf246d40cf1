package badger_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// A byte that has changed in a table is told when the store opens: Badger's
// iterators would end there as if the inbox did.
func TestFlippedByteInTable(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir)
	name := firstTable(t, dir)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 100, len(good) / 4, len(good) / 2} {
		bad := append([]byte(nil), good...)
		bad[at] ^= 0x55
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := badger.Open(badger.Options{Dir: dir, Reserve: -1, Log: quiet()})
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, inbox.ErrDamaged) {
			t.Errorf("byte %d of %d changed: open: %v, want ErrDamaged", at, len(good), err)
		}
	}
}

// gated is an inbox whose save holds up the committer until the gate opens, as
// a disk that stalls does.
func gated(t *testing.T, s inbox.Store) (open func()) {
	t.Helper()
	gate, held := make(chan struct{}), make(chan struct{}, 1)
	in, _, err := s.Open(background, "gate", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: func() inbox.State {
		select {
		case held <- struct{}{}:
		default:
		}
		<-gate
		return inbox.State{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	in.Save(func(error) {})
	<-held
	return sync.OnceFunc(func() { close(gate) })
}

// appendAll appends messages of some sizes while the committer is held up, so
// that they are one group, and waits until they are stored.
func appendAll(t *testing.T, s inbox.Store, sizes ...int) {
	t.Helper()
	open := gated(t, s)
	defer open()
	var wg sync.WaitGroup
	for _, n := range sizes {
		wg.Add(1)
		s.Append(background, &inbox.Envelope{Topic: "t", QoS: 1, Payload: make([]byte, n)}, func(_ inbox.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		})
	}
	open()
	wg.Wait()
}

// No value is so large that it goes to Badger's value log, which gives nothing
// back.
func TestNothingInTheValueLog(t *testing.T) {
	dir := t.TempDir()
	s := sweeping(t, dir)
	defer s.Close()
	connect(t, s, "a", inbox.ExpiryNever, "#")
	for range 5 {
		appendAll(t, s, 10, 20_000, 20_000, 20_000, 1<<20-1<<10-100)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.vlog"))
	if err != nil || len(names) == 0 {
		t.Fatalf("value logs %v, %v", names, err)
	}
	for _, name := range names {
		f, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		const header = 20
		for i, c := range f[header:] {
			if c != 0 {
				t.Fatalf("%s has something at byte %d", name, header+i)
			}
		}
	}
}

// What is promised to a receiver in memory counts against its bound before it is
// handed over.
func TestPromisesAreBounded(t *testing.T) {
	s := sweeping(t, t.TempDir())
	defer s.Close()
	a := connect(t, s, "a", inbox.ExpiryAtOnce, "#") // reads nothing
	sizes := make([]int, 14)
	for i := range sizes {
		sizes[i] = 1_000_000
	}
	appendAll(t, s, sizes...)
	page, err := a.Next(background, len(sizes), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if len(page) > 2 {
		t.Errorf("%d MB in memory for a receiver that does not read", len(page))
	}
}

// A connection gives its session back also when the disk stalls and the queue is
// full for longer than it can wait.
func TestCloseWhileTheQueueIsFull(t *testing.T) {
	s := sweeping(t, t.TempDir())
	defer s.Close()
	a := connect(t, s, "a", inbox.ExpiryAtOnce, "#")
	open := gated(t, s)
	defer open()

	full, stop := context.WithCancel(background)
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		for full.Err() == nil {
			s.Append(full, &inbox.Envelope{Topic: "nobody", QoS: 1}, func(inbox.Receipt, error) {})
		}
	}()
	short, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	if err := a.Close(short, inbox.Ending{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("close: %v, want DeadlineExceeded", err)
	}
	stop()
	<-filled
	open()
	for sess, err := range s.Sessions(background) {
		if err != nil {
			t.Fatal(err)
		}
		if sess.Receiver == "a" {
			t.Errorf("the session is still there: %+v", sess)
		}
	}
}
