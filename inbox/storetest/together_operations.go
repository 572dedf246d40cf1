package storetest

import (
	"errors"
	"sync/atomic"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// queue queues one operation, for anybody.
func (g *gathering) queue() {
	m := pick(g.random, g.all)
	switch chance := g.random.IntN(100); {
	case chance < 22:
		g.queuePublish()
	case chance < 36:
		g.queueOpen(m)
	case chance < 39:
		g.queueMode(m)
	case chance < 49:
		g.queueAcknowledge(m)
	case chance < 52:
		g.queueTidy()
	case chance < 56:
		g.queueDelete()
	case chance < 60:
		g.queueStale()
	case chance < 63:
		g.queuePull(m)
	case m.client == nil:
		g.queuePublish()
	case chance < 71:
		g.queueClose(m)
	case chance < 80:
		g.queueSave(m)
	case chance < 84:
		g.queueSubscribe(m)
	case chance < 87:
		g.queueLast(m)
	case chance < 89:
		g.queueShare(m)
	case chance < 94:
		g.queueUnsubscribe(m)
	default:
		g.queueExactly(m)
	}
}

// queueStale has one that is no owner any more do something.
func (g *gathering) queueStale() {
	if len(g.stale) == 0 {
		return
	}
	c := pick(g.random, g.stale)
	g.note("%s does something and is fenced", c.receiver)
	do := pick(g.random, []func() error{
		c.trySave,
		func() error { return c.Close(g.ctx, inbox.Ending{Expiry: pick(g.random, []inbox.Expiry{lasting, 0})}) },
		func() error { return second(c.Unsubscribe(g.ctx, "#", "chat/#")) },
		func() error { return second(c.Subscribe(g.ctx, inbox.Subscription{Filter: "+/a", QoS: 1})) },
		func() error { return c.tryPublish(1, message("chat/a", 2, "fenced")).err },
		func() error { return second(c.tryComplete(1)) },
	})
	g.begin(do, g.fails("one that is fenced", inbox.ErrFenced))
}

// queueTidy has the engine do what it does in the background, once at a time.
func (g *gathering) queueTidy() {
	if g.tidying != nil && !g.tidying.Load() {
		return
	}
	over := new(atomic.Bool)
	g.tidying = over
	g.note("tidies")
	g.begin(func() error { g.engine.Tidy(); over.Store(true); return nil }, g.succeeds("tidy"))
}

// succeeds returns what compares the error of an operation with none.
func (g *gathering) succeeds(what string) func(error) {
	return func(err error) {
		if err != nil {
			g.Fatalf("%s: %v", what, err)
		}
	}
}

// fails returns what compares the error of an operation with one.
func (g *gathering) fails(what string, want error) func(error) {
	return func(err error) {
		if !errors.Is(err, want) {
			g.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
}

func second[A any](_ A, err error) error { return err }
