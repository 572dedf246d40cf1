package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// library is a store, and a plain list of what should be in it.
type library struct {
	*trial
	random *rand.Rand
	told   []*told // everything that was published, in order
	models []*readerModel
	steps  []string
}

var (
	voices  = []string{"ann", "bob", "eve"}
	places  = []string{"chat", "chat/a", "chat/a/b", "chat/b", "other/a", "other/b"}
	filters = []string{"chat/#", "chat/a", "chat/+", "+/b", "other/#", "#", "+/a"}
)

// randomAsking publishes, delivers, pulls, acknowledges, deletes, expires and restarts in
// any order, and compares what is unread and what is in history with a list, after each
// step.
func randomAsking(tr *trial) {
	l := &library{trial: tr, random: newRandom(tr)}
	for _, r := range []inbox.Receiver{"ann's phone", "bob's phone", "eve's web"} {
		l.models = append(l.models, &readerModel{receiver: r})
		l.open(l.models[len(l.models)-1])
	}
	defer func() {
		if tr.Failed() {
			last := l.steps[max(len(l.steps)-60, 0):]
			tr.Logf("the last %d of %d steps:\n%s", len(last), len(l.steps), strings.Join(last, "\n"))
		}
	}()
	steps := size(600, 150)
	if l.random.IntN(2) == 0 { // so many that an engine may prepare something
		l.publish(700)
		steps /= 3
	}
	begin, n := time.Now(), 0
	for ; n < steps && time.Since(begin) < 5*time.Second; n++ { // a slow machine does less
		l.step()
		l.check(pick(l.random, l.models))
	}
	l.Logf("%d steps of %d", n, steps)
	l.restart()
	for _, m := range l.models {
		l.check(m)
	}
	l.checkHistory()
}

func pick[E any](random *rand.Rand, from []E) E { return from[random.IntN(len(from))] }

func (l *library) note(format string, args ...any) {
	l.steps = append(l.steps, fmt.Sprintf(format, args...))
}

func (l *library) step() {
	m := pick(l.random, l.models)
	switch chance := l.random.IntN(100); {
	case chance < 25:
		l.publish(1 + l.random.IntN(5))
	case chance < 27:
		l.restart()
	case chance < 37:
		l.acknowledge(m)
	case chance < 47:
		l.walk(m)
	case chance < 52:
		l.checkHistory()
	case chance < 56 && l.keeping.History != nil:
		l.delete()
	case m.client == nil || chance < 66:
		l.open(m)
	case chance < 70:
		l.subscribe(m)
	case chance < 72:
		l.unsubscribe(m)
	case chance < 82:
		l.read(m)
	case chance < 90:
		l.finish(m)
	case chance < 96:
		l.save(m)
	default:
		l.note("%s closes", m.receiver)
		m.client.close(lasting)
		m.save()
		m.leave()
	}
}

// publish returns what was stored.
func (l *library) publish(n int) (all []*told) {
	var es []*inbox.Envelope
	for range n {
		e := said(pick(l.random, voices), pick(l.random, places), fmt.Sprint(len(l.told)+len(es)))
		switch l.random.IntN(12) {
		case 0:
			e.Expiry = e.Time + 20 + l.random.Int64N(300)
		case 1:
			e.Expiry = e.Time - time.Minute.Milliseconds()
		}
		l.note("%s says %s in %s, for %d ms", e.User, e.Payload, e.Topic, max(e.Expiry-e.Time, 0))
		es = append(es, e)
		all = append(all, &told{envelope: *e})
	}
	for i, r := range l.append(es...) {
		all[i].id, all[i].envelope.ID = r.ID, r.ID
		for _, m := range l.models {
			if m.covers(all[i].envelope.Topic) {
				m.items = append(m.items, &item{told: all[i]})
			}
		}
	}
	l.told = append(l.told, all...)
	return all
}

func (l *library) restart() {
	l.note("restart")
	l.trial.restart()
	for _, m := range l.models {
		m.leave()
	}
}

