package badger

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// sortedTest does anything to a store and compares what its indexes answer with what is
// read from the blocks in the same transaction.
type sortedTest struct {
	*testing.T
	s      *Store
	o      Options
	r      *rand.Rand
	actors map[inbox.Receiver]*actor // those that are connected
	asked  int                       // answers that were compared with something in them
}

var (
	sortedTopics  = []string{"chat/a", "chat/b", "chat/a/b", "own", "own/c", "kept/1", "kept/2"}
	sortedFilters = []string{"chat/#", "chat/a", "+/b", "own", "own/#", "#", "chat/+", "kept/+"}
	sortedReaders = []inbox.Receiver{"ann", "bob", "eve"}
)

// Whatever has happened to an inbox, pages, counts and acknowledgements by its index
// are those by reading it: with entries of its own, in streams, and in both, with
// subscriptions that were given up or changed, with copies, and with messages that are
// acknowledged, on their way, deleted, expired, or too old.
func TestSortedAnswersAreThoseOfReading(t *testing.T) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Log("seed", seed)
		}
	}()
	x := &sortedTest{T: t, r: rand.New(rand.NewPCG(seed, 1)), actors: map[inbox.Receiver]*actor{}}
	x.o = everythingOptions(t.TempDir())
	x.o.Retention, x.o.Pull, x.o.History = time.Hour, []string{"chat/#", "own/#", "+/b"}, []inbox.Kept{{Filter: "#"}}
	x.o.sizes = indexSizes{few: 1, tell: 40, sort: 300, keys: indexDefaults.keys}
	x.open()
	for _, r := range sortedReaders {
		x.connect(r)
	}
	x.publish(200)
	for n := 0; n < 60 || x.asked < 5 && n < 600; n++ { // longer, if chance has left little to be compared
		x.step()
		x.compare(sortedReaders[x.r.IntN(len(sortedReaders))])
	}
	x.restart()
	for _, r := range sortedReaders {
		x.compare(r)
	}
	if x.asked < 5 {
		t.Errorf("only %d answers had something in them", x.asked)
	}
	if err := x.s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, faults := verifyAll(t, x.o.Dir); len(faults) > 0 {
		t.Error(faults)
	}
}

func (x *sortedTest) open() {
	s, err := Open(x.o)
	if err != nil {
		x.Fatal(err)
	}
	x.s = s
}

func (x *sortedTest) restart() {
	for r := range x.actors {
		x.disconnect(r)
	}
	if err := x.s.Close(); err != nil {
		x.Fatal(err)
	}
	x.open()
}

func (x *sortedTest) connect(r inbox.Receiver) {
	a := &actor{window: inbox.NewWindow(100, inbox.State{})}
	o := inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: a.state, Mode: []inbox.Mode{inbox.ModePush, inbox.ModePull}[x.r.IntN(2)]}
	if x.r.IntN(6) == 0 {
		o.From = &inbox.Bound{Position: inbox.Position(x.r.IntN(int(x.s.visible.Load()) + 1))}
	}
	in, _, err := x.s.Open(x.Context(), r, o)
	if err != nil {
		x.Fatal(err)
	}
	a.Inbox, a.window = in, inbox.NewWindow(100, in.State())
	x.actors[r] = a
	x.subscribe(r)
}

func (x *sortedTest) disconnect(r inbox.Receiver) {
	if err := x.actors[r].Close(x.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		x.Fatal(err)
	}
	delete(x.actors, r)
}

func (x *sortedTest) subscribe(r inbox.Receiver) {
	s := inbox.Subscription{Filter: sortedFilters[x.r.IntN(len(sortedFilters))], QoS: byte(x.r.IntN(3)), NoLocal: r == "eve" && x.r.IntN(2) == 0}
	if _, err := x.actors[r].Subscribe(x.Context(), s); err != nil {
		x.Fatal(err)
	}
}

// step does one thing.
func (x *sortedTest) step() {
	r := sortedReaders[x.r.IntN(len(sortedReaders))]
	a := x.actors[r]
	switch n := x.r.IntN(20); {
	case n < 9:
		x.publish(1 + x.r.IntN(60))
	case n == 9:
		x.restart()
	case n == 10:
		x.acknowledge(r)
	case n == 11:
		x.delete()
	case a == nil:
		x.connect(r)
	case n == 12:
		x.disconnect(r)
	case n < 15:
		x.subscribe(r)
	case n == 15:
		if _, err := a.Unsubscribe(x.Context(), sortedFilters[x.r.IntN(len(sortedFilters))]); err != nil {
			x.Fatal(err)
		}
	default:
		x.take(a)
	}
}

