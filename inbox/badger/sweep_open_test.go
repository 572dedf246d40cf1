package badger

import (
	"fmt"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// knows reports whether the sweeper knows how far an inbox is, and whether it is to forget
// that.
func (w *sweeper) knows(inc incarnation) (known, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sw := w.sessions[inc]
	return sw != nil, sw != nil && sw.closed
}

// An inbox that is closed and opened in one group is open: how far it is swept is not
// forgotten.
func TestSweeperKnowsWhatIsOpenedAgain(t *testing.T) {
	o := everythingOptions(t.TempDir())
	o.sweepEvery = time.Hour // nobody else queues anything
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	a := enter(t, s, "a", nil, sub("a", 1))
	release := s.hold()
	closed := make(chan error, 1)
	go func() { closed <- a.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}) }()
	eventually(t, func() bool { return s.queued() == 1 })
	opened := make(chan struct{})
	go func() {
		if _, _, err := s.Open(t.Context(), "a", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: a.state}); err != nil {
			t.Error(err)
		}
		close(opened)
	}()
	eventually(t, func() bool { return s.queued() == 2 })
	s.later(func(*commitGroup) error { return nil }, func(error) { <-opened }) // it is open before the group is done
	release()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if err := s.do(t.Context(), "wait", func(*commitGroup) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if known, closed := s.sweeper.knows(a.Inbox.(*handle).incarnation); !known || closed {
		t.Errorf("known: %v, closed: %v", known, closed)
	}
	closeSound(t, s, o.Dir)
}

// An inbox that is closed and ends in one group leaves nothing to the sweeper but what is to
// be purged, whoever has its member number by then, also nobody.
func TestSweeperForgetsWhatIsClosedAndEnds(t *testing.T) {
	for _, taken := range []bool{false, true} {
		o := everythingOptions(t.TempDir())
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		a := enter(t, s, "a", nil, sub("a", 1))
		for i := range 20 { // away, so that numbers are higher than there is anything of the connected
			other := enter(t, s, inbox.Receiver(fmt.Sprint("other ", i)), nil)
			end := inbox.Ending{Expiry: inbox.ExpiryNever}
			if i == 19 {
				end.Expiry = inbox.ExpiryAtOnce // the next number to use again
			}
			if err := other.Close(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		h := a.Inbox.(*handle)
		err = s.do(t.Context(), "close and end", func(g *commitGroup) error {
			if err := g.close(h, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
				return err
			}
			g.end(h.member)
			if !taken {
				return nil
			}
			b, err := g.open("b", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: a.state})
			if err == nil && b.member != h.member {
				t.Errorf("b has number %d, want that of a, %d", b.member, h.member)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if known, _ := s.sweeper.knows(h.incarnation); known {
			t.Errorf("taken %v: the sweeper knows the session that has ended", taken)
		}
		closeSound(t, s, o.Dir)
	}
}

// An owner that was fenced while its inbox was being opened has nothing to tell.
func TestSweeperIsNotToldByOneThatIsFenced(t *testing.T) {
	w := newSweeper(nil)
	h := &handle{incarnation: 7, wake: make(chan struct{}, 1), fenced: make(chan struct{})}
	h.fence()
	w.opened(h, 3)
	if known, _ := w.knows(7); known {
		t.Error("it is remembered that the inbox is open")
	}
}
