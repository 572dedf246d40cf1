package badger

import (
	"context"
	"errors"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// waits returns an indexer that the test moves, which has an inbox that somebody waits
// for, and how that ends.
func waits(t *testing.T) (ix *indexer, inc incarnation, indexed <-chan error) {
	t.Helper()
	s, err := Open(indexOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	inc = enter(t, s, "a", nil, sub("a", 1)).Inbox.(*handle).incarnation
	ix = newIndexer(s)
	ix.add(inc, newRecent(newRecents(), kindsOfInbox))
	return ix, inc, awaiting(t, ix, inc)
}

// awaiting has somebody wait for an inbox, but not for ever.
func awaiting(t *testing.T, ix *indexer, inc incarnation) <-chan error {
	indexed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	go func() { indexed <- ix.await(ctx, inc) }()
	<-ix.wake
	return indexed
}

// Who waits for an inbox that ends while it is indexed in parts is told.
func TestIndexEndsWhileAwaited(t *testing.T) {
	ix, inc, indexed := waits(t)
	turn, ok := ix.take()
	if !ok {
		t.Fatal("there is nothing to do")
	}
	ix.remove(inc)
	ix.finish(turn, indexWork{index: true}, nil)
	if err := <-indexed; !errors.Is(err, inbox.ErrNoSession) {
		t.Errorf("waited for an inbox that has ended: %v", err)
	}
}

// Who comes while an inbox has its turn waits for the next one: what is being done may
// not be what is asked for.
func TestIndexAwaitedDuringATurn(t *testing.T) {
	ix, inc, first := waits(t)
	turn, _ := ix.take()
	second := awaiting(t, ix, inc)
	ix.serve(turn)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	select {
	case <-second:
		t.Fatal("told before its turn")
	default:
	}
	turn, ok := ix.take()
	if !ok || !turn.work.index || len(turn.waiting) != 1 {
		t.Fatalf("to be done: %+v, %v", turn, ok)
	}
	ix.serve(turn)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// Who asks is answered though a stream has ended for which it was to wait.
func TestAskedWhileAStreamEnds(t *testing.T) {
	ix, _, _ := waits(t)
	asked := 0
	err := ix.s.askSorted(t.Context(), "a", func(*unread, func() (*sorted, error)) error {
		if asked++; asked == 1 {
			return behindError(1 << 30)
		}
		return nil
	})
	if err != nil || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
