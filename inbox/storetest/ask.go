package storetest

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// asking is what answers with pages: an inbox, or history.
type asking func(q inbox.Query) (inbox.Page, error)

func (tr *trial) inboxOf(r inbox.Receiver) asking {
	return func(q inbox.Query) (inbox.Page, error) { return tr.store.Pull(tr.ctx, r, q) }
}

func (tr *trial) history(q inbox.Query) (inbox.Page, error) { return tr.store.History(tr.ctx, q) }

// unlimited is a bound for pages that is none.
const unlimited = 1 << 30

// page asks once, and checks what holds for every page. Without Max or MaxBytes they
// are unlimited.
func (tr *trial) page(ask asking, q inbox.Query) inbox.Page {
	tr.Helper()
	q.Max = cmp.Or(q.Max, unlimited)
	q.MaxBytes = cmp.Or(q.MaxBytes, unlimited)
	page, err := ask(q)
	if err != nil {
		tr.Fatalf("asking %+v: %v", q, err)
	}
	if err := checkPage(q, page); err != nil {
		tr.Fatalf("asking %+v: %v", q, err)
	}
	return page
}

// checkPage may be called by any goroutine.
func checkPage(q inbox.Query, page inbox.Page) error {
	bytes := 0
	for i, e := range page.Entries {
		bytes += e.Envelope.Size()
		switch {
		case i == q.Max:
			return fmt.Errorf("%d messages", len(page.Entries))
		case i > 0 && bytes > q.MaxBytes:
			return fmt.Errorf("%d messages of more than %d bytes", len(page.Entries), q.MaxBytes)
		case i > 0 && q.NewestFirst != (e.Position < page.Entries[i-1].Position), i > 0 && e.Position == page.Entries[i-1].Position:
			return fmt.Errorf("position %d follows %d", e.Position, page.Entries[i-1].Position)
		case e.Position <= q.After.Position, q.Before.Position != 0 && e.Position >= q.Before.Position:
			return fmt.Errorf("position %d is out of bounds", e.Position)
		case e.Envelope.Time < q.After.Time, q.Before.Time != 0 && e.Envelope.Time >= q.Before.Time:
			return fmt.Errorf("a message of %d is out of bounds", e.Envelope.Time)
		case !selected(q.Selection, e.Envelope):
			return fmt.Errorf("message from %q to %q", e.Envelope.Sender(), e.Envelope.Topic)
		case e.Envelope.Expired(time.Now()) && e.Envelope.Expiry < time.Now().Add(-time.Minute).UnixMilli():
			return fmt.Errorf("%q is expired", e.Envelope.Payload)
		}
	}
	if page.Remaining.Messages > 0 && !page.More {
		return fmt.Errorf("no more, and %d remain", page.Remaining.Messages)
	}
	return nil
}

// selected is a matcher of the suite's own.
func selected(s inbox.Selection, e *inbox.Envelope) bool {
	return (s.Sender == "" || s.Sender == e.Sender()) && (s.Filter == "" || covers(s.Filter, e.Topic))
}

// pages asks for page after page, each from the end of the one before, to the last.
func (tr *trial) pages(ask asking, q inbox.Query) iter.Seq[inbox.Page] {
	return func(yield func(inbox.Page) bool) {
		for {
			page := tr.page(ask, q)
			if !yield(page) || !page.More {
				return
			}
			tr.turn(&q, page)
		}
	}
}

// turn makes a query one for the page that follows.
func (tr *trial) turn(q *inbox.Query, page inbox.Page) {
	tr.Helper()
	at := end(page)
	if at == 0 {
		tr.Fatalf("asking %+v: there is more, and nowhere to go on", *q)
	}
	bound := &q.After
	if q.NewestFirst {
		bound = &q.Before
	}
	if *bound == (inbox.Bound{Position: at}) {
		tr.Fatalf("asking %+v: the next page begins where this one did", *q)
	}
	*bound = inbox.Bound{Position: at}
}

// end is where the page after this one begins.
func end(page inbox.Page) inbox.Position {
	if page.Next != 0 || len(page.Entries) == 0 {
		return page.Next
	}
	return page.Entries[len(page.Entries)-1].Position
}

// walk returns the entries of all pages.
func (tr *trial) walk(ask asking, q inbox.Query) (all []inbox.Entry) {
	tr.Helper()
	for page := range tr.pages(ask, q) {
		all = append(all, page.Entries...)
	}
	return all
}