func (x *sortedTest) publish(n int) {
	var all []*inbox.Envelope
	for range n {
		now := time.Now().UnixMilli()
		e := &inbox.Envelope{
			Topic: sortedTopics[x.r.IntN(len(sortedTopics))], QoS: byte(x.r.IntN(3)), Time: now - x.r.Int64N(50),
			Client: string(sortedReaders[x.r.IntN(len(sortedReaders))]), Payload: make([]byte, 1+x.r.IntN(50)),
		}
		if x.r.IntN(2) == 0 {
			e.User = fmt.Sprintf("user %d", x.r.IntN(3))
		}
		switch x.r.IntN(12) {
		case 0:
			e.Time = now - 2*x.o.Retention.Milliseconds()
		case 1, 2:
			e.Expiry = now - 1
		case 3:
			e.Expiry = now + time.Hour.Milliseconds()
		}
		e.Retain = x.r.IntN(3) == 0 && e.Topic[0] == 'k'
		all = append(all, e)
	}
	appendAll(x, x.s, all...)
}

func (x *sortedTest) acknowledge(r inbox.Receiver) {
	a := inbox.Acknowledgement{Selection: x.selection(), After: x.position(), Through: x.position()}
	if x.r.IntN(2) == 0 {
		if page, err := x.s.Pull(x.Context(), r, inbox.Query{Max: 30, MaxBytes: 1 << 20, After: inbox.Bound{Position: x.position()}}); err != nil {
			x.Fatal(err)
		} else if len(page.Entries) > 0 {
			a = inbox.Acknowledgement{IDs: []inbox.MessageID{page.Entries[x.r.IntN(len(page.Entries))].Envelope.ID, page.Entries[0].Envelope.ID}}
		}
	}
	if _, err := x.s.Acknowledge(x.Context(), r, a); err != nil {
		x.Fatal(err)
	}
}

func (x *sortedTest) delete() {
	page, err := x.s.History(x.Context(), inbox.Query{Max: 100, MaxBytes: 1 << 20, NewestFirst: true})
	if err != nil {
		x.Fatal(err)
	}
	for i := range page.Entries {
		if e := page.Entries[i].Envelope; !e.Deleted && (x.r.IntN(20) == 0 || e.Retain && x.r.IntN(3) == 0) {
			if err := x.s.Delete(x.Context(), e.ID, ""); err != nil {
				x.Fatal(err)
			}
		}
	}
}

// take takes messages that are there, and acknowledges some of them.
func (x *sortedTest) take(a *actor) {
	ctx, cancel := context.WithTimeout(x.Context(), time.Millisecond)
	defer cancel()
	page, err := a.Next(ctx, 20, 1<<20)
	if err != nil {
		return // there are none
	}
	a.mu.Lock()
	for _, e := range page {
		if e.QoS == 0 || a.window.Room() == 0 {
			continue
		}
		if id := a.window.Send(e.Position, e.QoS); x.r.IntN(4) > 0 {
			a.window.Ack(id)
		}
	}
	a.mu.Unlock()
	a.Save(nil)
}

func (x *sortedTest) selection() (sel inbox.Selection) {
	switch x.r.IntN(4) {
	case 0:
		sel.Sender = string(sortedReaders[x.r.IntN(len(sortedReaders))])
	case 1:
		sel.Sender = fmt.Sprintf("user %d", x.r.IntN(3))
	}
	switch x.r.IntN(4) {
	case 0:
		sel.Filter = sortedFilters[x.r.IntN(len(sortedFilters))]
	case 1:
		sel.Filter = sortedTopics[x.r.IntN(len(sortedTopics))]
	}
	return sel
}

// position returns one that may be of an entry, or none.
func (x *sortedTest) position() inbox.Position {
	if x.r.IntN(2) == 0 {
		return 0
	}
	last := inbox.Position(x.s.visible.Load())
	return last - inbox.Position(x.r.IntN(int(min(last, 500))+1))
}