func (l *library) open(m *readerModel) {
	o := inbox.OpenOptions{Expiry: lasting, Mode: pick(l.random, []inbox.Mode{inbox.ModeKept, inbox.ModePush, inbox.ModePull})}
	if l.random.IntN(12) == 0 {
		o.Fresh = true
		*m = readerModel{receiver: m.receiver, client: m.client}
	}
	if m.mode == inbox.ModeKept {
		m.mode = inbox.ModePush
	}
	if o.Mode != inbox.ModeKept {
		m.mode = o.Mode
	}
	if l.keeping.Rewind > 0 && !m.unsure && l.random.IntN(6) == 0 {
		o.From = &inbox.Bound{}
		at := -1
		if len(m.items) > 0 && l.random.IntN(3) > 0 {
			if n := l.random.IntN(len(m.items)); m.items[n].position != 0 {
				at, o.From.Position = n, m.items[n].position
			}
		}
		m.leave()
		m.again(at)
	}
	l.note("%s comes, mode %d of %d, fresh %v, from %+v", m.receiver, o.Mode, m.mode, o.Fresh, o.From)
	m.arrive(l.connectWith(m.receiver, o))
	if got := m.client.Mode(); got != m.mode {
		l.Fatalf("%s is in mode %d, want %d", m.receiver, got, m.mode)
	}
	if len(m.subs) == 0 {
		l.subscribe(m)
	}
}

// subscribe leaves it out that the last come where it is not known which.
func (l *library) subscribe(m *readerModel) {
	filter := pick(l.random, filters)
	sub := inbox.Subscription{Filter: filter, QoS: 1, Last: l.random.IntN(3) * l.random.IntN(8)}
	now := nowMillis()
	var last []*told
	for _, t := range l.told {
		if covers(filter, t.envelope.Topic) && l.kept(t, now) && !t.deleted {
			last = append(last, t)
		}
	}
	last = last[max(len(last)-sub.Last, 0):]
	if slices.ContainsFunc(last, func(t *told) bool { return t.expired(now + 1000) }) || l.doubtful(m, last) {
		sub.Last, last = 0, nil // it is not known which of them come
	}
	l.note("%s subscribes to %s, the last %d", m.receiver, filter, sub.Last)
	m.client.add(sub)
	if !slices.Contains(m.subs, filter) {
		m.subs = append(m.subs, filter)
	}
	for _, t := range last {
		if !slices.ContainsFunc(m.unread(inbox.Selection{}, now), func(i *item) bool { return i.told == t }) {
			m.items = append(m.items, &item{told: t})
		}
	}
}

// doubtful reports whether a message is finished, and the store may not know.
func (l *library) doubtful(m *readerModel, all []*told) bool {
	return slices.ContainsFunc(m.items, func(i *item) bool { return i.now != i.saved && slices.Contains(all, i.told) })
}

func (l *library) unsubscribe(m *readerModel) {
	if len(m.subs) < 2 {
		return
	}
	filter := pick(l.random, m.subs)
	l.save(m) // engines may
	l.note("%s unsubscribes from %s", m.receiver, filter)
	m.client.unsubscribe(filter)
	m.giveUp(filter)
}

// read has Next return some of what it must have.
func (l *library) read(m *readerModel) {
	due := m.due()
	lasts := 0 // as many as cannot have been forgotten
	for _, i := range due {
		if i.envelope.Expiry == 0 {
			lasts++
		}
	}
	if lasts == 0 {
		return
	}
	if len(m.client.current().Open) == 0 && slices.ContainsFunc(m.items, func(i *item) bool { return i.waits }) {
		l.save(m) // an engine that is to go back may
	}
	want := 1 + l.random.IntN(lasts)
	l.note("%s reads %d", m.receiver, want)
	for n := 0; n < want; {
		page, err := m.client.next(want-n, unlimited)
		if err != nil {
			l.Fatalf("%s reads: %v", m.receiver, err)
		}
		for _, e := range page {
			at := slices.IndexFunc(due, func(i *item) bool { return i.id == e.Envelope.ID })
			if at < 0 {
				l.Fatalf("%s is given %s, which it has had, or not yet", m.receiver, e.Envelope.Payload)
			}
			for _, i := range due[:at] {
				if i.envelope.Expiry == 0 {
					l.Fatalf("%s is given %s before %s", m.receiver, e.Envelope.Payload, i.envelope.Payload)
				}
				i.now = finished // it was expired
			}
			l.seen(due[at], e)
			due[at].now = onWay
			due = due[at+1:]
			n++
		}
	}
}

