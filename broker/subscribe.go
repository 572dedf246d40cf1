package broker

import (
	"context"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Subscribe has handle called with every message that matches a filter and is
// published from now on, by a client or with [Broker.Publish], at every QoS, once
// it is stored. Those of QoS 1 and 2 come in the order of storing. What is
// retained comes first, with Entry.Retain set.
//
// handle is called by one goroutine at a time, and may take its time: messages of
// QoS 1 and 2 wait in the store, those of QoS 0 are dropped when too many wait. It
// must not change the envelope, nor call Close. What was not handled when the
// program ends is not kept for it: a program that must miss nothing connects as a
// client with a session.
//
// The subscription ends with the broker, or when stop is called; a last call of
// handle may be under way then. While there is one, messages of QoS 0 go through
// the store, which takes them longer.
func (b *Broker) Subscribe(ctx context.Context, filter string, handle func(inbox.Entry)) (stop func(), err error) {
	stop, err = b.hook.Subscribe(ctx, filter, handle)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return stop, nil
}
