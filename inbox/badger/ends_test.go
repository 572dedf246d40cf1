package badger_test

import (
	"errors"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// A group may take several transactions, and the process may end between them.
// Then no packet id may be known whose message is not stored, and no will may be
// gone that was not published.
func TestMessageBeforeItsMark(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	connect(t, s, "reader", inbox.ExpiryNever, "#")
	in, _, err := s.Open(background, "a", inbox.OpenOptions{
		Expiry: inbox.ExpiryNever,
		Will:   &inbox.Will{Envelope: &inbox.Envelope{Topic: "will", QoS: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	early, err := badger.PublishSplit(in, 1, &inbox.Envelope{Topic: "a", QoS: 2})
	if err != nil {
		t.Fatal(err)
	}
	if early["M"] < 5 { // the padding is one of the store's own
		t.Fatalf("keys %v: the group took one transaction, the test would test nothing", early)
	}
	if early["i"] == 0 && (early["x"] != 0 || early["w"] != 1) {
		t.Errorf("without the messages there are the marks: keys %v", early)
	}
	eventually(t, s, map[string]int{"i": 1, "x": 1, "w": 0})
}

// Coming and going sets no new timer each time.
func TestOneTimerASession(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	for range 20 {
		leave(t, connect(t, s, "a", inbox.ExpiryNever), 3600)
	}
	if n := s.Timers(); n != 1 {
		t.Errorf("%d timers for one session", n)
	}
	leave(t, connect(t, s, "b", inbox.ExpiryNever), inbox.ExpiryNever)
	if n := s.Timers(); n != 1 {
		t.Errorf("%d timers, one of them for a session that stays", n)
	}
}

// A will that could not be stored is refused, and harms nobody.
func TestWillTooLarge(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	will := &inbox.Will{Envelope: &inbox.Envelope{Topic: "will", QoS: 1, ContentType: string(make([]byte, 4<<20))}}
	_, _, err := s.Open(background, "a", inbox.OpenOptions{Expiry: inbox.ExpiryNever, Will: will})
	if !errors.Is(err, inbox.ErrTooLarge) {
		t.Fatalf("open: %v, want ErrTooLarge", err)
	}
	connect(t, s, "a", inbox.ExpiryNever, "a", "drain/end")
	publish(t, s, &inbox.Envelope{Topic: "a", QoS: 1})
	if n := len(drain(t, s, "a")); n != 1 {
		t.Fatalf("%d messages, want 1", n)
	}
}

// A subscription to everything retained must not fill the disk beyond its
// reserve.
func TestRetainedOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	publish(t, s, &inbox.Envelope{Topic: "a", QoS: 1, Retain: true, Payload: []byte{1}})
	s.Close()
	s = openWith(t, badger.Options{Dir: dir, Reserve: free(t, dir) * 3 / 2}) // reached, and less than half used up
	defer s.Close()
	live := make(chan inbox.Entry, 1)
	in, _, err := s.Open(background, "a", inbox.OpenOptions{
		Expiry: inbox.ExpiryNever, Live: func(e inbox.Entry) { live <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Subscribe(background, inbox.Subscription{Filter: "#", QoS: 1}); !errors.Is(err, inbox.ErrFull) {
		t.Errorf("subscribe: %v, want ErrFull", err)
	}
	if _, err := in.Subscribe(background, inbox.Subscription{Filter: "a"}); err != nil {
		t.Errorf("subscribe at QoS 0, which keeps nothing: %v", err)
	}
	if e := <-live; !e.Retain {
		t.Errorf("live came %+v", e)
	}
	if n := s.Keys()["i"]; n != 0 {
		t.Errorf("%d blocks were written", n)
	}
}

// When half of the reserve is used up, what connects and subscribes is refused
// too; what is there can still be taken.
func TestHalfTheReserveIsUsedUp(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	a := connect(t, s, "a", inbox.ExpiryNever, "a")
	publish(t, s, &inbox.Envelope{Topic: "a", QoS: 1})
	if err := a.Close(background, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = openWith(t, badger.Options{Dir: dir, Reserve: free(t, dir) * 3, Retention: -1})
	defer s.Close()
	if _, _, err := s.Open(background, "b", inbox.OpenOptions{Expiry: inbox.ExpiryNever}); !errors.Is(err, inbox.ErrFull) {
		t.Errorf("open: %v, want ErrFull", err)
	}
	a = connect(t, s, "a", inbox.ExpiryNever)
	ids, _ := a.take(t, 1)
	a.finish(ids...)
	if _, err := a.Subscribe(background, inbox.Subscription{Filter: "b", QoS: 1}); !errors.Is(err, inbox.ErrFull) {
		t.Errorf("subscribe: %v, want ErrFull", err)
	}
	if _, err := a.Unsubscribe(background, "a"); err != nil {
		t.Errorf("unsubscribe: %v", err)
	}
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	n, err := badger.FreeBytes(dir)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
