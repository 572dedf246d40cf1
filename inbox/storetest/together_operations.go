package storetest

import (
	"errors"
	"fmt"
	"slices"
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

func (g *gathering) succeeds(what string) func(error) {
	return func(err error) {
		if err != nil {
			g.Fatalf("%s: %v", what, err)
		}
	}
}

func (g *gathering) fails(what string, want error) func(error) {
	return func(err error) {
		if !errors.Is(err, want) {
			g.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
}

func (g *gathering) message() *inbox.Envelope {
	voice := pick(g.random, voices)
	if voice == g.erasing {
		voice = "somebody else"
	}
	return said(voice, pick(g.random, places), fmt.Sprint(len(g.told)))
}

func (g *gathering) queuePublish() {
	for range 1 + g.random.IntN(3) {
		e := g.message()
		name := ""
		if len(g.keeping.History) > 0 && g.random.IntN(3) == 0 {
			name = fmt.Sprint(g.random.IntN(len(g.told) + 1))
			e.UserProperties = []inbox.UserProperty{{Key: inbox.PropertyMessageID, Value: name}}
		}
		key := e.Client + " " + name
		t := g.names[key]
		if t != nil && t.erased { // the name may be remembered, or not
			e.UserProperties, name, t = nil, "", nil
		}
		g.note("%s says %s in %s under %q, again %v", e.User, e.Payload, e.Topic, name, t != nil)
		g.main.append(e)
		g.queued++
		if t == nil {
			t = &told{envelope: *e}
			g.tell(t)
			if name != "" {
				g.names[key] = t
			}
		}
		g.numbered = append(g.numbered, t)
	}
}

// queueExactly publishes under a packet id, or forgets one.
func (g *gathering) queueExactly(m *guest) {
	c, id := m.client, uint16(1+g.random.IntN(3))
	known := m.recorded[id]
	g.queued++
	if g.random.IntN(2) == 0 {
		g.note("%s completes %d, known %v", m.receiver, id, known)
		done := make(chan error, 1)
		c.Complete(id, func(is bool, err error) {
			if err == nil && is != known {
				err = fmt.Errorf("packet id is known: %v", is)
			}
			done <- err
		})
		delete(m.recorded, id)
		g.ends = append(g.ends, func() { g.succeeds("complete")(<-done) })
		return
	}
	e := g.message()
	e.QoS = 2
	t := &told{envelope: *e}
	g.note("%s publishes %s in %s under %d, again %v", m.receiver, e.Payload, e.Topic, id, known)
	done := make(chan result, 1)
	c.Publish(g.ctx, id, e, func(r inbox.Receipt, err error) { done <- result{receipt: r, err: err} })
	if m.recorded[id] = true; !known {
		g.tell(t)
	}
	g.ends = append(g.ends, func() {
		r := <-done
		if r.err != nil || r.receipt.Duplicate != known {
			g.Fatalf("%s published under %d: %+v, %v; want a repeat: %v", m.receiver, id, r.receipt, r.err, known)
		}
		t.id, t.envelope.ID = r.receipt.ID, r.receipt.ID
	})
}

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
	g.note("%s comes for the %d. time, mode %d of %d, fresh %v, resumed %v, from %+v, will %d", m.receiver, n, o.Mode, m.mode, o.Fresh, resumed, o.From, g.wills)
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
	if all := last(); g.doubtful(m.readerModel, all) || slices.ContainsFunc(all, func(t *told) bool { return t.envelope.Expiry != 0 }) {
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

func second[A any](_ A, err error) error { return err }

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
		return i.expired(now) || !selected(a.Selection, &i.envelope) || !isNew && i.position <= a.After || a.Through != 0 && (isNew || i.position > a.Through)
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
			got[string(e.Envelope.Payload)] = true
			if !slices.ContainsFunc(items, func(i *item) bool { return string(i.envelope.Payload) == string(e.Envelope.Payload) }) {
				g.Fatalf("%s has pulled %s, which was not there", m.receiver, e.Envelope.Payload)
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

func (g *gathering) queueTidy() {
	if g.tidying != nil && !g.tidying.Load() {
		return
	}
	over := new(atomic.Bool)
	g.tidying = over
	g.note("tidies")
	g.begin(func() error { g.engine.Tidy(); over.Store(true); return nil }, g.succeeds("tidy"))
}

// queueDelete deletes a message, or everything of a sender.
func (g *gathering) queueDelete() {
	if len(g.keeping.History) == 0 {
		return
	}
	looking := slices.ContainsFunc(g.all, func(m *guest) bool { return m.looking })
	if g.erasing == "" && !looking && g.random.IntN(3) == 0 {
		g.queueErase(pick(g.random, voices))
		return
	}
	now := nowMillis()
	alive := slices.DeleteFunc(slices.Clone(g.told), func(t *told) bool {
		return t.id == (inbox.MessageID{}) || !g.kept(t, now+10_000) || t.erased || t.envelope.User == g.erasing
	})
	if len(alive) == 0 {
		return
	}
	t := pick(g.random, alive)
	g.note("delete %s", t.envelope.Payload)
	t.deleted = true
	g.begin(func() error { return g.store.Delete(g.ctx, t.id, "") }, g.succeeds("delete"))
}

func (g *gathering) queueErase(sender string) {
	g.note("erase %s", sender)
	g.erasing = sender
	all := slices.DeleteFunc(slices.Clone(g.told), func(t *told) bool { return t.envelope.User != sender })
	g.begin(func() error { return second(g.store.Erase(g.ctx, sender)) }, func(err error) {
		g.succeeds("erase")(err)
		after := nowMillis() // what was over by then may not have been found
		for _, t := range all {
			if g.kept(t, after) {
				t.deleted, t.erased = true, true
				t.envelope.User, t.envelope.Client = "", ""
			}
		}
	})
}
