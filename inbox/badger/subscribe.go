package badger

import (
	"context"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Subscriptions implements [inbox.Inbox]. The first time after Open, and before
// they change, it costs a lock.
func (h *handle) Subscriptions(ctx context.Context) ([]inbox.Subscription, error) {
	if err := h.usable(); err != nil {
		return nil, err
	}
	if subs := h.takeSubscribed(); subs != nil {
		return subs, nil
	}
	return run(ctx, h.s, "list subscriptions", func(*commitGroup) ([]inbox.Subscription, error) {
		if !h.owns() {
			return nil, inbox.ErrFenced
		}
		return append(h.s.index.Subscriptions(h.member), h.s.streams.members.Subscriptions(h.member)...), nil
	})
}

// takeSubscribed returns the subscriptions as they were when h was opened, the
// first time and if they are still so. Nobody but its owner changes them.
func (h *handle) takeSubscribed() []inbox.Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	subs := h.subscribed
	h.subscribed = nil
	return subs
}

// Subscribe implements [inbox.Inbox]: the index changes between two messages
// of the same order, so a subscription begins exactly where it was committed.
func (h *handle) Subscribe(ctx context.Context, subs ...inbox.Subscription) ([]bool, error) {
	h.takeSubscribed() // which change
	last := h.wantsLast(subs)
	if last != nil {
		done, err := h.s.turns.take(ctx, h.receiver)
		if err == nil {
			defer done()
			err = last.prepare(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("subscribe: %w", err)
		}
	}
	type subscribed struct {
		existed []bool
		since   inbox.Position
		brought []inbox.Position
	}
	r, err := run(ctx, h.s, "subscribe", func(g *commitGroup) (r subscribed, err error) {
		if last != nil {
			defer g.takeIn(last)
		}
		if !h.owns() {
			return r, inbox.ErrFenced
		}
		if g.critical && h.stored || g.full && last != nil {
			return r, inbox.ErrFull
		}
		if !h.s.mayChange(h.member, subs) {
			return r, inbox.ErrFull
		}
		r.since = h.s.sequence
		for i, sub := range subs {
			r.existed = append(r.existed, g.subscribe(h, sub))
			if last == nil {
				continue
			}
			brought, err := g.bringLast(last, i, !r.existed[i])
			if err != nil {
				return r, err
			}
			r.brought = append(r.brought, brought...)
		}
		return r, nil
	})
	if err != nil {
		last.giveUp()
		return nil, err
	}
	for i, sub := range subs {
		if !wantsRetained(sub, r.existed[i]) {
			continue
		}
		if err := h.sendRetained(ctx, sub, r.since, r.brought); err != nil {
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

// Unsubscribe implements [inbox.Inbox]. What was had though it was not sent is not given up,
// nor is what groups have given.
func (h *handle) Unsubscribe(ctx context.Context, filters ...string) ([]bool, error) {
	h.takeSubscribed() // which change
	gifts, err := h.giftsBefore()
	if err != nil {
		return nil, fmt.Errorf("unsubscribe: %w", err)
	}
	var had had
	if h.s.rewind > 0 && h.hasAcked() {
		if had, err = h.hadBy(ctx, filters); err != nil {
			return nil, fmt.Errorf("unsubscribe: %w", err)
		}
	}
	return run(ctx, h.s, "unsubscribe", func(g *commitGroup) ([]bool, error) {
		if !h.owns() {
			return nil, inbox.ErrFenced
		}
		g.keepHad(h, had)
		for _, p := range h.gifts {
			gifts = gifts.Append(inbox.Span{After: p - 1, Through: p})
		}
		return g.unsubscribe(h, filters, func(filter string) inbox.Spans { return gifts.Union(had[filter]) }), nil
	})
}
