package hooks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// dispatch hands out what there is, and then waits for more, or for somebody to
// hand it to. It never waits for a member: whoever has no room is passed over.
//
// Cost of a message at QoS 0 or 1: two locks, and encoding it where it waits to
// be written. At QoS 2 it is written to the member's inbox, with whatever else is
// handed out at this time.
func (g *group) dispatch() error {
	select {
	case <-g.wake: // what it stands for is looked at from here on
	default:
	}
	if err := g.recall(); err != nil {
		return err
	}
	if err := g.handOut(); err != nil {
		return err
	}
	return g.fetch()
}

// recall reads again what has come back. It goes before everything newer.
func (g *group) recall() error {
	at := g.takeBack()
	if len(at) == 0 {
		return nil
	}
	entries, err := g.inbox.Read(g.ctx, at)
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.back = slices.Sorted(slices.Values(append(g.back, at...)))
		return err
	}
	g.hand = append(g.hand, entries...)
	if len(entries) == len(at) {
		return nil
	}
	for _, e := range entries {
		at = slices.DeleteFunc(at, func(p inbox.Position) bool { return p == e.Position })
	}
	g.finish(at...) // they are gone
	return nil
}

// takeBack returns positions of messages to be taken in hand again, as many as
// there is room for, and lays away what is in hand if it is newer.
func (g *group) takeBack() []inbox.Position {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.hand); n > 0 && len(g.back) > 0 && g.back[0] < g.hand[n-1].Position {
		for _, e := range g.hand {
			g.back = append(g.back, e.Position)
		}
		slices.Sort(g.back)
		g.hand = nil
	}
	n := min(max(g.hook.options.PageMessages-len(g.hand), 0), len(g.back))
	at := slices.Clone(g.back[:n])
	g.back = g.back[n:]
	return at
}

// handOut gives what is in hand to members, each message to one, in turn.
func (g *group) handOut() error {
	if len(g.hand) == 0 {
		return nil
	}
	g.mu.Lock()
	members := g.members
	g.mu.Unlock()

	now := time.Now()
	var kept []inbox.Entry
	var done, parked []inbox.Position
	for i, e := range g.hand {
		o := g.place(members, e, now)
		switch o {
		case accepted:
		case finished:
			done = append(done, e.Position)
		case oversize:
			parked = append(parked, e.Position)
		default:
			kept = append(kept, e)
		}
		if o == busy { // everyone is
			kept = append(kept, g.hand[i+1:]...)
			break
		}
	}
	g.hand = kept
	if len(parked) > 0 {
		done = append(done, g.park(parked)...)
	}
	if len(done) > 0 {
		g.finish(done...)
	}
	return g.give()
}

// place finds a member for a message. The outcome is
//
//	accepted  a member has it, or is to be given it
//	finished  it is done: expired, or sent at QoS 0
//	busy      no member has room, for this or any other
//	passed    members for which it is not too large have no room; others may
//	          have room for what follows
//	oversize  it is too large for every member
func (g *group) place(members []*member, e inbox.Entry, now time.Time) outcome {
	if e.Envelope.Expired(now) { // [MQTT-3.3.2-5]
		g.hook.counts.expired.Add(1)
		return finished
	}
	g.mu.Lock()
	holder, returned := g.holders[e.Position]
	g.mu.Unlock()

	var waiting, tooLarge bool
	for i := range members {
		m := members[(g.turn+i)%len(members)]
		again := returned && (holder == "" || holder == m.session.link.client.ID)
		o, grant := m.offer(e, again, now)
		switch o {
		case busy:
			waiting = true
			continue
		case oversize:
			tooLarge = true
			continue
		case passed:
			continue
		case reserved:
			g.gifts[m] = append(g.gifts[m], inbox.Entry{Position: e.Position, Envelope: e.Envelope, Grant: grant})
			o = accepted
		}
		g.turn = (g.turn + i + 1) % len(members)
		return o
	}
	switch {
	case !tooLarge:
		return busy
	case waiting:
		return passed
	}
	return oversize
}

// live hands a message of QoS 0 to one member, at once or not at all. Runs on a
// goroutine of the store and never waits.
func (g *group) live(e inbox.Entry) {
	g.mu.Lock()
	members := g.members
	g.mu.Unlock()
	now := time.Now()
	for i := range members {
		m := members[(int(e.Envelope.ID.Sequence)+i)%len(members)]
		if o, _ := m.offer(e, false, now); o == finished {
			return
		}
	}
	g.hook.counts.liveDropped.Add(1)
}

// park lays away messages that are too large for everyone who is here: another
// member may take them. It returns those that are given up, when that is more
// than a page [MQTT-3.1.2-24].
func (g *group) park(at []inbox.Position) (dropped []inbox.Position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parked = append(g.parked, at...)
	n := max(len(g.parked)-g.hook.options.PageMessages, 0)
	dropped, g.parked = g.parked[:n], g.parked[n:]
	g.hook.counts.oversize.Add(uint64(n))
	return dropped
}

// give moves messages of QoS 2 into the inboxes of the members that were found
// for them: from there on they are theirs, whatever happens, and their pumps
// deliver them [MQTT-4.8.2-4] [MQTT-4.8.2-5].
func (g *group) give() (err error) {
	if len(g.gifts) == 0 {
		return nil
	}
	type result struct {
		to  *member
		err error
	}
	results := make(chan result, len(g.gifts))
	for m, entries := range g.gifts {
		g.inbox.Give(m.session.inbox, entries, func(err error) { results <- result{m, err} })
	}
	for range g.gifts {
		r := <-results
		entries := g.gifts[r.to]
		if r.err == nil {
			g.finish(positionsOf(entries)...)
			r.to.given(len(entries))
			continue
		}
		g.keep(entries)
		r.to.unreserve(len(entries))
		if !errors.Is(r.err, inbox.ErrFenced) {
			err = r.err
			continue
		}
		g.stir() // the member has left, or the group has ended, as Read will say
	}
	clear(g.gifts)
	return err
}

// keep lays away messages that found nobody after all.
func (g *group) keep(entries []inbox.Entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.back = slices.Sorted(slices.Values(append(g.back, positionsOf(entries)...)))
}

// fetch waits for new messages and takes them in hand, until it is stirred. When
// the hand is full, or so much is open that nothing more may be, it only waits.
func (g *group) fetch() error {
	g.mu.Lock()
	n := min(g.hook.options.PageMessages-len(g.hand), g.window.Room())
	if len(g.back) > 0 {
		n = 0
	}
	g.mu.Unlock()
	bytes := g.hook.options.PageBytes
	for _, e := range g.hand {
		bytes -= len(e.Envelope.Payload)
	}
	if n <= 0 || bytes <= 0 {
		g.wait(nil)
		return nil
	}

	ctx, rouse := context.WithCancel(g.ctx)
	defer rouse()
	g.rouse.Store(&rouse)
	defer g.rouse.Store(nil)
	if len(g.wake) > 0 { // stirred before there was a way to be roused
		return nil
	}
	entries, err := g.inbox.Next(ctx, n, bytes)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range entries {
		g.window.Send(e.Position, 1)
	}
	g.hand = append(g.hand, entries...)
	return nil
}

func positionsOf(entries []inbox.Entry) []inbox.Position {
	at := make([]inbox.Position, len(entries))
	for i := range entries {
		at[i] = entries[i].Position
	}
	return at
}
