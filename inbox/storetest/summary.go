package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// bytesOf is what a message counts in [inbox.Count]: its size without what an
// envelope takes itself.
func bytesOf(e *inbox.Envelope) int64 { return int64(e.Size() - (&inbox.Envelope{}).Size()) }

// summary returns the tallies of all pages, and checks that they are of one moment.
func (tr *trial) summary(r inbox.Receiver, q inbox.SummaryQuery) inbox.Summary {
	tr.Helper()
	var whole inbox.Summary
	q.Max = cmp.Or(q.Max, 5)
	for n := 0; ; n++ {
		sum, err := tr.store.Summarize(tr.ctx, r, q)
		if err != nil {
			tr.Fatalf("summary of %.40q: %v", r, err)
		}
		if len(sum.Senders)+len(sum.Topics) > q.Max {
			tr.Fatalf("summary of %.40q: %d tallies in one answer, want %d", r, len(sum.Senders)+len(sum.Topics), q.Max)
		}
		if n == 0 {
			whole = inbox.Summary{Position: sum.Position, Total: sum.Total}
			q.UpTo = sum.Position
		}
		if sum.Total != whole.Total || sum.Position != whole.Position {
			tr.Fatalf("summary of %.40q: page %d has %+v up to %d, the first has %+v up to %d",
				r, n, sum.Total, sum.Position, whole.Total, whole.Position)
		}
		whole.Senders = append(whole.Senders, sum.Senders...)
		whole.Topics = append(whole.Topics, sum.Topics...)
		if sum.Next == "" {
			return whole
		}
		if sum.Next == q.Next || len(sum.Next) > 64 || len(sum.Senders)+len(sum.Topics) == 0 {
			tr.Fatalf("summary of %.40q: page %d does not go on, or at %q", r, n, sum.Next)
		}
		q.Next = sum.Next
	}
}

// summaryIs fails unless the summary is that of these entries.
func (tr *trial) summaryIs(r inbox.Receiver, q inbox.SummaryQuery, unread []inbox.Entry) {
	tr.Helper()
	isSummary(tr, r, tr.summary(r, q), q, unread)
}

func isSummary(tr *trial, r inbox.Receiver, got inbox.Summary, q inbox.SummaryQuery, unread []inbox.Entry) {
	tr.Helper()
	want := inbox.Summary{}
	senders, topics := map[string]*inbox.Tally{}, map[string]*inbox.Tally{}
	for _, e := range unread {
		if q.Except != "" && e.Envelope.Sender() == q.Except || q.UpTo != 0 && e.Position > q.UpTo {
			continue
		}
		want.Total.Messages++
		want.Total.Bytes += bytesOf(e.Envelope)
		count(senders, e.Envelope.Sender(), e.Envelope)
		count(topics, e.Envelope.Topic, e.Envelope)
		if e.Position > got.Position {
			tr.Errorf("summary of %.40q: %q at %d is counted, though the summary goes to %d", r, e.Envelope.Payload, e.Position, got.Position)
		}
	}
	if got.Total != want.Total {
		tr.Errorf("summary of %.40q: %+v in all, want %+v", r, got.Total, want.Total)
	}
	sameTallies(tr, fmt.Sprintf("senders of %.40q", r), got.Senders, senders)
	sameTallies(tr, fmt.Sprintf("topics of %.40q", r), got.Topics, topics)
}

func count(tallies map[string]*inbox.Tally, name string, e *inbox.Envelope) {
	mark := inbox.Mark{ID: e.ID, Time: e.Time}
	if tallies[name] == nil {
		tallies[name] = &inbox.Tally{Name: name, Oldest: mark}
	}
	t := tallies[name]
	t.Newest = mark
	t.Count.Messages++
	t.Count.Bytes += bytesOf(e)
}

func sameTallies(tr *trial, what string, got []inbox.Tally, byName map[string]*inbox.Tally) {
	tr.Helper()
	var want []inbox.Tally
	for _, t := range byName {
		want = append(want, *t)
	}
	byNames := func(a, b inbox.Tally) int { return cmp.Compare(a.Name, b.Name) }
	got = slices.SortedFunc(slices.Values(got), byNames)
	slices.SortFunc(want, byNames)
	same(tr, what, got, want)
}

