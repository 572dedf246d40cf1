package badger_test

import (
	"context"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// Who receives at QoS 2 has the state saved for each PUBREC, and the state is as long
// as the window.
func TestStateIsWrittenOnceInAGroup(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	var window inbox.State
	taken := 0
	in, _, err := s.Open(context.Background(), "c", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: func() inbox.State {
		taken++
		return window
	}})
	if err != nil {
		t.Fatal(err)
	}
	const saves = 500
	saved := make(chan error, saves)
	s.Together(func() {
		for i := range saves {
			window.Sent = inbox.Position(i + 1)
			in.Save(func(err error) { saved <- err })
		}
	})
	for range saves {
		if err := <-saved; err != nil {
			t.Fatal(err)
		}
	}
	if taken != 1 {
		t.Errorf("the state was taken %d times for %d saves, want once", taken, saves)
	}
	again, _, err := s.Open(context.Background(), "c", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	if got := again.State().Sent; got != saves {
		t.Errorf("sent up to %d, want %d", got, saves)
	}
}

func TestStateIsWrittenBeforeAnotherOwnerReadsIt(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	want := inbox.State{Sent: 7, LastID: 7, Open: []inbox.Delivery{{Position: 5, PacketID: 5, QoS: 2, Released: true}}}
	first, _, err := s.Open(context.Background(), "c", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: func() inbox.State { return want }})
	if err != nil {
		t.Fatal(err)
	}
	second, err := badger.SaveAndOpen(first, inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	if got := second.State(); got.Sent != want.Sent || len(got.Open) != 1 || got.Open[0] != want.Open[0] {
		t.Errorf("state %+v, want %+v", got, want)
	}
}
