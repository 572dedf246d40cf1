package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func pullMax(tr *trial) {
	tr.reader("c")
	want := numbers("m", 30)
	tr.publish("a", want...)
	for _, max := range []int{1, 2, 29, 30, 31} {
		var sizes []int
		for page := range tr.pages(tr.inboxOf("c"), inbox.Query{Max: max}) {
			sizes = append(sizes, len(page.Entries))
		}
		var full []int
		for left := len(want); left > 0; left -= max {
			full = append(full, min(left, max))
		}
		same(tr, fmt.Sprint("pages of ", max), sizes, full)
	}
}

func pullMaxBytes(tr *trial) {
	tr.reader("c")
	var es []*inbox.Envelope
	for i, n := range []int{100, 100, 5000, 10, 10, 10, 3000, 1} {
		e := message("a", 1, fmt.Sprint(i))
		e.Payload = append(e.Payload, make([]byte, n)...)
		es = append(es, e)
	}
	tr.append(es...)
	size := func(from, to int) (n int) {
		for _, e := range es[from:to] {
			n += e.Size()
		}
		return n
	}
	for _, max := range []int{1, size(0, 2), size(0, 2) - 1, size(3, 6), size(0, 8) - 1, size(0, 8)} {
		var got, want []int
		for page := range tr.pages(tr.inboxOf("c"), inbox.Query{MaxBytes: max}) {
			got = append(got, len(page.Entries))
		}
		for from, to := 0, 0; from < len(es); from = to {
			for to = from + 1; to < len(es) && size(from, to+1) <= max; to++ {
			}
			want = append(want, to-from)
		}
		same(tr, fmt.Sprint("pages of ", max, " bytes"), got, want)
	}
}

func pullRemaining(tr *trial) {
	tr.reader("c")
	messages := tr.talk(60, []string{"ann", "bob"}, []string{"a", "a/b"})
	all := tr.walk(tr.inboxOf("c"), inbox.Query{})
	for _, s := range []inbox.Selection{{}, {Sender: "ann"}, {Filter: "a/b"}, {Sender: "bob", Filter: "a"}} {
		for _, q := range []inbox.Query{
			{Max: 7},
			{Max: 7, NewestFirst: true},
			{Max: 7, After: inbox.Bound{Position: all[3].Position}, Before: inbox.Bound{Position: all[40].Position}},
			{Max: 7, After: inbox.Bound{ID: messages[10].ID}, NewestFirst: true},
			{Max: 100},
		} {
			q.Selection = s
			var left []inbox.Count
			for page := range tr.pages(tr.inboxOf("c"), q) {
				for i := range left {
					for _, e := range page.Entries {
						left[i].Messages--
						left[i].Bytes -= bytesOf(e.Envelope)
					}
				}
				left = append(left, page.Remaining)
			}
			for i, c := range left {
				if c != (inbox.Count{}) {
					tr.Fatalf("%+v: after page %d remained too many by %+v", q, i, c)
				}
			}
		}
	}
}

// Case 137: nothing depends on time. All were stored within one millisecond, and
// then by a clock that had been set back.
func pullEqualTimes(tr *trial) {
	tr.reader("c")
	now := time.Now().UnixMilli()
	var es []*inbox.Envelope
	for i := range 150 {
		e := message("a", 1, fmt.Sprint(i))
		if e.Time = now; i >= 100 {
			e.Time -= time.Hour.Milliseconds()
		}
		es = append(es, e)
	}
	tr.append(es...)
	want := which(es, inbox.Selection{})
	same(tr, "forwards", payloads(tr.walk(tr.inboxOf("c"), inbox.Query{Max: 7})), want)
	same(tr, "backwards", payloads(tr.walk(tr.inboxOf("c"), inbox.Query{Max: 7, NewestFirst: true})), backwards(want))
	tr.unread("c", want...)
}

// Cases 138 and 135: what comes while one goes from page to page is neither
// skipped nor repeated, and moves nothing.
func pullWhileOthersPublish(tr *trial) {
	tr.reader("c")
	old := numbers("old", 200)
	tr.publish("a", old...)

	var back []inbox.Entry
	for page := range tr.pages(tr.inboxOf("c"), inbox.Query{Max: 20, NewestFirst: true}) {
		back = append(back, page.Entries...)
		tr.publish("a", "meanwhile")
	}
	same(tr, "backwards", payloads(back), backwards(old))

	want := payloads(tr.walk(tr.inboxOf("c"), inbox.Query{}))
	var forth []inbox.Entry
	for page := range tr.pages(tr.inboxOf("c"), inbox.Query{Max: 50}) {
		forth = append(forth, page.Entries...)
		if page.More {
			another := fmt.Sprint("another ", len(forth))
			tr.publish("a", another)
			want = append(want, another)
		}
	}
	same(tr, "forwards", payloads(forth), want)
}

// Messages go away between two pages, by whatever way: the walk ends all the same, and has
// each of the others once.
func pullWhileOthersRead(tr *trial) {
	for _, newestFirst := range []bool{false, true} {
		r := inbox.Receiver(fmt.Sprint("c", newestFirst))
		tr.reader(r)
		tr.publish("a", numbers("m", 100)...)
		all := tr.walk(tr.inboxOf(r), inbox.Query{})
		if newestFirst {
			slices.Reverse(all)
		}
		gone := map[string]bool{}
		var got []string
		for page := range tr.pages(tr.inboxOf(r), inbox.Query{Max: 10, NewestFirst: newestFirst}) {
			got = append(got, payloads(page.Entries)...)
			// The last one of the page, and one that the next page would have had.
			n := slices.IndexFunc(all, func(e inbox.Entry) bool { return e.Position == end(page) })
			for _, e := range all[n:min(n+2, len(all))] {
				tr.acknowledges(r, 1, byIDs(e))
				gone[string(e.Envelope.Payload)] = !slices.Contains(got, string(e.Envelope.Payload))
			}
		}
		want := slices.DeleteFunc(payloads(all), func(p string) bool { return gone[p] })
		same(tr, fmt.Sprint("newest first ", newestFirst), got, want)
	}
}