func summaryCounts(tr *trial) {
	tr.reader("c")
	tr.none("c")
	users, topics := []string{"ann", "bob", "eve", "joe"}, []string{"a", "a/b", "a/c", "b"}
	messages := tr.talk(100, users, topics)
	tr.unread("c", which(messages, inbox.Selection{Filter: "a/#"})...)
	tr.restart()
	tr.unread("c", which(messages, inbox.Selection{Filter: "a/#"})...)
	tr.append(message("a", 1, "of a client without a user"), message("a/ü/€", 1, ""))
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	tr.summaryIs("c", inbox.SummaryQuery{}, all)
	tr.summaryIs("c", inbox.SummaryQuery{Max: 1}, all)
	tr.summaryIs("c", inbox.SummaryQuery{Max: 1000}, all)
}

// Case 145: what one has sent oneself, from whatever device, is not unread.
func summaryExcept(tr *trial) {
	for _, r := range []inbox.Receiver{"ann's phone", "ann's other phone", "bob's phone"} {
		tr.reader(r)
	}
	for i := range 8 {
		tr.append(said([]string{"ann", "bob"}[i/5], "a", fmt.Sprint(i)))
	}
	check := func(r inbox.Receiver, user string, want int64) {
		tr.Helper()
		all := tr.walk(tr.inboxOf(r), inbox.Query{})
		tr.summaryIs(r, inbox.SummaryQuery{Except: user}, all)
		if got := tr.summary(r, inbox.SummaryQuery{Except: user}).Total.Messages; got != want {
			tr.Fatalf("%d unread of %s, want %d", got, r, want)
		}
	}
	for range 2 {
		check("ann's phone", "ann", 3)
		check("ann's other phone", "ann", 3)
		check("ann's other phone", "nobody", 8)
		check("bob's phone", "bob", 5)
		tr.restart()
	}
	tr.acknowledges("bob's phone", 5, inbox.Acknowledgement{Selection: inbox.Selection{Sender: "ann"}})
	check("bob's phone", "bob", 0)
	check("ann's phone", "ann", 3)
}

// The pages of one summary are exact at one position, whatever is stored meanwhile.
func summaryUpTo(tr *trial) {
	tr.reader("c")
	tr.none("c")
	messages := tr.talk(30, []string{"ann", "bob"}, []string{"a", "a/b", "a/c"})
	all := tr.unread("c", which(messages, inbox.Selection{})...)
	first := tr.summary("c", inbox.SummaryQuery{})
	if last := all[len(all)-1].Position; first.Position < last {
		tr.Fatalf("the summary goes to %d, and should to %d", first.Position, last)
	}
	for i := range 5 {
		tr.talk(7, []string{"ann", fmt.Sprint("new ", i)}, []string{"a/b", fmt.Sprint("a/new/", i)})
		tr.summaryIs("c", inbox.SummaryQuery{UpTo: first.Position}, all)
		tr.summaryIs("c", inbox.SummaryQuery{UpTo: first.Position, Except: "ann", Max: 2}, all)
		tr.summaryIs("c", inbox.SummaryQuery{UpTo: all[9].Position, Max: 1}, all)
		tr.summaryIs("c", inbox.SummaryQuery{}, tr.walk(tr.inboxOf("c"), inbox.Query{}))
	}
}

// As many conversations as a busy user has, with names of every kind.
func summaryPages(tr *trial) {
	tr.reader("c")
	users := append(longNames("user ", 4), "s", "t", "ss", "\u00fc", "a", "a/b", " ")
	topics := append(longNames("a/", 4), "a", "a/", "a//", "a/b", "a/ü", "a/ ")
	for i := range 60 {
		users = append(users, fmt.Sprint("user ", i))
		topics = append(topics, fmt.Sprint("a/", i))
	}
	messages := tr.talk(300, users, topics)
	all := tr.unread("c", which(messages, inbox.Selection{})...)
	for _, max := range []int{1, 7, 64, 1000} {
		tr.summaryIs("c", inbox.SummaryQuery{Max: max}, all)
	}
}

