package hooks_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// onGive returns a function for faulty.give that does something while the first message is
// on its way from a group to a member, which has room for it.
func onGive(do func() error) func() error {
	var once sync.Once
	return func() (err error) {
		once.Do(func() { err = do() })
		return err
	}
}

// What a group has given to a member, and never gets there, does not keep the place that it
// was promised.
func TestGroupGivesInVain(t *testing.T) {
	for name, lose := range map[string]func(*broker) error{
		"acknowledged": func(b *broker) error {
			_, err := b.store.Acknowledge(b.t.Context(), "c", inbox.Acknowledgement{})
			return err
		},
		"deleted": func(b *broker) error {
			entries := b.inboxOf("c")
			return b.store.Delete(b.t.Context(), entries[len(entries)-1].Envelope.ID, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := new(faulty)
			b := start(t, setting{Wrap: store.wrap, Keep: keeping{History: []inbox.Kept{{Filter: "#"}}}})
			c := b.member(manual(withWindow(v5("c"), 1)), share, 2)
			c.Subscribe("own", 1)
			publisher := b.dial(v5("publisher"))
			full := make(chan struct{})
			store.set(func(f *faulty) {
				f.give = onGive(func() error { // its place is taken by another message
					publisher.PublishAndWait("own", "own", 1)
					<-full
					return nil
				})
			})
			b.dial(v5("other")).PublishAndWait("a", "1", 2)
			own := c.NextPublish()
			close(full)
			mqtttest.Eventually(t, func() bool { return len(b.inboxOf("c")) == 2 }, "given")
			if err := lose(b); err != nil {
				t.Fatal(err)
			}
			c.Ack(own)
			publisher.PublishAndWait("a", "2", 2)
			wantPayloads(t, c.Payloads(1), []string{"2"})
		})
	}
}

// A message is deleted while it is on its way to a member.
func TestGroupGivesWhatIsDeleted(t *testing.T) {
	store := new(faulty)
	b := start(t, setting{Wrap: store.wrap, Keep: keeping{History: []inbox.Kept{{Filter: "#"}}}})
	c := b.member(withWindow(v5("c"), 1), share, 2)
	publisher := b.dial(v5("publisher"))
	deleted := make(chan struct{})
	store.set(func(f *faulty) {
		f.give = onGive(func() error {
			defer close(deleted)
			page, err := b.store.History(b.t.Context(), inbox.Query{Max: 1, MaxBytes: 1 << 20})
			if err != nil || len(page.Entries) != 1 {
				return fmt.Errorf("%d messages in history: %w", len(page.Entries), err)
			}
			return b.store.Delete(b.t.Context(), page.Entries[0].Envelope.ID, "")
		})
	})
	publisher.PublishAndWait("a", "1", 2)
	<-deleted
	publisher.PublishAndWait("a", "2", 2)
	wantPayloads(t, c.Payloads(1), []string{"2"})
}

// Another group waits for the place that is free again since a group could not give.
func TestGroupGivesBackRoom(t *testing.T) {
	const second = "$share/g/b"
	store, p := new(faulty), &pumps{r: inbox.GroupReceiver(second)}
	b := start(t, setting{Wrap: func(s inbox.Store) inbox.Store { return store.wrap(p.wrap(s)) }})
	c := b.member(withWindow(v5("c"), 1), share, 2)
	c.Subscribe(second, 1)
	giving, fail := make(chan struct{}), make(chan struct{})
	store.set(func(f *faulty) {
		f.give = func() error { // again and again
			select {
			case giving <- struct{}{}:
			case <-fail:
			}
			<-fail
			return inbox.ErrFull
		}
	})
	publisher := b.dial(v5("publisher"))
	publisher.PublishAndWait("a", "a", 2)
	<-giving
	publisher.PublishAndWait("b", "b", 1)
	p.await(t, 1) // it has been offered
	close(fail)
	wantPayloads(t, c.Payloads(1), []string{"b"})
}

// A group ends, and begins again, while it has a message in hand.
func TestGroupEndsWithSomethingInHand(t *testing.T) {
	p := &pumps{r: inbox.GroupReceiver(share)}
	b := start(t, setting{Options: hooks.Options{PageMessages: 1}, Wrap: p.wrap})
	c := b.member(manual(withWindow(v5("c"), 1)), share, 2)
	publisher := b.dial(v5("publisher"))
	publisher.PublishAndWait("a", "1", 1)
	one := c.NextPublish()
	p.await(t, 1)
	publisher.PublishAndWait("a", "2", 2)
	mqtttest.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.idle
	}, "it is in hand")
	c.Unsubscribe(share)
	c.Subscribe(share, 2)
	c.Ack(one)
	publisher.PublishAndWait("a", "3", 2)
	wantPayloads(t, c.Payloads(1), []string{"3"})
}
