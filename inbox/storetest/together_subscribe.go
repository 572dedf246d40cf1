package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func (g *gathering) queueSubscribe(m *guest) {
	sub := inbox.Subscription{Filter: pick(g.random, filters), QoS: 1, RetainHandling: 2}
	want := slices.Contains(m.subs, sub.Filter)
	g.note("%s subscribes to %s, existed %v", m.receiver, sub.Filter, want)
	if !want {
		m.subs = append(m.subs, sub.Filter)
	}
	c := m.client
	g.begin(func() error {
		existed, err := c.Subscribe(g.ctx, sub)
		if err == nil && existed[0] != want {
			err = fmt.Errorf("existed: %v", existed)
		}
		return err
	}, g.succeeds("subscribe"))
}

// queueLast subscribes to what comes and the last that there is. It takes two steps: it
// counts from the second on, and what is unread by the first does not come again.
func (g *gathering) queueLast(m *guest) {
	if len(g.keeping.History) == 0 || g.erasing != "" || m.asking || m.startsAgain {
		return
	}
	sub := inbox.Subscription{Filter: pick(g.random, filters), QoS: 1, RetainHandling: 2, Last: 1 + g.random.IntN(6)}
	last := func() (all []*told) {
		for _, t := range g.told {
			if covers(sub.Filter, t.envelope.Topic) && g.kept(t, nowMillis()) && !t.deleted {
				all = append(all, t)
			}
		}
		return all[max(len(all)-sub.Last, 0):]
	}
	all := last()
	if g.doubtful(m.readerModel, all) || slices.ContainsFunc(all, func(t *told) bool { return t.envelope.Expiry != 0 }) {
		return // it is not known which of them come
	}
	m.asking, m.looking = true, true // one at a time
	g.note("%s subscribes to %s, the last %d", m.receiver, sub.Filter, sub.Last)
	c, want := m.client, error(nil)
	g.next = append(g.next, func() {
		if m.looking = false; m.client != c {
			want = inbox.ErrFenced
			g.trailing++ // an engine may have to clean up
			return
		}
		if !slices.Contains(m.subs, sub.Filter) {
			m.subs = append(m.subs, sub.Filter)
		}
		unread := m.unread(inbox.Selection{}, nowMillis())
		for _, t := range last() {
			if !slices.ContainsFunc(unread, func(i *item) bool { return i.told == t }) {
				m.items = append(m.items, &item{told: t})
			}
		}
	})
	g.begin(func() error { return second(c.Subscribe(g.ctx, sub)) }, func(err error) {
		if !errors.Is(err, want) {
			g.Fatalf("subscribe to the last: %v, want %v", err, want)
		}
	})
}

func (g *gathering) queueUnsubscribe(m *guest) {
	if len(m.subs) < 2 || m.looking || m.unsubs == mostUnsubscribed && g.keeping.Rewind > 0 {
		return
	}
	m.unsubs++
	g.queueSave(m) // engines may
	filter := pick(g.random, m.subs)
	g.note("%s unsubscribes from %s", m.receiver, filter)
	m.giveUp(filter)
	m.unsure = true // what is being acknowledged may come, or not, when it starts again
	c := m.client
	g.begin(func() error {
		existed, err := c.Unsubscribe(g.ctx, filter)
		if err == nil && !existed[0] {
			err = errors.New("did not exist")
		}
		return err
	}, g.succeeds("unsubscribe"))
}

// queueShare has a guest join a group, or leave it. Nobody reads what the group has.
func (g *gathering) queueShare(m *guest) {
	c, was := m.client, m.shares
	m.shares = !was
	g.note("%s shares %v", m.receiver, m.shares)
	g.begin(func() error {
		var existed []bool
		var err error
		if was {
			existed, err = c.Unsubscribe(g.ctx, shared)
		} else {
			existed, err = c.Subscribe(g.ctx, inbox.Subscription{Filter: shared, QoS: 2})
		}
		if err == nil && existed[0] != was {
			err = fmt.Errorf("existed: %v", existed)
		}
		return err
	}, g.succeeds("share"))
}

const shared = inbox.SharePrefix + "together/chat/#"

// mostUnsubscribed is less than what engines remember to be given up.
const mostUnsubscribed = 40
