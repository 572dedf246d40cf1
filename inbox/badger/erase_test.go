package badger_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// crashes are copies of a running store: what its process would have left had it ended
// after one commit or another, while they are recorded.
type crashes struct {
	t         *testing.T
	dir       string
	recording atomic.Bool
	copies    []string                           // written by the committer
	then      atomic.Pointer[context.CancelFunc] // called by it; nil for nothing
}

// open opens the store, in which little is done in one commit, and nothing is swept but
// when the test says so.
func (c *crashes) open(o badger.Options) *badger.Store {
	c.t.Helper()
	o.Reserve, o.Retention, o.Log = -1, -1, quiet()
	s, err := badger.OpenInSteps(o, time.Hour, c.committed)
	if err != nil {
		c.t.Fatal(err)
	}
	c.dir = o.Dir
	return s
}

func (c *crashes) committed() {
	if then := c.then.Load(); then != nil {
		(*then)()
	}
	for c.recording.Load() {
		to := filepath.Join(c.t.TempDir(), "crashed")
		switch err := copyDir(c.dir, to); {
		case err == nil:
			c.copies = append(c.copies, to)
			return
		case !errors.Is(err, errMoved) && !errors.Is(err, fs.ErrNotExist):
			c.t.Error(err)
			return
		}
	}
}

// record records the crashes that could fall into something.
func (c *crashes) record(do func()) {
	c.recording.Store(true)
	do()
	c.recording.Store(false)
}

// sendAs publishes messages of two senders in turn, some at once.
func sendAs(t *testing.T, s *badger.Store, n int) {
	t.Helper()
	const atOnce = 20
	stored := make(chan error, atOnce)
	for i := range n {
		sender := []string{"someone", "another"}[i%2]
		s.Append(background, &inbox.Envelope{
			Topic: fmt.Sprintf("to/%s/%d", sender[:1], i/2%2), QoS: 1, Payload: []byte(sender), Client: sender, Retain: i%10 == 0,
			UserProperties: []inbox.UserProperty{{Key: inbox.PropertyMessageID, Value: fmt.Sprint(i)}},
		}, func(_ inbox.Receipt, err error) { stored <- err })
		if i%atOnce < atOnce-1 {
			continue
		}
		for range atOnce {
			if err := <-stored; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Whenever the process ends while a sender is erased, the next one completes that.
func TestErasureIsCompleted(t *testing.T) {
	const n = 400
	c := &crashes{t: t}
	o := streamsOf(t.TempDir(), "to/+/1", "#")
	s := c.open(o)
	leave(t, connect(t, s, "away", inbox.ExpiryNever, "to/+/0", "to/+/1"), inbox.ExpiryNever)
	sendAs(t, s, n)
	if _, err := s.Summarize(background, "away", inbox.SummaryQuery{Max: 1}); err != nil { // makes indexes
		t.Fatal(err)
	}
	s.AwaitIndexes(t)
	c.record(func() {
		if erased, err := s.Erase(background, "someone"); erased != n/2 || err != nil {
			t.Errorf("%d erased, %v", erased, err)
		}
	})
	check := func(s *badger.Store, what string) {
		t.Helper()
		for sender, want := range map[string]int{"someone": 0, "another": n / 2, "": n} {
			if got := len(walk(t, s, inbox.Query{Selection: inbox.Selection{Sender: sender}, Max: 100, MaxBytes: 1 << 20})); got != want {
				t.Errorf("%s: %d messages of %q, want %d", what, got, sender, want)
			}
		}
		if keys := s.Saying(t, "someone"); len(keys) > 0 {
			t.Errorf("%s: the name stands in %v", what, keys)
		}
	}
	check(s, "without a crash")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verifyClean(t, o.Dir)

	states := map[string]bool{}
	for i, dir := range c.copies {
		verifyClean(t, dir)
		o.Dir = dir
		s := (&crashes{t: t}).open(o)
		keys := s.Keys()
		states[fmt.Sprint(keys["E"], keys["D"], keys["s"])] = true
		if keys["E"] == 0 && i < len(c.copies)-1 {
			t.Errorf("crash %d of %d: nothing says what is to be erased", i, len(c.copies))
		}
		s.Sweep()
		if n := s.Keys()["E"]; n > 0 {
			t.Errorf("crash %d: it is not completed", i)
		}
		check(s, fmt.Sprint("crash ", i))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		verifyClean(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if len(states) < 6 { // the note, a commit of marks, and parts of lists
		t.Errorf("%d crashes left different stores %v: the test would test nothing", len(c.copies), states)
	}
}

// Nobody is at an erasure any more whose caller has lost patience: the sweeper is.
func TestErasureOfWhoLosesPatience(t *testing.T) {
	c := &crashes{t: t}
	o := keeping(t.TempDir(), "#")
	s := c.open(o)
	sendAs(t, s, 40)
	s.AwaitIndexes(t) // nobody else commits anything
	ctx, cancel := context.WithCancel(background)
	c.then.Store(&cancel) // with the note
	if n, err := s.Erase(ctx, "someone"); n != 0 || !errors.Is(err, context.Canceled) {
		t.Fatalf("%d erased, %v", n, err)
	}
	c.then.Store(nil)
	s.Sweep()
	if keys := s.Saying(t, "someone"); len(keys) > 0 {
		t.Errorf("the name stands in %v", keys)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verifyClean(t, o.Dir)
}
