package hooks

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A resumed session's subscriptions go into the MQTT library's index, for messages
// of QoS 0, at 2 µs each. Where they are many, that is done beside the delivery of
// what has waited, after CONNACK. A QoS 0 message that one of them matches waits
// for it meanwhile: whatever is published after CONNACK comes.
const (
	restoreLater = 32 // subscriptions; for fewer, nobody is made to wait
	mostRestores = 4  // sessions at a time, which bounds what is looked at for a message
)

// restoring is a session whose subscriptions the index does not have yet.
type restoring struct {
	subs []inbox.Subscription
	done chan struct{} // closed when it has all
}

// restores are the sessions that are being restored.
type restores [mostRestores]atomic.Pointer[restoring]

// begin notes that the subscriptions will be in the index only after CONNACK, or
// returns nil if they must be before it.
func (all *restores) begin(subs []inbox.Subscription) *restoring {
	// Nothing of QoS 0 waits for the server's own topics, see OnPublish.
	if len(subs) < restoreLater || slices.ContainsFunc(subs, func(s inbox.Subscription) bool { return isSystem(s.Filter) }) {
		return nil
	}
	r := &restoring{subs: subs, done: make(chan struct{})}
	for i := range all {
		if all[i].CompareAndSwap(nil, r) {
			return r
		}
	}
	return nil
}

// end lets those go on that wait.
func (all *restores) end(r *restoring) {
	for i := range all {
		if all[i].CompareAndSwap(r, nil) {
			close(r.done)
		}
	}
}

// matching returns a session being restored that is subscribed to a topic, or
// nil. Cost: a few loads; while there is one, 20 ns for each of its subscriptions.
func (all *restores) matching(topic string) *restoring {
	for i := range all {
		if r := all[i].Load(); r != nil && r.matches(topic) {
			return r
		}
	}
	return nil
}

func (r *restoring) matches(topic string) bool {
	return slices.ContainsFunc(r.subs, func(s inbox.Subscription) bool { return inbox.MatchTopic(s.Filter, topic) })
}

// wait returns when the index has everyone who was subscribed to a topic when it
// was called. Runs on the publisher's read goroutine.
func (all *restores) wait(ctx context.Context, topic string) {
	for i := range all {
		r := all[i].Load()
		if r == nil || !r.matches(topic) {
			continue
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return
		}
	}
}
