package badger

import (
	"context"
	"fmt"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What was read ahead while something was acknowledged by a request is read again, and
// nothing of it is passed over, also where it stands in a stream.
func TestWhatIsAcknowledgedWhileReadingAheadLosesNothing(t *testing.T) {
	for name, pull := range map[string][]string{"own": nil, "stream": {"#"}} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(Options{Dir: t.TempDir(), Reserve: -1, Pull: pull})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), Patience)
			defer cancel()
			open := func() *handle {
				in, _, err := s.Open(ctx, "phone", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
				if err != nil {
					t.Fatal(err)
				}
				return in.(*handle)
			}
			if _, err := open().Subscribe(ctx, inbox.Subscription{Filter: "a", QoS: 1}); err != nil {
				t.Fatal(err)
			}
			const n = 9
			var ids []inbox.MessageID
			for range n {
				ids = append(ids, store(t, s, "a").ID)
			}
			h := open()
			p := h.nextPart()
			page, size, err := s.readPage(p.from, p.after, p.upTo)
			if err != nil || len(page) != n {
				t.Fatalf("read %d entries ahead: %v", len(page), err)
			}
			read := inbox.Acknowledgement{IDs: ids[3:4]}
			if acked, err := s.Acknowledge(ctx, "phone", read); acked != 1 || err != nil {
				t.Fatalf("%d acknowledged: %v", acked, err)
			}
			h.keepPage(p, page, size)
			got, err := h.Next(ctx, 2*n, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var have []inbox.MessageID
			for _, e := range got {
				have = append(have, e.Envelope.ID)
			}
			if want := append(ids[:3:3], ids[4:]...); fmt.Sprint(have) != fmt.Sprint(want) {
				t.Errorf("delivered %v, want %v", have, want)
			}
		})
	}
}
