package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// startAgain opens an inbox for a receiver that has lost its memory.
func (tr *trial) startAgain(r inbox.Receiver, from inbox.Bound, m inbox.Mode) *client {
	tr.Helper()
	c := tr.connectWith(r, inbox.OpenOptions{Expiry: lasting, From: &from, Mode: m})
	if len(c.State().Open) != 0 {
		tr.Fatalf("%d messages are on their way to a receiver that starts again", len(c.State().Open))
	}
	return c
}

// halfRead has 20 messages, of which 0 to 4 were acknowledged as delivered, 8 to 11 by
// the other door, and 5 to 7 and 12 are on their way.
func (tr *trial) halfRead(r inbox.Receiver) (all []inbox.Entry) {
	tr.Helper()
	c := tr.connect(r, lasting)
	c.subscribe("a/#", 1)
	messages := talk(20, []string{"ann", "bob"}, []string{"a", "a/b"})
	for i, e := range messages {
		e.Time += int64(i-20) * 1000
	}
	tr.append(messages...)
	all = c.take(13)
	all = append(all, tr.walk(tr.inboxOf(r), inbox.Query{After: inbox.Bound{Position: all[12].Position}})...)
	c.finish(all[:5]...)
	tr.acknowledges(r, 4, byIDs(all[8:12]...))
	c.save()
	c.close(lasting)
	tr.unread(r, payloads(slices.Concat(all[5:8], all[12:]))...)
	return all
}

// A receiver that begins with nothing has everything that is kept, delivered as the first time.
func fromEverything(tr *trial) {
	all := tr.halfRead("c")
	tr.restart()
	c := tr.startAgain("c", inbox.Bound{}, inbox.ModeKept)
	tr.unread("c", payloads(all)...)
	got := c.only(payloads(all)...)
	same(tr, "places", positions(got), positions(all))
	c.finish(got...)
	c.save()
	tr.none("c")
	tr.restart()
	tr.none("c")
	tr.connect("c", lasting).only()
	c = tr.startAgain("c", inbox.Bound{}, inbox.ModeKept) // and once more
	c.only(payloads(all)...)
}

func fromBounds(tr *trial) {
	for name, bound := range map[string]func(e inbox.Entry) inbox.Bound{
		"position": func(e inbox.Entry) inbox.Bound { return inbox.Bound{Position: e.Position} },
		"id":       func(e inbox.Entry) inbox.Bound { return inbox.Bound{ID: e.Envelope.ID} },
		"time":     func(e inbox.Entry) inbox.Bound { return inbox.Bound{Time: e.Envelope.Time + 1} },
	} {
		r := inbox.Receiver("c" + name)
		all := tr.halfRead(r)
		c := tr.startAgain(r, bound(all[2]), inbox.ModeKept)
		want := payloads(all[3:])
		tr.unread(r, want...)
		same(tr, name, positions(c.only(want...)), positions(all[3:]))
		c.close(inbox.ExpiryAtOnce)
	}
}

// In pull mode everything waits.
func fromPull(tr *trial) {
	all := tr.halfRead("c")
	c := tr.startAgain("c", inbox.Bound{ID: all[0].Envelope.ID}, inbox.ModePull)
	tr.unread("c", payloads(all[1:])...)
	tr.publish("a", "live")
	c.finish(c.only("live")...)
	c.save()
	tr.acknowledges("c", 8, through(all[8]))
	for range 2 {
		tr.unread("c", payloads(all[9:])...)
		tr.restart()
	}
	c = tr.inMode("c", inbox.ModePush)
	c.only(payloads(all[9:])...)
}

// What is unread stays so, wherever a receiver starts again, and is delivered.
func fromLosesNothing(tr *trial) {
	all := tr.halfRead("c")
	c := tr.startAgain("c", inbox.Bound{ID: all[9].Envelope.ID}, inbox.ModeKept)
	want := payloads(slices.Concat(all[5:8], all[10:]))
	tr.unread("c", want...)
	c.finish(c.only(want...)...)
	c.save()
	tr.none("c")
	tr.publish("a", "m")
	tr.connect("c", lasting).close(lasting)
	far := inbox.Bound{Time: time.Now().Add(time.Hour).UnixMilli()}
	tr.startAgain("c", far, inbox.ModeKept).only("m")
}

func fromUnknownID(tr *trial) {
	all := tr.halfRead("c")
	tr.unknownIDs(all[0].Envelope.ID, func(id inbox.MessageID) error {
		_, err := tr.tryConnect("c", inbox.OpenOptions{Expiry: lasting, From: &inbox.Bound{ID: id}})
		return err
	})
	tr.unread("c", payloads(slices.Concat(all[5:8], all[12:]))...)
	if _, err := tr.tryConnect("nobody", inbox.OpenOptions{Resume: true, From: &inbox.Bound{}}); !errors.Is(err, inbox.ErrNoSession) {
		tr.Fatalf("starting again without a session: %v, want ErrNoSession", err)
	}
}

// A store that keeps no more than what is unread has that, at least, delivered anew.
func fromUnreadOnly(tr *trial) {
	all := tr.halfRead("c")
	c := tr.startAgain("c", inbox.Bound{}, inbox.ModeKept)
	got := payloads(c.rest())
	for _, want := range slices.Concat(all[5:8], all[12:]) {
		if !slices.Contains(got, string(want.Envelope.Payload)) {
			tr.Fatalf("%s is missing from %v", want.Envelope.Payload, got)
		}
	}
}

// What was given up does not come back.
func fromGivenUp(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	c.subscribe("b", 1)
	tr.publish("a", "a")
	tr.publish("b", "b")
	c.unsubscribe("a")
	c.close(lasting)
	tr.acknowledges("c", 1, inbox.Acknowledgement{})
	tr.startAgain("c", inbox.Bound{}, inbox.ModeKept).only("b")
}

// Who gives a filter up, and subscribes to it again, has everything from then on again.
func fromSubscribedAgain(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("b", 1)
	tr.publish("b", "b")
	c.subscribe("a", 1)
	c.unsubscribe("a") // with something unread, though not of this
	tr.restart()
	tr.publish("a", "between")
	c = tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", "m-0")
	c.finish(c.expect("b", "m-0")...)
	c.close(lasting)
	tr.publish("a", "m-1")
	c = tr.pulling("c")
	tr.acknowledges("c", 1, inbox.Acknowledgement{})
	c.unsubscribe("b")
	tr.restart()
	tr.startAgain("c", inbox.Bound{}, inbox.ModePush).only("b", "m-0", "m-1")
}

// A session that is new has nothing to begin with.
func fromNew(tr *trial) {
	tr.publish("a", "before")
	c := tr.startAgain("c", inbox.Bound{}, inbox.ModeKept)
	c.subscribe("a", 1)
	tr.publish("a", "m")
	c.only("m")
	c = tr.connectWith("c", inbox.OpenOptions{Expiry: lasting, Fresh: true, From: &inbox.Bound{}})
	c.subscribe("a", 1)
	c.only()
}
