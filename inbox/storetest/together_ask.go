package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// queueAcknowledge says that something is read that was there by now.
func (g *gathering) queueAcknowledge(m *guest) {
	if m.asking || m.startsAgain {
		return
	}
	var a inbox.Acknowledgement
	seen := slices.DeleteFunc(slices.Clone(m.items), func(i *item) bool { return i.position == 0 })
	switch chance := g.random.IntN(4); {
	case chance == 0 && len(seen) > 0:
		for range 1 + g.random.IntN(4) {
			a.IDs = append(a.IDs, pick(g.random, seen).id)
		}
	case chance == 1 && len(seen) > 0:
		a.Through = pick(g.random, seen).position
	case chance == 2 && len(seen) > 0:
		a.After, a.Selection = pick(g.random, seen).position, g.selection()
	default:
		a.Selection = g.selection()
	}
	now := nowMillis()
	meant := slices.DeleteFunc(slices.Clone(m.items), func(i *item) bool {
		if len(a.IDs) > 0 {
			return i.position == 0 || !slices.Contains(a.IDs, i.id)
		}
		isNew := i.position == 0 // behind all others
		before, behind := !isNew && i.position <= a.After, a.Through != 0 && (isNew || i.position > a.Through)
		return i.expired(now) || !selected(a.Selection, &i.envelope) || before || behind
	})
	most := 0
	for _, i := range meant {
		if i.unread(now) {
			most++
		}
	}
	existed := m.exists
	m.asking = true // another would wait for its turn
	g.note("%s acknowledges %+v, at most %d", m.receiver, a, most)
	g.begin(func() error {
		n, err := g.store.Acknowledge(g.ctx, m.receiver, a)
		if err == nil && n > most {
			err = fmt.Errorf("%d were unread", n)
		}
		return err
	}, func(err error) {
		if errors.Is(err, inbox.ErrNoSession) && (!existed || !m.isThere(meant)) {
			return
		}
		if err != nil || !existed {
			g.Fatalf("%s acknowledges: %v", m.receiver, err)
		}
		for _, i := range m.items {
			i.acked = i.acked || slices.Contains(meant, i) && i.unread(now)
		}
	})
}

// queuePull has a guest ask for what is unread: by what was stored then, it has all of
// it, but for what is finished in the same commit.
func (g *gathering) queuePull(m *guest) {
	items, existed, incarnation := slices.Clone(m.items), m.exists, m.incarnation
	g.note("%s pulls", m.receiver)
	var page inbox.Page
	g.begin(func() (err error) {
		page, err = g.store.Pull(g.ctx, m.receiver, inbox.Query{Max: unlimited, MaxBytes: unlimited})
		return err
	}, func(err error) {
		if !existed {
			g.fails("pull", inbox.ErrNoSession)(err)
			return
		}
		g.succeeds("pull")(err)
		got := map[string]bool{}
		for _, e := range page.Entries {
			payload := string(e.Envelope.Payload)
			got[payload] = true
			if !slices.ContainsFunc(items, func(i *item) bool { return string(i.envelope.Payload) == payload }) {
				g.Fatalf("%s has pulled %s, which was not there", m.receiver, payload)
			}
		}
		if m.startsAgain || m.incarnation != incarnation {
			return
		}
		for _, i := range items {
			if i.unread(nowMillis()) && slices.Contains(m.items, i) && !got[string(i.envelope.Payload)] {
				g.Fatalf("%s has not pulled %s", m.receiver, i.envelope.Payload)
			}
		}
	})
}