// seen notes the place of an item, which stays.
func (l *library) seen(i *item, e inbox.Entry) {
	if i.position != 0 && i.position != e.Position {
		l.Fatalf("%s was at %d, and is at %d", e.Envelope.Payload, i.position, e.Position)
	}
	i.position = e.Position
}

func (l *library) finish(m *readerModel) {
	open := m.client.current().Open
	l.random.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	n := l.random.IntN(len(open) + 1)
	if l.random.IntN(2) == 0 {
		n = len(open)
	}
	l.note("%s finishes %d of %d", m.receiver, n, len(open))
	for _, d := range open[:n] {
		m.client.finish(inbox.Entry{Position: d.Position})
		for _, i := range m.items {
			if i.position == d.Position {
				i.now = finished
			}
		}
	}
}

func (l *library) save(m *readerModel) {
	l.note("%s saves", m.receiver)
	m.client.save()
	m.save()
}

// acknowledge says that something is read: by ids, a bound or a selection, again and
// again.
func (l *library) acknowledge(m *readerModel) {
	var a inbox.Acknowledgement
	if l.random.IntN(2) == 0 {
		a.Selection = l.selection()
	}
	if seen := slices.DeleteFunc(slices.Clone(m.items), func(i *item) bool { return i.position == 0 }); len(seen) > 0 {
		once := slices.DeleteFunc(slices.Clone(seen), func(i *item) bool {
			n := 0
			for _, other := range m.items {
				if other.id == i.id {
					n++
				}
			}
			return n > 1 || i.position != i.id.Sequence
		})
		switch l.random.IntN(6) {
		case 0, 1:
			for range 1 + l.random.IntN(4) {
				a.IDs = append(a.IDs, pick(l.random, seen).id)
			}
		case 2:
			a.Through = pick(l.random, seen).position
		case 3:
			a.After, a.Through = pick(l.random, seen).position, pick(l.random, seen).position
		case 4:
			if len(once) == 0 {
				return
			}
			i := pick(l.random, once)
			a.ThroughID, a.Through = i.id, i.position // the one is taken, the other is what it means
		default:
			if a.Through = seen[len(seen)-1].position + 1<<40; l.random.IntN(3) > 0 {
				a.After = seen[len(seen)*2/3].position
			}
		}
	} else {
		return
	}
	meant := func(i *item) bool {
		if len(a.IDs) > 0 {
			return slices.Contains(a.IDs, i.id)
		}
		at := i.position
		return selected(a.Selection, &i.envelope) && at > a.After && (a.Through == 0 || at <= a.Through)
	}
	l.learn(m)
	from := nowMillis()
	got := l.trial.acknowledge(m.receiver, a)
	to := nowMillis()
	count := func(at int64) (n int) {
		for _, i := range m.items {
			if i.unread(at) && meant(i) {
				n++
			}
		}
		return n
	}
	l.note("%s acknowledges %+v: %d", m.receiver, a, got)
	if got > count(from) || got < count(to) {
		l.Fatalf("%s acknowledges %+v: %d were unread, want %d", m.receiver, a, got, count(to))
	}
	for _, i := range m.items {
		if i.unread(from) && meant(i) {
			i.acked = true
		}
	}
}

func (l *library) selection() (s inbox.Selection) {
	if l.random.IntN(2) == 0 {
		s.Sender = pick(l.random, voices)
	}
	if l.random.IntN(2) == 0 {
		s.Filter = pick(l.random, filters)
	}
	return s
}

func (l *library) delete() {
	now := nowMillis()
	if l.random.IntN(8) == 0 {
		sender := pick(l.random, voices)
		l.note("erase %s", sender)
		if _, err := l.store.Erase(l.ctx, sender); err != nil {
			l.Fatalf("erase: %v", err)
		}
		after := nowMillis() // what was over by then may not have been found
		for _, t := range l.told {
			if l.kept(t, after) && t.envelope.User == sender {
				t.deleted, t.erased = true, true
				t.envelope.User, t.envelope.Client = "", ""
			}
		}
		return
	}
	alive := slices.DeleteFunc(slices.Clone(l.told), func(t *told) bool { return !l.kept(t, now+1000) || t.erased })
	if len(alive) == 0 {
		return
	}
	t := pick(l.random, alive)
	l.note("delete %s", t.envelope.Payload)
	l.trial.delete(inbox.Entry{Envelope: &t.envelope}, pick(l.random, []string{"", t.envelope.User}))
	t.deleted = true
}
