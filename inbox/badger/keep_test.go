package badger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

func openWith(t testing.TB, o badger.Options) *badger.Store {
	t.Helper()
	if o.Log = quiet(); o.Reserve == 0 {
		o.Reserve = -1
	}
	s, err := badger.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func texts(entries []inbox.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, string(e.Envelope.Payload))
	}
	return out
}

// aged is a message that the broker took so long ago.
func aged(topic, payload string, age time.Duration) *inbox.Envelope {
	return &inbox.Envelope{Topic: topic, QoS: 1, Payload: []byte(payload), Time: time.Now().Add(-age).UnixMilli()}
}

// What waited for longer than the retention is not returned, whether it stands
// in a block or in a body, and however it is asked for.
func TestRetention(t *testing.T) {
	dir := t.TempDir()
	s := openWith(t, badger.Options{Dir: dir, Retention: time.Hour})
	a := connect(t, s, "a", inbox.ExpiryNever, "one", "all")
	b := connect(t, s, "b", inbox.ExpiryNever, "all")
	leave(t, a, inbox.ExpiryNever)
	leave(t, b, inbox.ExpiryNever)
	for _, topic := range []string{"one", "all"} {
		publish(t, s, aged(topic, topic+" old", time.Hour+time.Minute))
		publish(t, s, aged(topic, topic+" young", time.Hour-time.Minute))
		publish(t, s, aged(topic, topic+" new", 0))
	}
	for range 2 {
		connect(t, s, "a", inbox.ExpiryNever, "drain/end")
		if got, want := texts(drain(t, s, "a")), []string{"one young", "one new", "all young", "all new"}; !slices.Equal(got, want) {
			t.Fatalf("a has %q, want %q", got, want)
		}
		connect(t, s, "b", inbox.ExpiryNever, "drain/end")
		if got, want := texts(drain(t, s, "b")), []string{"all young", "all new"}; !slices.Equal(got, want) {
			t.Fatalf("b has %q, want %q", got, want)
		}
		if st := s.Stats(); st.Expired == 0 || st.Damaged != 0 {
			t.Fatalf("counts %+v", st)
		}
		s.Close()
		s = openWith(t, badger.Options{Dir: dir, Retention: time.Hour})
	}
	s.Close()

	s = openWith(t, badger.Options{Dir: dir, Retention: -1})
	defer s.Close()
	if got := texts(drain(t, s, "b")); !slices.Equal(got, []string{"all old", "all young", "all new"}) {
		t.Fatalf("without a limit b has %q", got)
	}
}

// Badger may drop a key when nothing in it is delivered any more, and no sooner.
func TestKeysExpire(t *testing.T) {
	const hour = 3600
	now := time.Now()
	seconds := uint64(now.Unix())
	in := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	for _, c := range []struct {
		name      string
		retention time.Duration
		expiry    int64 // of the message
		want      uint64
	}{
		{"neither", -1, 0, 0},
		{"retention", 2 * time.Hour, 0, seconds + 2*hour + badger.ExpiryMargin},
		{"expiry", -1, in(time.Hour), seconds + hour + badger.ExpiryMargin},
		{"expiry first", 2 * time.Hour, in(time.Hour), seconds + hour + badger.ExpiryMargin},
		{"retention first", time.Hour, in(2 * time.Hour), seconds + hour + badger.ExpiryMargin},
		{"default", 0, 0, seconds + 7*24*hour + badger.ExpiryMargin},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openWith(t, badger.Options{Dir: t.TempDir(), Retention: c.retention})
			defer s.Close()
			connect(t, s, "a", inbox.ExpiryNever, "one", "all")
			connect(t, s, "b", inbox.ExpiryNever, "all")
			for _, topic := range []string{"one", "all"} {
				publish(t, s, &inbox.Envelope{Topic: topic, QoS: 1, Time: now.UnixMilli(), Expiry: c.expiry})
			}
			got := append(s.Expiries('i'), s.Expiries('m')...)
			if len(got) != 4 {
				t.Fatalf("%d blocks and bodies, want 3 and 1", len(got))
			}
			for _, at := range got {
				if at != c.want {
					t.Errorf("expires at %d, want %d", at, c.want)
				}
			}
			for _, kind := range []byte("MSuk") {
				for _, at := range s.Expiries(kind) {
					if at != 0 {
						t.Errorf("a key %c expires", kind)
					}
				}
			}
		})
	}
}

