package hooks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// retryGroup is how long a dispatcher waits after the store has failed it.
const retryGroup = time.Second

// group is one shared subscription while clients are connected that have it. Its
// messages are in an inbox of the group's own; the dispatcher takes them page by
// page and hands each to one member. A message is open in the group until a
// member has acknowledged it, or, at QoS 2, has it in its own inbox.
type group struct {
	hook   *Hook
	filter string
	ctx    context.Context // ends when the last member has left
	cancel context.CancelFunc
	users  int // members that have not left; guarded by Hook.mu

	wake  chan struct{}                      // holds one: there is something new to look at
	rouse atomic.Pointer[context.CancelFunc] // ends the wait for messages; nil while there is none

	// The dispatcher's own.
	hand  []inbox.Entry             // open, and with nobody yet, ascending
	turn  int                       // the member that is asked first
	gifts map[*member][]inbox.Entry // to be moved into their inboxes

	mu      sync.Mutex // guards everything below; never held while the store is called
	inbox   inbox.Inbox
	members []*member                 // replaced and never changed
	window  *inbox.Window             // its packet ids mean nothing
	back    []inbox.Position          // open, with nobody and not in hand, ascending
	parked  []inbox.Position          // the same, but too large for everyone who is here
	holders map[inbox.Position]string // of those that came back: the client that had it last, or "" if that is not known
}

// join returns the group of a filter, with the caller counted as a member. Runs
// on a connection's read goroutine.
func (h *Hook) join(filter string) *group {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.groups[filter]
	if g == nil {
		ctx, cancel := context.WithCancel(context.Background())
		g = &group{
			hook: h, filter: filter, ctx: ctx, cancel: cancel,
			wake:   make(chan struct{}, 1),
			gifts:  map[*member][]inbox.Entry{},
			window: inbox.NewWindow(inbox.MaxWindow, inbox.State{}),
		}
		h.groups[filter] = g
		h.dispatchers.Add(1)
		go g.run()
	}
	g.users++
	return g
}

// leave is the end of what join began. The last one ends the dispatcher.
func (h *Hook) leave(g *group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.users--; g.users == 0 {
		delete(h.groups, g.filter)
		g.cancel()
	}
}

// run is the dispatcher, a goroutine of the group. It waits for the one that the
// group had before, and outlives the group's end in the store: the group may
// begin again, as long as there is someone to join it.
func (g *group) run() {
	defer g.hook.dispatchers.Done()
	turn := string(inbox.GroupReceiver(g.filter))
	if err := g.hook.turns.take(g.ctx, turn); err != nil {
		return
	}
	defer g.hook.turns.give(turn)
	for g.ctx.Err() == nil {
		err := g.serve()
		switch {
		case g.ctx.Err() != nil, errors.Is(err, inbox.ErrFenced):
		case errors.Is(err, inbox.ErrNoSession):
			g.wait(nil)
		case errors.Is(err, inbox.ErrClosed):
			return
		default:
			g.hook.log.Error("group not opened", "filter", g.filter, "error", err)
			g.wait(time.After(retryGroup))
		}
	}
}

// serve delivers the group's messages for as long as its inbox can be used.
func (g *group) serve() error {
	in, _, err := g.hook.store.Open(g.ctx, inbox.GroupReceiver(g.filter), inbox.OpenOptions{
		Resume: true,
		Expiry: inbox.ExpiryNever,
		State:  g.state,
		Live:   g.live,
	})
	if err != nil {
		return err
	}
	g.begin(in)
	for g.ctx.Err() == nil {
		err := g.dispatch()
		switch {
		case err == nil, g.ctx.Err() != nil:
		case errors.Is(err, inbox.ErrFenced), errors.Is(err, inbox.ErrClosed):
			return err
		default:
			g.hook.log.Error("group not delivered", "filter", g.filter, "error", err)
			g.pause()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), handover)
	defer cancel()
	if err := in.Close(ctx, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil && !errors.Is(err, inbox.ErrFenced) {
		g.hook.log.Error("group not given back", "filter", g.filter, "error", err)
	}
	return nil
}

// begin continues from the stored state: what is open was with members of
// earlier connections, and is with nobody now.
func (g *group) begin(in inbox.Inbox) {
	state := in.State()
	g.hand = nil
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inbox = in
	g.window = inbox.NewWindow(inbox.MaxWindow, state)
	g.holders = map[inbox.Position]string{}
	g.back, g.parked = nil, nil
	for _, d := range state.Open {
		g.back = append(g.back, d.Position)
		g.holders[d.Position] = ""
	}
}

// state is what the store saves. Runs on a goroutine of the store.
func (g *group) state() inbox.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.window.State()
}

// stir has the dispatcher look again: somebody has room, has come, or has gone.
// Runs on any goroutine, with any lock held, and never waits.
func (g *group) stir() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
	if rouse := g.rouse.Load(); rouse != nil {
		(*rouse)()
	}
}

// wait returns when the dispatcher is stirred, the group ends or, if there is an
// alarm, at that.
func (g *group) wait(alarm <-chan time.Time) {
	select {
	case <-g.wake:
	case <-g.ctx.Done():
	case <-alarm:
	}
}

// pause is wait for a while, whoever stirs the dispatcher: what it has failed to give makes
// room, which stirs those that wait for it.
func (g *group) pause() {
	select {
	case <-g.ctx.Done():
	case <-time.After(retryGroup):
	}
}

// add makes m one that messages are handed to.
func (g *group) add(m *member) {
	g.mu.Lock()
	g.members = append(slices.Clip(g.members), m)
	g.back = slices.Sorted(slices.Values(append(g.back, g.parked...)))
	g.parked = nil
	g.mu.Unlock()
	g.stir()
}

// remove takes m out, and what it was sent and has not finished back.
func (g *group) remove(m *member, sent []inbox.Position) {
	g.mu.Lock()
	g.members = slices.DeleteFunc(slices.Clone(g.members), func(other *member) bool { return other == m })
	for _, p := range sent {
		if g.isOpenLocked(p) { // else of an earlier life of the group
			g.back = append(g.back, p)
			g.holders[p] = m.session.link.client.ID
		}
	}
	slices.Sort(g.back)
	g.mu.Unlock()
	g.stir()
}

func (g *group) isOpenLocked(p inbox.Position) bool {
	_, ok := slices.BinarySearchFunc(g.window.Open(), p, func(d inbox.Delivery, p inbox.Position) int {
		return cmp.Compare(d.Position, p)
	})
	return ok
}

// finish ends the delivery of messages, and has that saved some time soon.
func (g *group) finish(done ...inbox.Position) {
	g.mu.Lock()
	full := g.window.Room() == 0
	for _, p := range done {
		g.window.Drop(p)
		delete(g.holders, p)
	}
	in := g.inbox
	g.mu.Unlock()
	if full {
		g.stir()
	}
	in.Save(nil)
}
