package badger

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A SUBSCRIBE may bring the last messages of history. They are looked for on the goroutine
// of the subscriber, with the committer at work; so before that a lookout is posted,
// which has what is stored meanwhile, and is taken in by the step that makes the
// subscription. So none is missing between them and what comes live, and none comes twice.
// What is brought stands in the inbox as copies of retained messages do, at positions of
// their own, but refers to the body.

// Bounds of what a SUBSCRIBE brings.
const (
	mostLast      = 1000
	mostLastInAll = 5000       // by all its subscriptions
	mostLastPages = 20         // of history that are looked through, if they are short
	mostLastBytes = readyBytes // for who has it from memory: at QoS 0, or for a session that ends with its link
)

// lastMessage is one of the last messages that match a subscription.
type lastMessage struct {
	id       inbox.Position
	qos      byte
	retained string // its topic, if it was to be retained
	retain   bool
	envelope *inbox.Envelope // if it is handed over from memory
	had      bool            // it came into the inbox when it was stored
}

// lastMessages are the last that match one subscription, ascending.
type lastMessages struct {
	sub    inbox.Subscription
	most   int
	memory bool // envelopes are kept
	found  []lastMessage
	bytes  int // of their envelopes
}

// add adds a message behind the others, and forgets those that are too many.
func (l *lastMessages) add(m lastMessage) {
	l.found = append(l.found, m)
	l.bytes += m.size()
	n := 0
	for len(l.found)-n > l.most || l.bytes > mostLastBytes && n < len(l.found)-1 {
		l.bytes -= l.found[n].size()
		n++
	}
	l.found = slices.Delete(l.found, 0, n)
}

func (m *lastMessage) size() int {
	if m.envelope == nil {
		return 0
	}
	return m.envelope.Size()
}

// makeLast returns what a message is to be among the last, and whether it is one.
func (l *lastMessages) makeLast(e *inbox.Envelope, r inbox.Receiver) (m lastMessage, ok bool) {
	if e.Deleted || l.sub.NoLocal && e.Client == string(r) { // [MQTT-3.8.3-3]
		return m, false
	}
	m = lastMessage{id: e.ID.Sequence, qos: e.QoS, retain: e.Retain}
	if e.Retain {
		m.retained = strings.Clone(e.Topic)
	}
	if l.memory {
		m.envelope = e
	}
	return m, true
}

// lookout has the last messages for one SUBSCRIBE. What is looked for in history is
// the goroutine's that calls Subscribe; the rest is the committer's.
type lookout struct {
	h       *handle
	all     []*lastMessages // by subscription; nil for those that bring nothing
	since   []*lastMessages // likewise, what was stored since it was posted
	outlook outlook         // where the inbox was then
	inHand  []inbox.Position
	unread  map[inbox.Position]bool // messages that were unread since
	short   int                     // pages that were looked through
	bytes   int                     // of what was found that is handed over from memory
	numbers []inbox.Member          // of the subscriptions among those that are looked out for
}

// lookouts are those that are posted. Owned by the committer.
type lookouts struct {
	index   *inbox.Index // of subscriptions, by number
	posted  []postedSub  // by number, from 1
	free    []inbox.Member
	matches []inbox.Match
}

type postedSub struct {
	of *lookout
	i  int // which of its subscriptions
}

// wantsLast returns a lookout for the subscriptions that bring messages of history,
// nil if none does.
func (h *handle) wantsLast(subs []inbox.Subscription) *lookout {
	if len(h.s.histories.all) == 0 {
		return nil
	}
	l := &lookout{h: h, all: make([]*lastMessages, len(subs)), since: make([]*lastMessages, len(subs))}
	left := mostLastInAll
	for i, sub := range subs {
		most := min(sub.Last, mostLast, left)
		if _, _, shared := inbox.Shared(sub.Filter); shared || most <= 0 {
			continue
		}
		left -= most
		last := lastMessages{sub: sub, most: most, memory: sub.QoS == 0 || !h.stored}
		since := last
		l.all[i], l.since[i] = &last, &since
	}
	if left == mostLastInAll {
		return nil
	}
	return l
}

// post begins to look out. Whoever calls it must have the lookout taken in, whatever
// happens.
func (g *commitGroup) post(l *lookout) {
	all := &g.s.lookouts
	if all.index == nil {
		all.index, all.posted = inbox.NewIndex(), make([]postedSub, 1)
	}
	for i, last := range l.since {
		if last == nil {
			continue
		}
		n := inbox.Member(len(all.posted))
		if free := len(all.free); free > 0 {
			n, all.free = all.free[free-1], all.free[:free-1]
		} else {
			all.posted = append(all.posted, postedSub{})
		}
		all.posted[n] = postedSub{l, i}
		all.index.Subscribe(n, inbox.Subscription{Filter: last.sub.Filter})
		l.numbers = append(l.numbers, n)
	}
	l.outlook = g.look(l.h.member)
	if !l.h.stored {
		l.inHand = l.h.inHand()
	}
}

