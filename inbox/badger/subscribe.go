package badger

import (
	"context"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Subscriptions implements [inbox.Inbox].
func (h *handle) Subscriptions(ctx context.Context) ([]inbox.Subscription, error) {
	return run(ctx, h.s, "list subscriptions", func(*commitGroup) ([]inbox.Subscription, error) {
		if !h.owns() {
			return nil, inbox.ErrFenced
		}
		return h.s.index.Subscriptions(h.member), nil
	})
}

// Subscribe implements [inbox.Inbox]: the index changes between two messages
// of the same order, so a subscription begins exactly where it was committed.
func (h *handle) Subscribe(ctx context.Context, subs ...inbox.Subscription) ([]bool, error) {
	type subscribed struct {
		existed []bool
		since   inbox.Position
	}
	r, err := run(ctx, h.s, "subscribe", func(g *commitGroup) (r subscribed, err error) {
		if !h.owns() {
			return r, inbox.ErrFenced
		}
		if g.critical && h.stored {
			return r, inbox.ErrFull
		}
		r.since = h.s.sequence
		for _, sub := range subs {
			r.existed = append(r.existed, h.s.index.Subscribe(h.member, sub))
			if err := g.joinGroup(sub); err != nil {
				return r, err
			}
			if !h.stored {
				continue
			}
			if err := g.putSubscription(h.incarnation, sub); err != nil {
				return r, err
			}
		}
		return r, nil
	})
	if err != nil {
		return nil, err
	}
	for i, sub := range subs {
		if !wantsRetained(sub, r.existed[i]) {
			continue
		}
		if err := h.sendRetained(ctx, sub, r.since); err != nil {
			return r.existed, err
		}
	}
	return r.existed, nil
}

// wantsRetained reports whether a SUBSCRIBE brings retained messages.
func wantsRetained(sub inbox.Subscription, existed bool) bool {
	if _, _, shared := inbox.Shared(sub.Filter); shared {
		return false
	}
	return sub.RetainHandling == 0 || sub.RetainHandling == 1 && !existed // [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
}

func (g *commitGroup) putSubscription(inc incarnation, sub inbox.Subscription) error {
	value, err := appendSubscription(nil, sub)
	if err != nil {
		return err
	}
	g.put(subscriptionKey(inc, sub.Filter), value)
	return nil
}

// Unsubscribe implements [inbox.Inbox].
func (h *handle) Unsubscribe(ctx context.Context, filters ...string) ([]bool, error) {
	return run(ctx, h.s, "unsubscribe", func(g *commitGroup) (existed []bool, err error) {
		if !h.owns() {
			return nil, inbox.ErrFenced
		}
		for _, filter := range filters {
			was := h.s.index.Unsubscribe(h.member, filter)
			existed = append(existed, was)
			if was && h.stored {
				g.delete(subscriptionKey(h.incarnation, filter))
			}
			g.leaveGroup(filter)
		}
		return existed, nil
	})
}
