package badger_test

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// fellow is what one session should be. What it was sent is never removed from it.
// One goroutine at a time uses it.
type fellow struct {
	*company
	name    inbox.Receiver
	lasting bool
	over    bool  // the session is not there, or not any more
	link    *link // nil while it is away
	subs    []inbox.Subscription
	entries []due
	read    int   // so many of them has the owner read
	live    []due // what the owner should have heard and was not asked for

	saved snapshot
	maybe []snapshot // one of these may have been stored since
	lazy  bool       // whatever the state becomes may be stored
}

// due is one message that a session should get.
type due struct {
	topic, payload string
	grant          inbox.Grant
	givenUp        bool           // does not come
	position       inbox.Position // once it was read
}

// snapshot is a delivery state, and how much was read then.
type snapshot struct {
	state inbox.State
	read  int
}

// give has the session get a message, if one of its subscriptions brings it.
func (f *fellow) give(e *inbox.Envelope) {
	grant, ok := f.grant(e)
	d := due{topic: e.Topic, payload: string(e.Payload), grant: grant}
	switch {
	case !ok || f.over:
	case grant.QoS > 0:
		f.entries = append(f.entries, d)
	case f.link != nil:
		f.live = append(f.live, d)
	}
}

// grant takes the matching subscriptions together.
func (f *fellow) grant(e *inbox.Envelope) (g inbox.Grant, ok bool) {
	for _, s := range f.subs {
		if !inbox.MatchTopic(s.Filter, e.Topic) || s.NoLocal && e.Client == string(f.name) {
			continue
		}
		ok = true
		g.QoS = max(g.QoS, min(s.QoS, e.QoS))
		g.Retain = g.Retain || e.Retain && s.RetainAsPublished
		if s.Identifier != 0 {
			g.Identifiers = append(g.Identifiers, s.Identifier)
		}
	}
	slices.Sort(g.Identifiers)
	return g, ok
}

func (f *fellow) find(filter string) int {
	return slices.IndexFunc(f.subs, func(s inbox.Subscription) bool { return s.Filter == filter })
}

// subscribe reports whether there was a subscription with that filter.
func (f *fellow) subscribe(s inbox.Subscription) (existed bool) {
	i := f.find(s.Filter)
	if i < 0 {
		f.subs = append(f.subs, s)
		return false
	}
	f.subs[i] = s
	return true
}

// unsubscribe gives up what was not read and came by that filter alone.
func (f *fellow) unsubscribe(filter string) (existed bool) {
	i := f.find(filter)
	if i < 0 {
		return false
	}
	f.subs = slices.Delete(f.subs, i, i+1)
	for i := f.read; i < len(f.entries); i++ {
		if d := &f.entries[i]; inbox.MatchTopic(filter, d.topic) && !f.covers(d.topic) {
			d.givenUp = true
		}
	}
	return true
}

func (f *fellow) covers(topic string) bool {
	return slices.ContainsFunc(f.subs, func(s inbox.Subscription) bool { return inbox.MatchTopic(s.Filter, topic) })
}

// waiting is how many entries must come.
func (f *fellow) waiting() (n int) {
	for _, d := range f.entries[f.read:] {
		if !d.givenUp {
			n++
		}
	}
	return n
}

// next returns what is to be read now, and nil if nothing is.
func (f *fellow) next() *due {
	for ; f.read < len(f.entries); f.read++ {
		if d := &f.entries[f.read]; !d.givenUp {
			f.read++
			return d
		}
	}
	return nil
}

// changed notes a delivery state that may be stored.
func (f *fellow) changed() {
	if f.lazy {
		f.maybe = append(f.maybe, f.now())
	}
}

func (f *fellow) now() snapshot { return snapshot{f.link.state(), f.read} }

// stored notes that the present state is stored, or a later one.
func (f *fellow) stored() { f.saved, f.maybe = f.now(), nil }

// gone notes that the link is over, and with it what ends with it.
func (f *fellow) gone() {
	f.link, f.live, f.lazy = nil, nil, false
	f.over = f.over || !f.lasting
}

// begin begins the session anew.
func (f *fellow) begin() {
	*f = fellow{company: f.company, name: f.name, lasting: f.lasting}
}

// resume goes back to the state that was found, and reports whether it is one that
// may have been stored.
func (f *fellow) resume(found inbox.State) bool {
	for _, s := range append(f.maybe, f.saved) {
		if sameState(s.state, found) {
			f.saved, f.maybe, f.read = s, nil, s.read
			return true
		}
	}
	return false
}

func sameState(a, b inbox.State) bool {
	return a.Sent == b.Sent && a.LastID == b.LastID && slices.Equal(a.Open, b.Open) && slices.Equal(a.Resting, b.Resting)
}

func sameGrant(a, b inbox.Grant) bool {
	return a.QoS == b.QoS && a.Retain == b.Retain && slices.Equal(a.Identifiers, b.Identifiers)
}

func sameSubscriptions(a, b []inbox.Subscription) bool {
	sorted := func(subs []inbox.Subscription) []inbox.Subscription {
		subs = slices.Clone(subs)
		for i := range subs {
			subs[i].RetainHandling = 0
		}
		slices.SortFunc(subs, func(a, b inbox.Subscription) int { return cmp.Compare(a.Filter, b.Filter) })
		return subs
	}
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(sorted(a), sorted(b))
}

// link is one connection of a session: its inbox, its window, and what it heard.
type link struct {
	inbox.Inbox
	mu     sync.Mutex
	window *inbox.Window
	live   []inbox.Entry
	wake   chan struct{} // holds one; a hint that live has grown
}

// linkWindow is more than a session gets without an acknowledgement.
const linkWindow = 4000

func openLink(s inbox.Store, r inbox.Receiver, o inbox.OpenOptions) (l *link, resumed bool, err error) {
	l = &link{window: inbox.NewWindow(linkWindow, inbox.State{}), wake: make(chan struct{}, 1)}
	o.State, o.Live = l.state, l.hear
	in, resumed, err := s.Open(background, r, o)
	if err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Inbox, l.window = in, inbox.NewWindow(linkWindow, in.State())
	return l, resumed, nil
}

// state runs on a goroutine of the engine too.
func (l *link) state() inbox.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.window.State()
}

// hear runs on a goroutine of the engine.
func (l *link) hear(e inbox.Entry) {
	l.mu.Lock()
	l.live = append(l.live, e)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// heard takes n live messages, or fewer if they do not come.
func (l *link) heard(n int) (got []inbox.Entry) {
	wait, cancel := patience()
	defer cancel()
	for {
		l.mu.Lock()
		if len(l.live) >= n || wait.Err() != nil {
			n = min(n, len(l.live))
			got, l.live = l.live[:n:n], l.live[n:]
			l.mu.Unlock()
			return got
		}
		l.mu.Unlock()
		select {
		case <-l.wake:
		case <-wait.Done():
		}
	}
}

// take reads at most n entries and has them open, in one step.
func (l *link) take(n int) (got []inbox.Entry, err error) {
	wait, cancel := patience()
	defer cancel()
	for len(got) < n && err == nil {
		var page []inbox.Entry
		page, err = l.Next(wait, n-len(got), 1<<20)
		got = append(got, page...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range got {
		l.window.Send(e.Position, e.QoS)
	}
	return got, err
}

func (l *link) acknowledge(open ...inbox.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range open {
		l.window.Ack(d.PacketID)
	}
}

// save stores the state now.
func (l *link) save() error {
	done := make(chan error, 1)
	l.Save(func(err error) { done <- err })
	return <-done
}
