package memory

import (
	"errors"
	"slices"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A resumed session keeps what is open in front of what was not sent, and the
// array does not hold on to what is finished.
func TestSaveForgetsFinished(t *testing.T) {
	s := newSession("r")
	for p := inbox.Position(1); p <= 6; p++ {
		s.takeLocked(inbox.Entry{Position: p, Envelope: &inbox.Envelope{}, Grant: inbox.Grant{QoS: 1}}, nil)
	}
	whole := s.entries
	s.saveLocked(inbox.State{Sent: 4, Open: []inbox.Delivery{{Position: 1}, {Position: 3}}}, 0)

	var got []inbox.Position
	for _, e := range s.entries {
		got = append(got, e.Position)
	}
	if want := []inbox.Position{1, 3, 5, 6}; !slices.Equal(got, want) {
		t.Fatalf("kept %v, want %v", got, want)
	}
	if whole[0].Envelope != nil || whole[1].Envelope != nil {
		t.Fatal("finished entries are still referred to")
	}
}

// An owner that is fenced while it says its state must not store it.
func TestFencedDuringSave(t *testing.T) {
	store := New(Options{})
	defer store.Close()
	second := make(chan inbox.Inbox, 1)
	first, _, err := store.Open(t.Context(), "c", inbox.OpenOptions{
		Expiry: inbox.ExpiryNever,
		State: func() inbox.State {
			in, _, err := store.Open(t.Context(), "c", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
			if err != nil {
				t.Error(err)
			}
			second <- in
			return inbox.State{Sent: 1}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	saved := make(chan error, 1)
	first.Save(func(err error) { saved <- err })
	if err := <-saved; !errors.Is(err, inbox.ErrFenced) {
		t.Errorf("save: %v, want ErrFenced", err)
	}
	if err := (<-second).Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Error(err)
	}
	third, _, err := store.Open(t.Context(), "c", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	if got := third.State().Sent; got != 0 {
		t.Errorf("a fenced owner's state was stored: sent %d", got)
	}
}
