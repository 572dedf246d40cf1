package badger

import (
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The sweeper may have read how far an inbox was before its receiver started again: what
// is unread since stays.
func TestStartedAgainWhileTheSweeperLooks(t *testing.T) {
	o := everythingOptions(t.TempDir())
	o.sweepEvery = time.Hour // the test sweeps
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	a := enter(t, s, "a", nil, sub("a", 1))
	for range 3 { // each in a block of its own
		appendAll(t, s, &inbox.Envelope{Topic: "a", QoS: 1})
	}
	var ids []uint16
	for len(ids) < 3 {
		page, err := a.Next(t.Context(), 3, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			ids = append(ids, a.window.Send(e.Position, e.QoS))
		}
	}
	a.window.Ack(ids[0])
	a.window.Ack(ids[2])
	second := a.window.State().Open[0].Position
	if err := a.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Fatal(err)
	}

	inc := a.Inbox.(*handle).incarnation
	s.sweeper.committed(nil, []ended{{incarnation: inc}}) // knows nothing of it, as after a start
	s.sweeper.takeEnded()
	var before progressRecord
	if err := s.view(func(txn *badger.Txn) (err error) { before, err = readProgress(txn, inc); return err }); err != nil {
		t.Fatal(err)
	}
	again, _, err := s.Open(t.Context(), "a", inbox.OpenOptions{Expiry: inbox.ExpiryNever, From: &inbox.Bound{}, State: a.state})
	if err != nil {
		t.Fatal(err)
	}
	a.window = inbox.NewWindow(100, again.State())
	s.sweeper.left(inc, before.swept, before.sweepable())
	s.sweeper.sweep()
	saved := make(chan error, 1)
	again.Save(func(err error) { saved <- err })
	if err := <-saved; err != nil {
		t.Fatal(err)
	}
	s.sweeper.sweep()
	page, err := s.Pull(t.Context(), "a", inbox.Query{Max: 3, MaxBytes: 1 << 20})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Position != second {
		t.Errorf("unread: %v, %v, want what is at %d", page.Entries, err, second)
	}
	closeSound(t, s, o.Dir)
}

// What was held when its block was met, and is finished since, is met again when the
// receiver starts again before it is deleted.
func TestStartedAgainBeforeWhatWasHeldIsSwept(t *testing.T) {
	w := newSweeper(nil)
	for after, want := range map[inbox.Position]inbox.Position{90: 34, 20: 20} {
		w.sessions[7] = &sweep{swept: 100, held: []inbox.Position{35, 60}}
		w.wentBack(7, after)
		if got := w.sweptUpTo(7); got != want || w.sessions[7].swept != want {
			t.Errorf("back behind %d: swept up to %d, %d, want %d", after, got, w.sessions[7].swept, want)
		}
	}
}