// takeIn ends a lookout. To end it once more changes nothing.
func (g *commitGroup) takeIn(l *lookout) {
	for _, n := range l.numbers {
		g.s.lookouts.index.RemoveAll(n)
		g.s.lookouts.posted[n] = postedSub{}
		g.s.lookouts.free = append(g.s.lookouts.free, n)
	}
	l.numbers = nil
}

// tellLookouts has those who look out for it note a message that goes into history.
// g.matches and g.streams say who gets it.
func (g *commitGroup) tellLookouts(e *inbox.Envelope) {
	all := &g.s.lookouts
	if len(all.posted) == 1+len(all.free) || all.index == nil {
		return
	}
	all.matches = all.index.Match(e.Topic, 0, all.matches[:0])
	for _, match := range all.matches {
		p := all.posted[match.Member]
		last, h := p.of.since[p.i], p.of.h
		if m, ok := last.makeLast(e, h.receiver); ok {
			m.had = g.gives(h.member, e)
			last.add(m)
		}
	}
}

// gives reports whether the message at hand goes into the inbox of m, or is handed to it.
func (g *commitGroup) gives(m inbox.Member, e *inbox.Envelope) bool {
	return slices.ContainsFunc(g.matches, func(x inbox.Match) bool { return x.Member == m && (x.QoS > 0 || e.QoS == 0) }) || g.reads(m, e)
}

// prepare posts the lookout and looks back. Unless there is an error, the lookout must be
// taken in afterwards.
func (l *lookout) prepare(ctx context.Context) error {
	s := l.h.s
	err := s.do(ctx, "look out", func(g *commitGroup) error {
		if !l.h.owns() {
			return inbox.ErrFenced
		}
		g.post(l)
		return nil
	})
	if err == nil {
		err = l.lookBack(ctx)
	}
	if err != nil {
		l.giveUp()
	}
	return err
}

// giveUp has the lookout taken in, if it is not yet.
func (l *lookout) giveUp() {
	if l != nil {
		l.h.s.queue.force(operation{apply: func(g *commitGroup) { g.takeIn(l) }})
	}
}

// inHand returns the messages that are on their way to a receiver and may be nowhere
// but in memory: what was returned last, and what was before and is not acknowledged.
// Runs on the committer.
func (h *handle) inHand() []inbox.Position {
	h.mu.Lock()
	all := slices.Clone(h.returnedLast)
	h.mu.Unlock()
	if h.state == nil {
		return all
	}
	state := h.state()
	open := openSpans(state.Open)
	for _, d := range state.Open {
		all = append(all, d.Position)
	}
	for p, id := range h.brought {
		switch {
		case open.Contains(p):
			all = append(all, id)
		case p <= state.Sent:
			delete(h.brought, p)
		}
	}
	return all
}

// lookBack looks for the last messages in history up to where the lookout was posted, and
// for those of them that are unread.
func (l *lookout) lookBack(ctx context.Context) error {
	var ids []inbox.Position
	for _, last := range l.all {
		if last == nil {
			continue
		}
		if err := l.lookBackFor(ctx, last); err != nil {
			return err
		}
		for _, m := range last.found {
			ids = append(ids, m.id)
		}
	}
	slices.Sort(ids)
	l.unread = map[inbox.Position]bool{}
	for _, id := range l.inHand {
		l.unread[id] = true
	}
	return l.h.s.view(func(txn *badger.Txn) error {
		u, err := l.h.s.unread(txn, l.outlook)
		if err != nil {
			return fmt.Errorf("read delivery state: %w", err)
		}
		defer u.close()
		return u.eachWith(ctx, slices.Compact(ids), func(e met) { l.unread[e.Envelope.ID.Sequence] = true })
	})
}

func (l *lookout) lookBackFor(ctx context.Context, last *lastMessages) error {
	q := inbox.Query{
		Selection: inbox.Selection{Filter: last.sub.Filter}, NewestFirst: true,
		Before: inbox.Bound{Position: l.outlook.upTo + 1}, MaxBytes: pageBytes,
	}
	var newest []lastMessage
	full := false
	for {
		q.Max = last.most - len(newest)
		page, err := l.h.s.History(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			m, ok := last.makeLast(e.Envelope, l.h.receiver)
			if full = ok && l.bytes > 0 && l.bytes+m.size() > mostLastBytes; full {
				break
			}
			if ok {
				newest = append(newest, m)
				l.bytes += m.size()
			}
			q.Before.Position = e.Position
		}
		if page.Next != 0 {
			q.Before.Position = page.Next
			l.short++
		}
		if len(newest) >= last.most || full || !page.More || l.short >= mostLastPages {
			break
		}
	}
	slices.Reverse(newest)
	last.found = newest
	return nil
}
