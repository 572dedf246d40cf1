package badger_test

import (
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What the sessions of a company do. Several do something at the same time, while
// nobody publishes: what each should get does not depend on the others.

// fail ends what the session does; company.together ends the test.
func (f *fellow) fail(format string, args ...any) {
	f.Helper()
	f.Errorf(string(f.name)+" "+format, args...)
	runtime.Goexit()
}

func (f *fellow) tell(format string, args ...any) { f.note(string(f.name)+" "+format, args...) }

// act does something, and something else.
func (f *fellow) act(random *rand.Rand) {
	for range 1 + random.IntN(4) {
		if f.link == nil || random.IntN(60) == 0 {
			f.connect(random.IntN(40) == 0)
			continue
		}
		switch n := random.IntN(100); {
		case n < 35:
			f.subscribeOrUnsubscribe(random)
		case n < 60:
			f.take(random.IntN(1 + f.waiting()))
		case n < 78:
			f.acknowledgeSome(random)
		case n < 84:
			f.save()
		case n < 88:
			f.saveLazily()
		case n < 92:
			f.hear()
		default:
			f.leave(f.lasting && random.IntN(8) > 0)
		}
	}
}

// connect opens the inbox, also if it is open.
func (f *fellow) connect(fresh bool) {
	if f.link != nil {
		f.end()
	}
	o := inbox.OpenOptions{Fresh: fresh, Expiry: inbox.ExpiryAtOnce}
	if f.lasting {
		o.Expiry = inbox.ExpiryNever
	}
	f.tell("connects, fresh %v", fresh)
	l, resumed, err := openLink(f.store, f.name, o)
	if err != nil {
		f.fail("connects: %v", err)
	}
	if want := !f.over && !fresh; resumed != want {
		f.fail("connects: resumed is %v, want %v", resumed, want)
	}
	if !resumed {
		f.begin()
	}
	f.link = l
	if !f.resume(l.State()) {
		f.fail("found a state with sent %d, %d open, saved was one with sent %d, %d open, or one of %d later",
			l.State().Sent, len(l.State().Open), f.saved.state.Sent, len(f.saved.state.Open), len(f.maybe))
	}
	subs, err := l.Subscriptions(background)
	if err != nil || !sameSubscriptions(subs, f.subs) {
		f.fail("has the subscriptions %+v, %v, want %+v", subs, err, f.subs)
	}
	f.checkOpen()
}

// end notes that a link is over and may hear no more than it has.
func (f *fellow) end() {
	f.hear()
	f.ended(f.link)
	f.gone()
}

// checkOpen reads what is open.
func (f *fellow) checkOpen() {
	if !f.lasting {
		return
	}
	var at []inbox.Position
	for _, d := range f.link.state().Open {
		at = append(at, d.Position)
	}
	got, err := f.link.Read(background, at)
	if err != nil {
		f.fail("reads %d open entries: %v", len(at), err)
	}
	for i, p := range at {
		d := &f.entries[slices.IndexFunc(f.entries, func(d due) bool { return d.position == p })]
		if i == len(got) || got[i].Position != p {
			f.fail("does not find open entry %d of %d, %s at %d", i, len(at), d.payload, p)
		}
		f.compare(got[i], d)
	}
}

func (f *fellow) compare(e inbox.Entry, want *due) {
	switch {
	case string(e.Envelope.Payload) != want.payload:
		f.fail("got %s on %q with %+v, want %+v; it has %+v", e.Envelope.Payload, e.Envelope.Topic, e.Grant, *want, f.subs)
	case !sameGrant(e.Grant, want.grant):
		f.fail("got %s on %q with %+v, want %+v; it has %+v", want.payload, want.topic, e.Grant, want.grant, f.subs)
	case want.position != 0 && want.position != e.Position:
		f.fail("got %s at %d, and before at %d", want.payload, e.Position, want.position)
	}
}

// subscribeOrUnsubscribe does one or the other, as the tide is.
func (f *fellow) subscribeOrUnsubscribe(random *rand.Rand) {
	filter := groupFilters[random.IntN(len(groupFilters))]
	if random.IntN(4) == 0 != f.ebbs[filter] {
		if random.IntN(2) == 0 {
			f.save()
		}
		f.unsubscribeAll(filter)
		return
	}
	s := inbox.Subscription{
		Filter: filter, QoS: byte(random.IntN(3)), NoLocal: random.IntN(5) == 0,
		RetainAsPublished: random.IntN(2) == 0, RetainHandling: 2, Identifier: uint32(random.IntN(4)),
	}
	if i := f.find(filter); i >= 0 && random.IntN(3) == 0 {
		s = f.subs[i] // as when a client comes back
	}
	f.subscribeTo(s)
}

func (f *fellow) subscribeTo(s inbox.Subscription) {
	f.tell("subscribes %+v", s)
	existed, err := f.link.Subscribe(background, s)
	if want := f.subscribe(s); err != nil || existed[0] != want {
		f.fail("subscribes %q: existed %v, %v, want %v", s.Filter, existed, err, want)
	}
}

func (f *fellow) unsubscribeAll(filter string) {
	f.tell("unsubscribes %q", filter)
	f.maybe = append(f.maybe, f.now()) // the engine may store it
	existed, err := f.link.Unsubscribe(background, filter)
	if want := f.unsubscribe(filter); err != nil || existed[0] != want {
		f.fail("unsubscribes %q: existed %v, %v, want %v", filter, existed, err, want)
	}
}

// take reads n entries.
func (f *fellow) take(n int) {
	if n = min(n, linkWindow-len(f.link.state().Open)); n == 0 {
		return
	}
	f.tell("takes %d of %d", n, f.waiting())
	got, err := f.link.take(n)
	for _, e := range got {
		d := f.next()
		if d == nil {
			f.fail("got %s, and should have nothing more", e.Envelope.Payload)
		}
		f.compare(e, d)
		d.position = e.Position
	}
	if err != nil {
		f.fail("got %d entries of %d that it was to take: %v", len(got), n, err)
	}
	f.changed()
}

// acknowledgeSome finishes some of what is open, in any order.
func (f *fellow) acknowledgeSome(random *rand.Rand) {
	open := f.link.state().Open
	random.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	n := len(open)
	if random.IntN(2) == 0 {
		n = random.IntN(n + 1)
	}
	f.tell("acknowledges %d of %d", n, len(open))
	f.link.acknowledge(open[:n]...)
	f.changed()
}

func (f *fellow) save() {
	f.tell("saves")
	if err := f.link.save(); err != nil {
		f.fail("saves: %v", err)
	}
	f.stored()
	f.checkOpen()
}

func (f *fellow) saveLazily() {
	f.tell("saves at leisure")
	f.lazy = true
	f.changed()
	f.link.Save(nil)
}

// hear compares all that came live.
func (f *fellow) hear() {
	got := f.link.heard(len(f.live))
	if len(got) < len(f.live) {
		f.fail("heard %d live messages, want %d", len(got), len(f.live))
	}
	for i, e := range got {
		f.compare(e, &f.live[i])
	}
	f.live = nil
}

// leave closes the link, and the session with it if it is not to be kept.
func (f *fellow) leave(keep bool) {
	expiry := inbox.ExpiryAtOnce
	if keep {
		expiry = inbox.ExpiryNever
	}
	f.tell("leaves, expiry %d", expiry)
	f.stored()
	if err := f.link.Close(background, inbox.Ending{Expiry: expiry}); err != nil {
		f.fail("closes: %v", err)
	}
	f.end()
	f.over = !keep
}

// finish reads everything that the session should get, and acknowledges it.
func (f *fellow) finish() {
	if f.link == nil {
		f.connect(false)
	}
	for f.waiting() > 0 {
		f.take(f.waiting())
		f.link.acknowledge(f.link.state().Open...)
	}
	f.link.acknowledge(f.link.state().Open...)
	f.save()
	f.hear()
}
