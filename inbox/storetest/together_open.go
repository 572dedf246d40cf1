package storetest

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// queueOpen has a guest connect, though it may be connected.
func (g *gathering) queueOpen(m *guest) {
	o := inbox.OpenOptions{
		Expiry: m.expiry, Fresh: g.random.IntN(4) == 0, Will: g.willFor(),
		Mode: pick(g.random, []inbox.Mode{inbox.ModeKept, inbox.ModePush, inbox.ModePull}),
	}
	if m.client != nil {
		g.stale = append(g.stale, m.client)
	}
	resumed := m.exists && !o.Fresh && m.expiry != inbox.ExpiryAtOnce
	if !resumed {
		m.end()
		g.bury(m)
	}
	if m.exists = true; o.Will == nil {
		m.will = nil
	} else {
		m.will = o.Will.Envelope
	}
	if m.mode == inbox.ModeKept {
		m.mode = inbox.ModePush
	}
	if o.Mode != inbox.ModeKept {
		m.mode = o.Mode
	}
	if m.undo != nil { // it is fenced before it has started again
		m.undo()
	}
	m.leave()
	if g.keeping.Rewind > 0 && resumed && !m.unsure && !m.asking && g.random.IntN(4) == 0 {
		o.From = &inbox.Bound{}
		at := -1
		if len(m.items) > 0 && g.random.IntN(3) > 0 {
			if n := g.random.IntN(len(m.items)); m.items[n].position != 0 {
				at, o.From.Position = n, m.items[n].position
			}
		}
		m.undo = m.snapshot()
		m.again(at)
		m.startsAgain = true
	}
	m.opening++
	n, mode := m.opening, m.mode
	g.note("%s comes for the %d. time, mode %d of %d, fresh %v, resumed %v, from %+v, will %d",
		m.receiver, n, o.Mode, m.mode, o.Fresh, resumed, o.From, g.wills)
	m.begin(slices.ContainsFunc(m.items, func(i *item) bool { return i.saved == onWay }))
	var c *client
	g.begin(func() (err error) {
		c, err = g.tryConnect(m.receiver, o)
		return err
	}, func(err error) {
		switch {
		case err != nil:
			g.Fatalf("%s comes: %v", m.receiver, err)
		case c.resumed != resumed || c.Mode() != mode:
			g.Fatalf("%s has come, resumed %v, mode %d, want %v, %d", m.receiver, c.resumed, c.Mode(), resumed, mode)
		case m.opening != n:
			g.fails("an earlier owner saves", inbox.ErrFenced)(c.trySave())
			return
		}
		if m.client = c; m.behind && len(c.State().Open) == 0 {
			m.goBack()
		}
	})
}

// queueClose has a guest leave, for now or for good.
func (g *gathering) queueClose(m *guest) {
	end := inbox.Ending{Expiry: m.expiry, Goodbye: g.random.IntN(3) == 0}
	if g.random.IntN(3) == 0 {
		end.Expiry = inbox.ExpiryAtOnce
	}
	g.note("%s closes, %+v", m.receiver, end)
	c := m.client
	g.stale = append(g.stale, c)
	m.save()
	m.leave()
	if end.Expiry == inbox.ExpiryAtOnce {
		m.end()
	}
	if end.Goodbye {
		m.will = nil
	}
	g.bury(m)
	g.begin(func() error { return c.Close(g.ctx, end) }, g.succeeds("close"))
}

func (g *gathering) queueSave(m *guest) {
	g.note("%s saves", m.receiver)
	m.save()
	g.begin(m.client.trySave, g.succeeds("save"))
}

func (g *gathering) queueMode(m *guest) {
	mode := pick(g.random, []inbox.Mode{inbox.ModePush, inbox.ModePull})
	g.note("%s is to be in mode %d", m.receiver, mode)
	set := func() error { _, err := g.store.SetMode(g.ctx, m.receiver, mode); return err }
	if !m.exists {
		g.begin(set, g.fails("set mode", inbox.ErrNoSession))
		return
	}
	m.mode = mode
	g.begin(set, g.succeeds("set mode"))
}
