package storetest

import (
	"errors"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// refused fails unless every call of an inbox returns this error.
func (c *client) refused(want error) {
	c.tr.Helper()
	_, next := c.next(1, 1)
	_, read := c.Read(c.tr.ctx, []inbox.Position{1})
	_, list := c.Subscriptions(c.tr.ctx)
	_, subscribe := c.Subscribe(c.tr.ctx, inbox.Subscription{Filter: "refused", QoS: 1})
	_, unsubscribe := c.Unsubscribe(c.tr.ctx, "a")
	c.Save(nil)
	save := c.trySave()
	publish := c.tryPublish(1, message("refused", 2, "refused")).err
	_, complete := c.tryComplete(1)
	give := c.tryGive(c)
	closing := c.Close(c.tr.ctx, inbox.Ending{})
	for _, call := range []struct {
		name string
		err  error
	}{
		{"Next", next}, {"Read", read}, {"Subscriptions", list}, {"Subscribe", subscribe},
		{"Unsubscribe", unsubscribe}, {"Save", save}, {"Publish", publish}, {"Complete", complete}, {"Give", give},
		{"Close", closing},
	} {
		if !errors.Is(call.err, want) {
			c.tr.Errorf("%s of %.40q returned %v, want %v", call.name, c.receiver, call.err, want)
		}
	}
}

func fenceEveryCall(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		for _, fresh := range []bool{false, true} {
			r := inbox.Receiver(fmt.Sprint("c", expiry, fresh))
			first := tr.connect(r, expiry)
			first.subscribe("a", 1)
			tr.publish("a", "one", "two")
			first.finish(first.take(2)...)

			second := tr.connectWith(r, inbox.OpenOptions{Expiry: expiry, Fresh: fresh})
			second.subscribe("a", 1)
			second.subscribe("b", 1)
			first.refused(inbox.ErrFenced)
			tr.publish("refused", "not subscribed")
			tr.publish("a", "three")
			tr.publish("b", "four")
			want := []string{"three", "four"}
			resumed := !fresh && expiry == lasting // otherwise the session ended with the first link
			if resumed {
				want = []string{"one", "two", "three", "four"}
			}
			if second.resumed != resumed {
				tr.Fatalf("expiry %d, fresh %v: resumed is %v", expiry, fresh, second.resumed)
			}
			second.only(want...)
			second.unsubscribe("a")
		}
	}
}

func fenceBlockedNext(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		for _, fresh := range []bool{false, true} {
			c := tr.connectFresh("c", expiry)
			ended := tr.blockNext(c)
			tr.connectWith("c", inbox.OpenOptions{Expiry: expiry, Fresh: fresh})
			if err := <-ended; !errors.Is(err, inbox.ErrFenced) {
				tr.Fatalf("expiry %d, fresh %v: a blocked Next returned %v", expiry, fresh, err)
			}
		}
	}
}

// blockNext starts a Next on an inbox that has one entry, and returns when
// that one was read; the next call blocks, and its error comes later.
func (tr *trial) blockNext(c *client) <-chan error {
	tr.Helper()
	topic := "$block/" + string(c.receiver)
	c.subscribe(topic, 1)
	first, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.next(1, 1)
		first <- err
		_, err = c.next(1, 1)
		ended <- err
	}()
	tr.publish(topic, "m")
	if err := <-first; err != nil {
		tr.Fatalf("next: %v", err)
	}
	return ended
}

// An owner that closes is fenced as well.
func fenceOwnClose(tr *trial) {
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		r := inbox.Receiver(fmt.Sprint("c", expiry))
		c := tr.connect(r, expiry)
		c.subscribe("a", 1)
		ended := tr.blockNext(c)
		c.close(expiry)
		if err := <-ended; !errors.Is(err, inbox.ErrFenced) {
			tr.Fatalf("a blocked Next returned %v", err)
		}
		c.refused(inbox.ErrFenced)
		tr.publish("a", "absent")
		c = tr.connect(r, expiry)
		if expiry == lasting {
			c.only("absent")
		} else {
			c.only()
		}
	}
}

// A save of the first owner that is still due must not move the second's.
func fenceLateSave(tr *trial) {
	for range size(20, 5) {
		first := tr.connectFresh("c", lasting)
		first.subscribe("a", 1)
		tr.publish("a", numbers("m", 10)...)
		first.finish(first.take(10)...)

		first.Save(nil)
		second := tr.connect("c", lasting)
		first.Save(nil)
		before := second.State()
		if before.Sent != 0 {
			sameState(tr, before, first.current()) // the first save came in time
			continue
		}
		second.finish(second.take(3)...)
		second.take(2)
		second.save()
		first.Save(nil)
		want := second.current()
		tr.restart()
		third := tr.connect("c", lasting)
		sameState(tr, third.State(), want)
		isOpen(tr, third)
		third.only(numbers("m", 10)[5:]...)
	}
}

func fenceLateClose(tr *trial) {
	first := tr.connect("c", lasting)
	first.subscribe("a", 1)
	tr.publish("a", "one")
	second := tr.connect("c", lasting)
	for _, expiry := range []inbox.Expiry{inbox.ExpiryAtOnce, 5, inbox.ExpiryNever} {
		if err := first.Close(tr.ctx, inbox.Ending{Expiry: expiry}); !errors.Is(err, inbox.ErrFenced) {
			tr.Fatalf("an earlier owner's Close returned %v", err)
		}
	}
	tr.publish("a", "two")
	second.only("one", "two")
	got := tr.sessions()["c"]
	if !got.Connected || got.Expiry != lasting || got.Ended != 0 {
		tr.Fatalf("session after an earlier owner's Close: %+v", got)
	}
}