// So many that an engine may have prepared something, for a receiver that reads
// them in any order, now and then.
func summaryOfMany(tr *trial) {
	random := newRandom(tr)
	tr.reader("c")
	users := []string{"ann", "bob", "eve", "joe", "kim"}
	topics := []string{"a", "a/b", "a/c", "a/d", "a/e", "a/f", "a/g"}
	n := size(2400, 700)
	begin := time.Now().Add(-time.Hour).UnixMilli()
	var all []inbox.Entry
	for round := range 4 {
		messages := talk(n/4, users, topics)
		for i, e := range messages {
			e.Time = begin + int64(round*n+i)
		}
		tr.append(messages...)
		all = tr.walk(tr.inboxOf("c"), inbox.Query{})
		tr.summaryIs("c", inbox.SummaryQuery{}, all)
		for range 6 {
			s := inbox.Selection{}
			if random.IntN(2) == 0 {
				s.Sender = users[random.IntN(len(users))]
			}
			if random.IntN(2) == 0 {
				s.Filter = []string{"a/b", "a/#", "+/d", "a/g"}[random.IntN(4)]
			}
			from, to := random.IntN(len(all)), random.IntN(len(all))
			from, to = min(from, to), max(from, to)
			var left []inbox.Entry
			for i, e := range all {
				if i <= from || i > to || !selected(s, e.Envelope) {
					left = append(left, e)
				}
			}
			tr.acknowledges("c", len(all)-len(left), inbox.Acknowledgement{Selection: s, After: all[from].Position, Through: all[to].Position})
			all = left
			tr.summaryIs("c", inbox.SummaryQuery{Max: 100}, all)
			tr.summaryIs("c", inbox.SummaryQuery{Max: 100, Except: "bob", UpTo: all[len(all)/2].Position}, all)
			for _, newestFirst := range []bool{false, true} {
				want := slices.DeleteFunc(slices.Clone(all), func(e inbox.Entry) bool { return !selected(s, e.Envelope) })
				if newestFirst {
					slices.Reverse(want)
				}
				got := tr.walk(tr.inboxOf("c"), inbox.Query{Selection: s, NewestFirst: newestFirst, Max: 150})
				same(tr, fmt.Sprintf("%+v", s), positions(got), positions(want))
			}
		}
		if round%2 == 1 {
			tr.restart()
			tr.summaryIs("c", inbox.SummaryQuery{}, all)
		}
	}
}

// While others publish, a summary is exact up to the position that it states, and that
// is no earlier than what was stored before one asked.
func summaryWhileOthersPublish(tr *trial) {
	tr.reader("c")
	tr.talk(600, []string{"ann", "bob"}, []string{"a", "a/b"})
	var wg sync.WaitGroup
	var stored atomic.Uint64 // everything up to this position is
	for i := range 2 {
		p := tr.publisher()
		wg.Go(func() {
			for range size(30, 10) {
				for _, e := range talk(20, []string{"ann", fmt.Sprint("user ", i)}, []string{"a/b", fmt.Sprint("a/", i)}) {
					p.append(e)
				}
				results := p.wait()
				last := uint64(results[len(results)-1].receipt.ID.Sequence)
				for was := stored.Load(); was < last && !stored.CompareAndSwap(was, last); was = stored.Load() {
				}
			}
		})
	}
	published := make(chan struct{})
	go func() { wg.Wait(); close(published) }()
	for over := false; !over; {
		select {
		case <-published:
			over = true
		default:
		}
		least := inbox.Position(stored.Load())
		sum := tr.summary("c", inbox.SummaryQuery{Max: 3})
		if sum.Position < least {
			tr.Fatalf("the summary goes to %d, and %d was stored", sum.Position, least)
		}
		all := tr.walk(tr.inboxOf("c"), inbox.Query{Before: inbox.Bound{Position: sum.Position + 1}})
		isSummary(tr, "c", sum, inbox.SummaryQuery{}, all)
		if tr.Failed() {
			break
		}
	}
	<-published
}