// unread fails unless these payloads are what is unread of a receiver, whatever
// way one asks, and returns the entries.
func (tr *trial) unread(r inbox.Receiver, want ...string) []inbox.Entry {
	tr.Helper()
	what := fmt.Sprintf("unread of %.40q", r)
	if tr.markers > 0 {
		tr.acknowledge(r, inbox.Acknowledgement{Selection: inbox.Selection{Filter: markers + "#"}}) // they are the suite's own
	}
	first := tr.page(tr.inboxOf(r), inbox.Query{Max: 1})
	if n := int(first.Remaining.Messages) + len(first.Entries); n != len(want) {
		tr.Errorf("%s: %d messages by the count, want %d", what, n, len(want))
	}
	all := tr.walk(tr.inboxOf(r), inbox.Query{Max: 20 + len(want)/10})
	same(tr, what, payloads(all), want)
	back := tr.walk(tr.inboxOf(r), inbox.Query{NewestFirst: true, Max: 7 + len(want)/12})
	slices.Reverse(back)
	same(tr, what+" from the newest", positions(back), positions(all))
	tr.summaryIs(r, inbox.SummaryQuery{}, all)
	return all
}

// none has no messages that are unread.
func (tr *trial) none(r inbox.Receiver) {
	tr.Helper()
	tr.unread(r)
}

// acknowledge returns how many messages were unread.
func (tr *trial) acknowledge(r inbox.Receiver, a inbox.Acknowledgement) int {
	tr.Helper()
	n, err := tr.store.Acknowledge(tr.ctx, r, a)
	if err != nil {
		tr.Fatalf("%.40q acknowledges %+v: %v", r, a, err)
	}
	return n
}

// acknowledges fails unless so many messages were unread.
func (tr *trial) acknowledges(r inbox.Receiver, want int, a inbox.Acknowledgement) {
	tr.Helper()
	if got := tr.acknowledge(r, a); got != want {
		tr.Fatalf("%.40q acknowledges %+v: %d were unread, want %d", r, a, got, want)
	}
}

// byIDs acknowledges entries by their ids.
func byIDs(entries ...inbox.Entry) (a inbox.Acknowledgement) {
	for _, e := range entries {
		a.IDs = append(a.IDs, e.Envelope.ID)
	}
	return a
}

// through acknowledges all entries up to one.
func through(e inbox.Entry) inbox.Acknowledgement { return inbox.Acknowledgement{Through: e.Position} }

// said is a message of QoS 1 by a user, from a client that has another name.
func said(user, topic, payload string) *inbox.Envelope {
	e := message(topic, 1, payload)
	e.User, e.Client = user, user+"'s phone"
	return e
}

// talk has messages of several users in several topics stored, in turn: the
// payload of message n is n. It returns them with their ids.
func (tr *trial) talk(n int, users, topics []string) []*inbox.Envelope {
	tr.Helper()
	said := talk(n, users, topics)
	tr.append(said...)
	return said
}

func talk(n int, users, topics []string) (out []*inbox.Envelope) {
	for i := range n {
		e := said(users[i%len(users)], topics[i/2%len(topics)], fmt.Sprint(i))
		out = append(out, e)
	}
	return out
}

// which returns the payloads of those messages that are selected.
func which(messages []*inbox.Envelope, s inbox.Selection) (out []string) {
	for _, e := range messages {
		if selected(s, e) {
			out = append(out, string(e.Payload))
		}
	}
	return out
}

// backwards returns a reversed copy.
func backwards[E any](s []E) []E {
	out := slices.Clone(s)
	slices.Reverse(out)
	return out
}

// longNames are texts that differ only at their ends, and are longer than a key.
func longNames(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, prefix+strings.Repeat("x", 2000)+fmt.Sprint(i))
	}
	return out
}

// appendRandom stores n messages with random fields, which are kept and do not expire
// while they are looked for, and returns them.
func (tr *trial) appendRandom(n int) []*inbox.Envelope {
	tr.Helper()
	random := newRandom(tr)
	var sent, want []*inbox.Envelope
	for i := range n {
		e := randomEnvelope(random, fmt.Sprint("a/", i%3))
		e.QoS = max(e.QoS, 1)
		e.Expiry = max(e.Expiry, time.Now().Add(time.Hour).UnixMilli())
		kept := *e
		sent, want = append(sent, e), append(want, &kept)
	}
	for i, r := range tr.append(sent...) {
		want[i].ID = r.ID
	}
	return want
}

// keepsFields compares every field of what is answered with what was stored, before and
// after a restart.
func (tr *trial) keepsFields(ask asking, want []*inbox.Envelope) {
	tr.Helper()
	for range 2 {
		got := tr.walk(ask, inbox.Query{Max: 6})
		if len(got) != len(want) {
			tr.Fatalf("%d messages, want %d", len(got), len(want))
		}
		for i, e := range got {
			sameEnvelope(tr, e.Envelope, want[i])
		}
		tr.restart()
	}
}