// compare asks for anything, by reading and by the index.
func (x *sortedTest) compare(r inbox.Receiver) {
	x.Helper()
	err := x.s.askSorted(x.Context(), r, func(u *unread, sort func() (*sorted, error)) error {
		lists, err := sort()
		if err != nil {
			return err
		}
		defer lists.close()
		for range 4 {
			x.comparePage(u, lists)
			x.compareMeaning(u, lists)
			x.compareSummary(u, lists)
		}
		return lists.err()
	})
	if err != nil {
		x.Fatal(err)
	}
	if x.Failed() {
		x.FailNow()
	}
}

func (x *sortedTest) comparePage(u *unread, lists *sorted) {
	x.Helper()
	q := inbox.Query{
		Selection: x.selection(), NewestFirst: x.r.IntN(2) == 0, Max: 1 + x.r.IntN(100), MaxBytes: 1 + x.r.IntN(40_000),
		After: inbox.Bound{Position: x.position()}, Before: inbox.Bound{Position: x.position()},
	}
	after, upTo, err := u.bounds(q)
	if err != nil {
		x.Fatal(err)
	}
	p := pager{query: q, look: math.MaxInt, count: math.MaxInt}
	if err := u.each(x.Context(), after, upTo, q.NewestFirst, p.take); err != nil {
		x.Fatal(err)
	}
	want := p.done()
	got, err := lists.pull(x.Context(), &pager{query: q}, after, upTo)
	if err != nil {
		x.Fatal(err)
	}
	if len(want.Entries) > 0 && want.Remaining.Messages > 0 {
		x.asked++
	}
	same := func(a, b inbox.Entry) bool {
		return a.Position == b.Position && a.Envelope.ID == b.Envelope.ID && a.QoS == b.QoS && a.Retain == b.Retain && slices.Equal(a.Identifiers, b.Identifiers)
	}
	if !slices.EqualFunc(got.Entries, want.Entries, same) || got.More != want.More || got.Remaining != want.Remaining || got.Next != want.Next {
		x.Errorf("%s asks %+v: %d entries, more %v, next %d, remaining %+v, want %d, %v, %d, %+v", u.receiver, q,
			len(got.Entries), got.More, got.Next, got.Remaining, len(want.Entries), want.More, want.Next, want.Remaining)
	}
	if !slices.Equal(got.Gaps, want.Gaps) {
		x.Errorf("%s asks %+v: gaps %+v, want %+v", u.receiver, q, got.Gaps, want.Gaps)
	}
}

func (x *sortedTest) compareMeaning(u *unread, lists *sorted) {
	x.Helper()
	a := inbox.Acknowledgement{Selection: x.selection()}
	whole := inbox.Span{After: x.position(), Through: u.upTo}
	want, got := meaning{marks: marks{}}, meaning{marks: marks{}}
	if _, err := u.meantOfSome(x.Context(), a, whole, &want, math.MaxInt); err != nil {
		x.Fatal(err)
	}
	err := lists.mean(x.Context(), a, whole, &got)
	if isUnsorted(err) && !lists.exact {
		return
	}
	equal := len(got.marks) == len(want.marks)
	for of, spans := range want.marks {
		equal = equal && slices.Equal(got.marks[of], spans)
	}
	if err != nil || got.n != want.n || !equal {
		x.Errorf("%s acknowledges %+v behind %d: %d messages, %d pairs, %v, want %d, %d", u.receiver, a, whole.After, got.n, len(got.marks), err, want.n, len(want.marks))
	}
}

func (x *sortedTest) compareSummary(u *unread, lists *sorted) {
	x.Helper()
	q := inbox.SummaryQuery{Max: 1 + x.r.IntN(20), UpTo: x.position(), Except: x.selection().Sender}
	for more := true; more; more = q.Next != "" {
		want, got := newSummary(u.upTo, q), newSummary(u.upTo, q)
		if _, err := want.read(x.Context(), u, math.MaxInt); err != nil {
			x.Fatal(err)
		}
		err := lists.summarize(x.Context(), got)
		if isUnsorted(err) && !lists.exact {
			return
		}
		a, b := got.done(), want.done()
		if err != nil || a.Total != b.Total || a.Position != b.Position || a.Next != b.Next || !slices.Equal(a.Senders, b.Senders) || !slices.Equal(a.Topics, b.Topics) {
			x.Errorf("summary of %s %+v:\n%+v, %v, want\n%+v", u.receiver, q, a, err, b)
		}
		q.Next = b.Next
	}
}
