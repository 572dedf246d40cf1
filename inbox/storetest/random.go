package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// world is a store together with what it should be.
type world struct {
	*trial
	random *rand.Rand
	models map[inbox.Receiver]*model // of the sessions there should be
	count  int                       // of messages
	batch  int                       // see modelEntry
	steps  []string

	retained map[string]*inbox.Envelope // by topic

	probe *client // gets every will
	wills int     // so many should the probe have got
}

// randomOperations does anything with a few sessions, one thing at a time, and
// compares every answer.
func randomOperations(tr *trial) {
	w := &world{
		trial: tr, random: newRandom(tr),
		models: map[inbox.Receiver]*model{}, retained: map[string]*inbox.Envelope{},
		probe: tr.mourner(),
	}
	defer func() {
		if tr.Failed() {
			last := w.steps[max(len(w.steps)-60, 0):]
			tr.Logf("the last %d of %d steps:\n%s", len(last), len(w.steps), strings.Join(last, "\n"))
		}
	}()
	for range size(2000, 400) {
		w.step()
	}
	w.settle()
}

func (w *world) note(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

func (w *world) step() {
	receivers := []inbox.Receiver{"a", "b", "ab", "c"}
	r := receivers[w.random.IntN(len(receivers))]
	chance := w.random.IntN(100)
	if chance < 35 {
		w.publish(receivers)
		return
	}
	if chance < 37 {
		w.restart()
		return
	}
	m := w.models[r]
	if m == nil || m.client == nil || chance < 45 {
		w.open(r)
		return
	}
	switch {
	case chance < 55:
		w.subscribe(m)
	case chance < 60:
		w.unsubscribe(m)
	case chance < 75:
		w.read(m)
	case chance < 85:
		w.finish(m)
	case chance < 92:
		w.save(m)
	case chance < 95:
		w.hear(m)
	default:
		w.end(r, m)
	}
}

func (w *world) publish(receivers []inbox.Receiver) {
	for range 1 + w.random.IntN(4) {
		w.count++
		e := message(randomTopic(w.random), byte(w.random.IntN(3)), fmt.Sprint("m", w.count))
		e.Client = string(receivers[w.random.IntN(len(receivers))])
		if e.Retain = w.random.IntN(2) == 0; e.Retain && w.random.IntN(4) == 0 {
			e.Payload, e.ContentType = nil, string(e.Payload)
		}
		w.note("publish %q (%d bytes) to %q by %s at QoS %d, retain %v", label(e), len(e.Payload), e.Topic, e.Client, e.QoS, e.Retain)
		least, most := w.deliver(e, 0)
		matchedBetween(w.trial, w.append(e)[0], least, most)
	}
}

// deliver gives a message to the models, and returns how many receivers there
// are at least, and how many matching subscriptions.
func (w *world) deliver(e *inbox.Envelope, batch int) (least, most int) {
	for r, m := range w.models {
		for _, sub := range m.subs {
			if covers(sub.Filter, e.Topic) {
				most++
			}
		}
		g, ok := expected(r, m.subs, e)
		if !ok {
			continue
		}
		if m.give(modelEntry{topic: e.Topic, payload: label(e), grant: g, batch: batch}) {
			least++
		}
	}
	if e.Retain {
		if w.retained[e.Topic] = e; len(e.Payload) == 0 {
			delete(w.retained, e.Topic)
		}
	}
	return least, most
}

// label is by what the models know a message: its payload, or what it would
// have had for one.
func label(e *inbox.Envelope) string {
	if len(e.Payload) == 0 {
		return e.ContentType
	}
	return string(e.Payload)
}

func (w *world) nextBatch() int {
	w.batch++
	return w.batch
}

// bury publishes the will of a session that the models have no more, or whose
// receiver is gone.
func (w *world) bury(m *model, batch int) {
	if m.will == nil {
		return
	}
	w.note("will %s", m.will.Envelope.Payload)
	w.deliver(m.will.Envelope, batch)
	m.will = nil
	w.wills++
}

func (w *world) restart() {
	w.note("restart")
	w.trial.restart()
	var left []*model
	for r, m := range w.models {
		connected := m.client != nil
		if m.client = nil; m.expiry == inbox.ExpiryAtOnce {
			delete(w.models, r)
			left = append(left, m)
		} else if connected && m.will != nil && m.will.Delay == 0 {
			left = append(left, m)
		}
	}
	batch := w.nextBatch()
	for _, m := range left {
		w.bury(m, batch)
	}
	w.probe = w.connect("mourner", lasting)
	w.probe.finish(w.probe.take(w.wills)...) // waits until all wills are published
	w.probe.save()
	w.wills = 0
	w.list()
	same(w.trial, "retained topics", slices.Sorted(maps.Keys(w.trial.retained("#"))), slices.Sorted(func(yield func(string) bool) {
		for topic := range w.retained {
			if covers("#", topic) && !yield(topic) {
				return
			}
		}
	}))
}

// list compares the list of sessions.
func (w *world) list() {
	got := w.sessions()
	if len(got) != len(w.models)+1 { // and the probe's
		w.Fatalf("%d sessions, want %d", len(got), len(w.models)+1)
	}
	for r, m := range w.models {
		if s := got[r]; s.Expiry != m.expiry || s.Connected != (m.client != nil) {
			w.Fatalf("session %+v, want expiry %d, connected %v", s, m.expiry, m.client != nil)
		}
	}
}

func (w *world) open(r inbox.Receiver) {
	m := w.models[r]
	o := inbox.OpenOptions{Expiry: lasting, Fresh: w.random.IntN(5) == 0}
	if w.random.IntN(4) == 0 {
		o.Expiry = inbox.ExpiryAtOnce
	}
	if w.random.IntN(3) > 0 {
		w.count++
		// A topic of its own, for the order of several wills after a restart is open.
		o.Will = willOf("will/"+string(r), fmt.Sprint("w", w.count), uint32(w.random.IntN(2))*far)
		o.Will.Envelope.Client = string(r)
		o.Will.Envelope.QoS = byte(1 + w.random.IntN(2))
		o.Will.Envelope.Retain = w.random.IntN(2) == 0
	}
	w.note("open %q, expiry %d, fresh %v, will %v", r, o.Expiry, o.Fresh, o.Will)
	c := w.connectWith(r, o)
	if m != nil && m.client != nil {
		if err := m.client.trySave(); !errors.Is(err, inbox.ErrFenced) {
			w.Fatalf("an earlier owner saves: %v", err)
		}
	}
	if resumed := m != nil && m.expiry != inbox.ExpiryAtOnce && !o.Fresh; c.resumed != resumed {
		w.Fatalf("opening %q: resumed is %v, want %v", r, c.resumed, resumed)
	}
	if !c.resumed {
		delete(w.models, r)
		if m != nil {
			w.bury(m, 0)
		}
		m = &model{}
		w.models[r] = m
	}
	m.client, m.expiry, m.will, m.read, m.live = c, o.Expiry, o.Will, m.savedRead, nil
	sameState(w.trial, c.State(), m.saved)
	w.compareOpen(m)
	subs, err := c.Subscriptions(w.ctx)
	if err != nil {
		w.Fatalf("subscriptions: %v", err)
	}
	byFilter := func(a, b inbox.Subscription) int { return strings.Compare(a.Filter, b.Filter) }
	slices.SortFunc(subs, byFilter)
	slices.SortFunc(m.subs, byFilter)
	same(w.trial, "subscriptions", withoutHandling(subs), withoutHandling(m.subs))
}

func (w *world) subscribe(m *model) {
	s := randomSubscription(w.random)
	if slices.ContainsFunc(m.entries[m.read:], func(e modelEntry) bool { return e.givenUp }) {
		s.RetainHandling = 2 // copies of what was given up could not be told from it
	}
	w.note("%q subscribes %+v", m.client.receiver, s)
	existed := m.client.add(s)
	i := m.find(s.Filter)
	same(w.trial, "existed", existed, []bool{i >= 0})
	if i >= 0 {
		m.subs[i] = s
	} else {
		m.subs = append(m.subs, s)
	}
	if s.RetainHandling == 2 || s.RetainHandling == 1 && i >= 0 {
		return
	}
	batch := w.nextBatch()
	for topic, e := range w.retained {
		if !covers(s.Filter, topic) || s.NoLocal && e.Client == string(m.client.receiver) {
			continue
		}
		g := inbox.Grant{QoS: min(s.QoS, e.QoS), Retain: true}
		if s.Identifier != 0 {
			g.Identifiers = []uint32{s.Identifier}
		}
		m.give(modelEntry{topic: e.Topic, payload: label(e), grant: g, batch: batch})
	}
}

func (w *world) unsubscribe(m *model) {
	filter := randomFilter(w.random)
	if len(m.subs) > 0 && w.random.IntN(4) > 0 {
		filter = m.subs[w.random.IntN(len(m.subs))].Filter
	}
	w.save(m) // engines may
	w.note("%q unsubscribes %q", m.client.receiver, filter)
	existed := m.client.unsubscribe(filter)
	i := m.find(filter)
	same(w.trial, "existed", existed, []bool{i >= 0})
	if i >= 0 {
		m.subs = slices.Delete(m.subs, i, i+1)
		m.giveUp(filter)
	}
}

func (w *world) read(m *model) {
	if waiting := m.waiting(); waiting > 0 {
		w.take(m, m.client.take(1+w.random.IntN(waiting)))
	}
}

func (w *world) take(m *model, got []inbox.Entry) {
	w.note("%q reads %d", m.client.receiver, len(got))
	for _, e := range got {
		settleOrder(m.entries, m.read, label(e.Envelope))
		m.passGivenUp(label(e.Envelope))
		settleOrder(m.entries, m.read, label(e.Envelope))
		if m.read == len(m.entries) {
			w.Fatalf("%q has %s, and should have nothing more", m.client.receiver, e.Envelope.Payload)
		}
		want := &m.entries[m.read]
		if got := label(e.Envelope); got != want.payload {
			w.Fatalf("entry %d of %q is %s, want %s", m.read, m.client.receiver, got, want.payload)
		}
		sameGrant(w.trial, e, want.grant)
		if want.position != 0 && want.position != e.Position {
			w.Fatalf("%s had position %d, has %d", want.payload, want.position, e.Position)
		}
		want.position = e.Position
		m.read++
	}
}

func (w *world) finish(m *model) {
	open := m.client.current().Open
	w.random.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	n := w.random.IntN(len(open) + 1)
	w.note("%q finishes %d of %d", m.client.receiver, n, len(open))
	for _, d := range open[:n] {
		m.client.finish(inbox.Entry{Position: d.Position})
	}
}

func (w *world) save(m *model) {
	w.note("%q saves", m.client.receiver)
	m.client.save()
	m.saved, m.savedRead = m.client.current(), m.read
	w.compareOpen(m)
}

// compareOpen reads what is open, if it must be kept for the next link.
func (w *world) compareOpen(m *model) {
	if m.expiry == inbox.ExpiryAtOnce {
		return
	}
	var at []inbox.Position
	var want []string
	for _, d := range m.client.current().Open {
		i := slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.position == d.Position })
		at = append(at, d.Position)
		want = append(want, m.entries[i].payload)
	}
	var got []string
	for _, e := range m.client.read(at...) {
		got = append(got, label(e.Envelope))
	}
	same(w.trial, "open entries", got, want)
}

