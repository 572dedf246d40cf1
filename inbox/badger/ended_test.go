package badger

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A crash between the note that a session has ended and the end of its record: the
// session has ended.
func TestEndedSessionIsNotLoaded(t *testing.T) {
	o := Options{Dir: t.TempDir(), Reserve: -1, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	open := func() *Store {
		t.Helper()
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ctx := context.Background()
	s := open()
	for _, r := range []inbox.Receiver{"ended", "stays"} {
		in, _, err := s.Open(ctx, r, inbox.OpenOptions{Expiry: inbox.ExpiryNever})
		if err == nil {
			_, err = in.Subscribe(ctx, inbox.Subscription{Filter: "a", QoS: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.do(ctx, "note", func(g *commitGroup) error {
		g.put(numberKey(prefixPurge, uint64(s.sessions.at(s.sessions.member("ended")).incarnation)), nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open()
	}
	defer s.Close()
	if n := s.Keys()["S"]; n != 1 {
		t.Errorf("%d sessions are on disk, want 1", n)
	}
	for r, want := range map[inbox.Receiver]bool{"ended": false, "stays": true} {
		if _, resumed, err := s.Open(ctx, r, inbox.OpenOptions{Expiry: inbox.ExpiryNever}); err != nil || resumed != want {
			t.Errorf("%s is resumed: %v, %v", r, resumed, err)
		}
	}
}
