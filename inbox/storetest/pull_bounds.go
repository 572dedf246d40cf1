package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Case 139: newest without a cursor, strict neighbours, both bounds, none.
func pullBounds(tr *trial) {
	tr.reader("c")
	tr.bounds(tr.inboxOf("c"), func(es ...*inbox.Envelope) { tr.append(es...) })
}

// bounds asks for what lies between any two messages that were said in a.
func (tr *trial) bounds(ask asking, publish func(...*inbox.Envelope)) {
	tr.Helper()
	begin := time.Now().Add(-time.Hour).UnixMilli()
	messages := talk(30, []string{"ann", "bob"}, []string{"a", "a/b"})
	for i, e := range messages {
		e.Time = begin + int64(i)*1000
	}
	publish(messages...)
	all := tr.walk(ask, inbox.Query{})
	want := payloads(all)
	same(tr, "all", want, which(messages, inbox.Selection{}))

	kinds := []func(i int) inbox.Bound{
		func(i int) inbox.Bound { return inbox.Bound{Position: all[i].Position} },
		func(i int) inbox.Bound { return inbox.Bound{ID: all[i].Envelope.ID} },
	}
	check := func(after, before int, q inbox.Query) {
		tr.Helper()
		between := want[min(after+1, before):before]
		for _, q.Max = range []int{4, unlimited} {
			for _, q.NewestFirst = range []bool{false, true} {
				between := between
				if q.NewestFirst {
					between = backwards(between)
				}
				what := fmt.Sprintf("behind %d, in front of %d: %+v", after, before, q)
				same(tr, what, payloads(tr.walk(ask, q)), between)
				first := tr.page(ask, q)
				same(tr, what, payloads(first.Entries), between[:min(q.Max, len(between))])
			}
		}
	}
	for i, kind := range kinds {
		other := kinds[1-i]
		for _, at := range []int{0, 1, 13, 28, 29} {
			check(at, len(all), inbox.Query{After: kind(at)})
			check(-1, at, inbox.Query{Before: kind(at)})
			for _, to := range []int{0, 1, 2, 14, 20, 29} {
				check(at, to, inbox.Query{After: kind(at), Before: kind(to)})
				check(at, to, inbox.Query{After: kind(at), Before: other(to)})
			}
		}
	}
	beyond := inbox.Bound{Position: all[29].Position + 1<<40}
	check(29, 30, inbox.Query{After: beyond})
	check(-1, 30, inbox.Query{Before: beyond})

	// Times are between messages.
	for _, at := range []int{0, 1, 15, 29} {
		for _, ms := range []int64{-999, 0} {
			bound := inbox.Bound{Time: begin + int64(at)*1000 + ms}
			check(at-1, 30, inbox.Query{After: bound})
			check(-1, at, inbox.Query{Before: bound})
			check(at-1, 20, inbox.Query{After: bound, Before: inbox.Bound{Position: all[20].Position}})
		}
	}
	check(-1, 30, inbox.Query{After: inbox.Bound{Time: 1}, Before: inbox.Bound{Time: begin + time.Hour.Milliseconds()*24}})
	check(29, 30, inbox.Query{After: inbox.Bound{Time: begin + time.Hour.Milliseconds()*24}})
}

// Case 139: an id that no message of this store has had is neither everything nor the end.
func pullUnknownIDs(tr *trial) {
	tr.reader("c")
	receipts := tr.publish("a", numbers("m", 5)...)
	tr.unknownIDs(receipts[2].ID, func(id inbox.MessageID) error {
		for _, q := range []inbox.Query{{After: inbox.Bound{ID: id}}, {Before: inbox.Bound{ID: id}, NewestFirst: true}} {
			q.Max, q.MaxBytes = 10, unlimited
			if _, err := tr.store.Pull(tr.ctx, "c", q); !errors.Is(err, inbox.ErrUnknownID) {
				return err
			}
		}
		return inbox.ErrUnknownID
	})
}

// unknownIDs makes ids of one that is known, and fails unless each is refused.
func (tr *trial) unknownIDs(known inbox.MessageID, ask func(inbox.MessageID) error) {
	tr.Helper()
	for what, id := range map[string]inbox.MessageID{
		"of another store": {Sequence: known.Sequence, Store: known.Store + 1},
		"not stored yet":   {Sequence: known.Sequence + 1<<50, Store: known.Store},
		"number 0":         {Store: known.Store},
	} {
		if err := ask(id); !errors.Is(err, inbox.ErrUnknownID) {
			tr.Fatalf("an id %s: %v, want ErrUnknownID", what, err)
		}
	}
}

// The id of a message that was read, or never came into this inbox, is a place all the same.
func pullBoundByRead(tr *trial) {
	tr.reader("c")
	messages := tr.talk(20, []string{"ann"}, []string{"a", "b"}) // two and two
	all := tr.unread("c", which(messages, inbox.Selection{Filter: "a"})...)
	tr.acknowledges("c", 3, byIDs(all[2], all[4], all[5]))
	for i, e := range messages {
		bound := inbox.Bound{ID: e.ID}
		var after, before []string
		for _, other := range all {
			switch p := string(other.Envelope.Payload); {
			case other.Envelope.ID == all[2].Envelope.ID, other.Envelope.ID == all[4].Envelope.ID, other.Envelope.ID == all[5].Envelope.ID:
			case other.Envelope.ID.Sequence > e.ID.Sequence:
				after = append(after, p)
			case other.Envelope.ID.Sequence < e.ID.Sequence:
				before = append(before, p)
			}
		}
		same(tr, fmt.Sprint("after message ", i), payloads(tr.walk(tr.inboxOf("c"), inbox.Query{After: bound})), after)
		same(tr, fmt.Sprint("before message ", i), payloads(tr.walk(tr.inboxOf("c"), inbox.Query{Before: bound})), before)
	}
}