// A block stays as long as the longest of its entries.
func TestBlockExpiresWithItsLast(t *testing.T) {
	for _, last := range []int64{0, time.Now().Add(50 * time.Hour).UnixMilli()} {
		s := openWith(t, badger.Options{Dir: t.TempDir(), Retention: -1})
		connect(t, s, "a", inbox.ExpiryNever, "all", "drain/end")
		const many = 2000 // a few groups, and so blocks with several entries
		done := make(chan error, many)
		for i := range many {
			e := &inbox.Envelope{Topic: "all", QoS: 1, Expiry: 1}
			if i%2 == 1 {
				e.Expiry = last
			}
			s.Append(background, e, func(_ inbox.Receipt, err error) { done <- err })
		}
		for range many {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if got := texts(drain(t, s, "a")); len(got) < many/2 || len(s.Expiries('i')) > many/4 {
			t.Errorf("%d messages in %d blocks: those that expire later are %d", len(got), len(s.Expiries('i')), many/2)
		}
		s.Close()
	}
}

// The retention is for messages that wait. A retained one does not, and its copy
// waits since the subscription that brought it.
func TestRetentionOfRetained(t *testing.T) {
	dir := t.TempDir()
	s := openWith(t, badger.Options{Dir: dir, Retention: time.Hour})
	old := aged("a", "old", 1000*time.Hour)
	old.Retain = true
	publish(t, s, old)
	if at := s.Expiries('R'); !slices.Equal(at, []uint64{0}) {
		t.Fatalf("the retained message expires: %v", at)
	}
	connect(t, s, "a", inbox.ExpiryNever)
	for range 2 {
		s.Close()
		s = openWith(t, badger.Options{Dir: dir, Retention: time.Hour})
		connect(t, s, "a", inbox.ExpiryNever, "drain/end") // resumed: it reads from disk
		before := uint64(time.Now().Unix())
		connect(t, s, "a", inbox.ExpiryNever, "a")
		for _, at := range s.Expiries('i') {
			if at < before+3600+badger.ExpiryMargin-60 {
				t.Fatalf("the copy expires at %d, %d after now", at, int64(at)-int64(before))
			}
		}
		if got := texts(drain(t, s, "a")); len(got) == 0 || got[0] != "old" {
			t.Fatalf("a has %q", got)
		}
	}
	s.Close()

	s = openWith(t, badger.Options{Dir: t.TempDir(), Retention: time.Hour})
	defer s.Close()
	soon := aged("a", "soon", 0)
	soon.Retain, soon.Expiry = true, time.Now().Add(time.Hour).UnixMilli()
	want := uint64(soon.Expiry/1000) + badger.ExpiryMargin
	publish(t, s, soon)
	if at := s.Expiries('R'); !slices.Equal(at, []uint64{want}) {
		t.Fatalf("the retained message expires at %v, want %d", at, want)
	}
}

// A body may be gone before the block that refers to it: its time was over
// earlier, which is no damage.
func TestBodyGone(t *testing.T) {
	s := openWith(t, badger.Options{Dir: t.TempDir(), Retention: -1})
	defer s.Close()
	connect(t, s, "a", inbox.ExpiryNever, "all", "one", "drain/end")
	connect(t, s, "b", inbox.ExpiryNever, "all")
	publish(t, s, aged("all", "gone", 0))
	publish(t, s, aged("one", "there", 0))
	if err := s.DropBodies(); err != nil {
		t.Fatal(err)
	}
	if got := texts(drain(t, s, "a")); !slices.Equal(got, []string{"there"}) {
		t.Fatalf("a has %q", got)
	}
	if st := s.Stats(); st.Damaged != 0 || st.Expired != 1 {
		t.Fatalf("counts %+v, want one expired", st)
	}
}

// With the option, QoS 0 is kept for who is away and has asked for more.
func TestKeepQoS0(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			dir := t.TempDir()
			s := openWith(t, badger.Options{Dir: dir, Retention: -1, KeepQoS0: keep})
			defer func() { s.Close() }()
			away := connect(t, s, "away", inbox.ExpiryNever, "a", "drain/end")
			zero, _, err := s.Open(background, "zero", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := zero.Subscribe(background, inbox.Subscription{Filter: "a"}, inbox.Subscription{Filter: "drain/end", QoS: 1}); err != nil {
				t.Fatal(err)
			}
			leave(t, away, inbox.ExpiryNever)
			leave(t, zero, inbox.ExpiryNever)
			live := make(chan inbox.Entry, 10)
			there, _, err := s.Open(background, "there", inbox.OpenOptions{
				Expiry: inbox.ExpiryNever, Live: func(e inbox.Entry) { live <- e },
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := there.Subscribe(background, inbox.Subscription{Filter: "a", QoS: 1}, inbox.Subscription{Filter: "drain/end", QoS: 1}); err != nil {
				t.Fatal(err)
			}
			publish(t, s, &inbox.Envelope{Topic: "a", QoS: 1, Payload: []byte("one")})
			publish(t, s, &inbox.Envelope{Topic: "a", QoS: 0, Payload: []byte("zero")})
			publish(t, s, &inbox.Envelope{Topic: "a", QoS: 1, Payload: []byte("two")})
			if e := <-live; string(e.Envelope.Payload) != "zero" || e.Position != 0 {
				t.Fatalf("live came %+v", e)
			}
			s.Close()
			s = openWith(t, badger.Options{Dir: dir, Retention: -1, KeepQoS0: keep})

			want := []string{"one", "two"}
			if got := texts(drain(t, s, "there")); !slices.Equal(got, want) {
				t.Errorf("who was there has %q, want %q", got, want)
			}
			if got := texts(drain(t, s, "zero")); got != nil {
				t.Errorf("who asked for QoS 0 has %q", got)
			}
			if keep {
				want = []string{"one", "zero", "two"}
			}
			entries := drain(t, s, "away")
			if got := texts(entries); !slices.Equal(got, want) {
				t.Errorf("who was away has %q, want %q", got, want)
			}
			for _, e := range entries {
				if e.QoS != e.Envelope.QoS || e.Position == 0 {
					t.Errorf("%s has position %d and grant %+v", e.Envelope.Payload, e.Position, e.Grant)
				}
			}
		})
	}
}
