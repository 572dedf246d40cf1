package storetest

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// learn notes the places of everything that is unread.
func (l *library) learn(m *readerModel) {
	from := nowMillis()
	got := l.trial.walk(l.inboxOf(m.receiver), inbox.Query{})
	l.compare("unread of "+string(m.receiver), got, m.unread(inbox.Selection{}, from), nowMillis())
}

// compare fails unless the entries are those of the items, but for what expired meanwhile.
func (l *library) compare(what string, got []inbox.Entry, want []*item, until int64) {
	l.Helper()
	n := 0
	for _, i := range want {
		if n < len(got) && got[n].Envelope.ID == i.id {
			l.seen(i, got[n])
			n++
		} else if !i.expired(until) {
			l.Fatalf("%s: %s is missing at %d of\n%v, want\n%v", what, i.envelope.Payload, n, payloads(got), itemPayloads(want))
		}
	}
	if n < len(got) {
		l.Fatalf("%s: %s is too much at %d of\n%v, want\n%v", what, got[n].Envelope.Payload, n, payloads(got), itemPayloads(want))
	}
}

func itemPayloads(items []*item) (out []string) {
	for _, i := range items {
		out = append(out, string(i.envelope.Payload))
	}
	return out
}

// walk goes through a selection page by page, while others publish and the receiver
// acknowledges some of what it has got.
func (l *library) walk(m *readerModel) {
	q := inbox.Query{Selection: l.selection(), NewestFirst: l.random.IntN(2) == 0, Max: 1 + l.random.IntN(12)}
	l.learn(m)
	from := nowMillis()
	want := m.unread(q.Selection, from)
	if seen := len(want); seen > 0 && l.random.IntN(3) == 0 {
		n := l.random.IntN(seen)
		q.After = inbox.Bound{Position: want[n].position}
		want = want[n+1:]
	}
	want = slices.Clone(want)
	q.Max += len(want) / 12 // a dozen pages or so
	if q.NewestFirst {
		slices.Reverse(want)
	}
	l.note("%s walks %+v", m.receiver, q)
	var got []inbox.Entry
	for page := range l.pages(l.inboxOf(m.receiver), q) {
		got = append(got, page.Entries...)
		if l.random.IntN(3) == 0 && len(page.Entries) > 0 {
			l.acknowledgePage(m, q.Selection, page.Entries)
		}
		if page.More && l.random.IntN(3) == 0 {
			n := len(m.items)
			if l.publish(1 + l.random.IntN(2)); !q.NewestFirst {
				want = append(want, (&readerModel{items: m.items[n:]}).unread(q.Selection, from)...)
			}
		}
	}
	l.compare("walk of "+string(m.receiver), got, want, nowMillis())
}

// acknowledgePage goes by places: a message may stand in an inbox twice.
func (l *library) acknowledgePage(m *readerModel, s inbox.Selection, page []inbox.Entry) {
	first, last := page[0].Position, page[len(page)-1].Position
	a := inbox.Acknowledgement{Selection: s, After: min(first, last) - 1, Through: max(first, last)}
	l.note("%s acknowledges a page of %d: %d", m.receiver, len(page), l.trial.acknowledge(m.receiver, a))
	for _, e := range page {
		for _, i := range m.items {
			if i.position == e.Position || i.position == 0 && i.id == e.Envelope.ID {
				i.position, i.acked = e.Position, true
			}
		}
	}
}

// check compares everything that is unread, by every way to ask for it.
func (l *library) check(m *readerModel) {
	for {
		l.learn(m)
		from := nowMillis()
		want := m.unread(inbox.Selection{}, from)
		back := l.trial.walk(l.inboxOf(m.receiver), inbox.Query{NewestFirst: true, Max: 9 + len(want)/4})
		first := l.page(l.inboxOf(m.receiver), inbox.Query{Max: 1})
		var entries []inbox.Entry
		for _, i := range want {
			entries = append(entries, inbox.Entry{Position: i.position, Envelope: &i.envelope})
		}
		except := pick(l.random, append(voices, ""))
		sum := l.summary(m.receiver, inbox.SummaryQuery{Except: except, Max: 100}) // one page: something may expire between two
		if !lastsUntil(want, from, nowMillis()) {
			continue // look again
		}
		same(l.trial, "unread from the newest", positions(back), backwards(positions(entries)))
		if n := int(first.Remaining.Messages) + len(first.Entries); n != len(want) {
			l.Fatalf("%d unread of %s by the count, want %d", n, m.receiver, len(want))
		}
		isSummary(l.trial, m.receiver, sum, inbox.SummaryQuery{Except: except}, entries)
		if l.Failed() {
			l.FailNow()
		}
		return
	}
}

// kept reports whether a message is in history.
func (l *library) kept(t *told, at int64) bool {
	return slices.ContainsFunc(l.keeping.History, func(k inbox.Kept) bool { return covers(k.Filter, t.envelope.Topic) }) && !t.expired(at)
}

func (l *library) checkHistory() {
	q := inbox.Query{Selection: l.selection(), NewestFirst: l.random.IntN(2) == 0, Max: 1 + l.random.IntN(12)}
	l.note("history %+v", q)
	from := nowMillis()
	var want []*item
	for _, t := range l.told {
		if l.kept(t, from) && selected(q.Selection, &t.envelope) {
			want = append(want, &item{told: t})
		}
	}
	if len(want) > 0 && l.random.IntN(2) == 0 {
		n := l.random.IntN(len(want))
		q.Before = inbox.Bound{ID: want[n].id}
		want = want[:n]
	}
	q.Max += len(want) / 12
	if q.NewestFirst {
		slices.Reverse(want)
	}
	got := l.trial.walk(l.history, q)
	l.compare("history", got, want, nowMillis())
	for _, e := range got {
		at := slices.IndexFunc(l.told, func(t *told) bool { return t.id == e.Envelope.ID })
		if t := l.told[at]; t.deleted {
			l.isMark(e.Envelope, &t.envelope, t.erased)
		} else {
			sameEnvelope(l.trial, e.Envelope, &t.envelope)
		}
	}
}