func (w *world) hear(m *model) {
	w.note("%q hears %d", m.client.receiver, len(m.live))
	for i, e := range m.client.heard(len(m.live)) {
		settleOrder(m.live, i, label(e.Envelope))
		if got, want := label(e.Envelope), m.live[i].payload; got != want {
			w.Fatalf("live message %d of %q is %s, want %s", i, m.client.receiver, got, want)
		}
		sameGrant(w.trial, e, m.live[i].grant)
	}
	m.live = nil
}

func (w *world) end(r inbox.Receiver, m *model) {
	if w.random.IntN(4) == 0 {
		m.expiry = inbox.ExpiryAtOnce
	}
	goodbye := w.random.IntN(2) == 0
	w.note("%q closes, expiry %d, goodbye %v", r, m.expiry, goodbye)
	state := m.client.current()
	m.client.leave(inbox.Ending{Expiry: m.expiry, Goodbye: goodbye})
	m.client, m.saved, m.savedRead = nil, state, m.read
	if goodbye {
		m.will = nil
	}
	if m.expiry == inbox.ExpiryAtOnce {
		delete(w.models, r)
	}
	if m.will != nil && (m.expiry == inbox.ExpiryAtOnce || m.will.Delay == 0) {
		w.bury(m, 0)
	}
	w.list()
}

// settle reads every inbox to its end.
func (w *world) settle() {
	w.restart()
	for r := range w.models {
		w.open(r)
		m := w.models[r]
		w.take(m, m.client.rest())
		if n := m.waiting(); n > 0 {
			w.Fatalf("%d entries of %q are missing", n, r)
		}
	}
}
