package badger

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What is asked is answered up to one position, also of an inbox that is in memory: with what
// the group that looks at it is about to hand over.
func TestLooksAtWhatIsHandedOver(t *testing.T) {
	s, o := aside(t, nil)
	in, _, err := s.Open(t.Context(), "a", inbox.OpenOptions{State: func() inbox.State { return inbox.State{} }})
	if err == nil {
		_, err = in.Subscribe(t.Context(), sub("a", 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		stored, asked := make(chan error, 1), make(chan struct{})
		var sum inbox.Summary
		release := s.hold()
		e := &inbox.Envelope{Topic: "a", QoS: 1, Client: "p"}
		go s.Append(t.Context(), e, func(_ inbox.Receipt, err error) { stored <- err })
		eventually(t, func() bool { return s.queued() == 1 })
		go func() {
			defer close(asked)
			var err error
			if sum, err = s.Summarize(t.Context(), "a", inbox.SummaryQuery{Max: 1}); err != nil {
				t.Error(err)
			}
		}()
		eventually(t, func() bool { return s.queued() == 2 })
		release()
		<-asked
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
		if sum.Total.Messages != int64(n+1) {
			t.Errorf("%d messages up to %d, where %d are", sum.Total.Messages, sum.Position, n+1)
		}
	}
	closeSound(t, s, o.Dir)
}
