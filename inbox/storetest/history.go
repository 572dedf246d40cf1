package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// remembers fails unless history has these payloads, whatever way one asks, and
// returns the entries. A mark has no payload.
func (tr *trial) remembers(s inbox.Selection, want ...string) []inbox.Entry {
	tr.Helper()
	what := fmt.Sprintf("history of %+.60v", s)
	all := tr.walk(tr.history, inbox.Query{Selection: s, Max: 20 + len(want)/10})
	same(tr, what, payloads(all), want)
	back := tr.walk(tr.history, inbox.Query{Selection: s, Max: 7, NewestFirst: true})
	same(tr, what+" from the newest", positions(back), backwards(positions(all)))
	for _, e := range all {
		if e.Position != e.Envelope.ID.Sequence {
			tr.Fatalf("%s: the message with id %v is at %d", what, e.Envelope.ID, e.Position)
		}
		sameGrant(tr, e, inbox.Grant{})
	}
	return all
}

// History has what the operator named, once, whoever was to get it, and whether
// anybody was.
func historyKeeps(tr *trial) {
	tr.reader("c")
	tr.remembers(inbox.Selection{})
	messages := tr.talk(60, []string{"ann", "bob"}, []string{"chat", "chat/1", "chat/2", "chat/1/2", "a", "chats", "$chat/1"})
	for range 2 {
		for _, s := range []inbox.Selection{
			{}, {Sender: "ann"}, {Sender: "nobody"}, {Filter: "chat"}, {Filter: "chat/1"}, {Filter: "chat/+"}, {Filter: "chat/#"}, {Filter: "#"},
			{Filter: "+/1", Sender: "bob"}, {Filter: "a"}, {Filter: "+"}, {Sender: "bob", Filter: "chat/1"},
		} {
			kept := slices.DeleteFunc(slices.Clone(messages), func(e *inbox.Envelope) bool { return !covers("chat/#", e.Topic) })
			tr.remembers(s, which(kept, s)...)
		}
		tr.restart()
	}
}

// Case 155: one message is one row, with the id that it has in the inboxes, though several
// filters keep it and its publisher sends it again.
func historyOnce(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("#", 1)
	topics := []string{"chat/a/room", "chat/a", "x/a/b", "log", "chat/b/room", "x/b"}
	var want []string
	for i, topic := range topics {
		e := named("ann", fmt.Sprint("name ", i), fmt.Sprint(i), 1)
		e.Topic = topic
		tr.append(e)
		if topic != "x/b" {
			want = append(want, fmt.Sprint(i))
		}
	}
	for range 2 {
		all := tr.remembers(inbox.Selection{}, want...)
		unread := tr.unread("c", "0", "1", "2", "3", "4", "5")
		for i, e := range all {
			if e.Envelope.ID != unread[i].Envelope.ID {
				tr.Fatalf("%s has id %v in history, and %v in the inbox", e.Envelope.Payload, e.Envelope.ID, unread[i].Envelope.ID)
			}
		}
		tr.restart()
		for i, topic := range topics {
			e := named("ann", fmt.Sprint("name ", i), "again", 1)
			e.Topic = topic
			if r := tr.append(e)[0]; !r.Duplicate {
				tr.Fatalf("message %d was stored again", i)
			}
		}
	}
	tr.remembers(inbox.Selection{Filter: "chat/a/room"}, "0")
}

func historyBounds(tr *trial) {
	tr.bounds(tr.history, func(es ...*inbox.Envelope) { tr.append(es...) })
	tr.restart()
	// In one topic among others, whose messages lie between.
	all := tr.walk(tr.history, inbox.Query{})
	for i, e := range all {
		for _, s := range []inbox.Selection{{Filter: "a/b"}, {Sender: "bob"}, {Sender: "ann", Filter: "+/b"}} {
			var after, before []string
			for j, other := range all {
				if !selected(s, other.Envelope) {
					continue
				}
				if j > i {
					after = append(after, string(other.Envelope.Payload))
				} else if j < i {
					before = append(before, string(other.Envelope.Payload))
				}
			}
			bound := inbox.Bound{ID: e.Envelope.ID}
			same(tr, "after", payloads(tr.walk(tr.history, inbox.Query{Selection: s, After: bound, Max: 4})), after)
			same(tr, "before", payloads(tr.walk(tr.history, inbox.Query{Selection: s, Before: bound, Max: 4, NewestFirst: true})), backwards(before))
		}
	}
}

func historyUnknownIDs(tr *trial) {
	receipts := tr.publish("a", numbers("m", 3)...)
	tr.unknownIDs(receipts[1].ID, func(id inbox.MessageID) error {
		for _, q := range []inbox.Query{{After: inbox.Bound{ID: id}}, {Before: inbox.Bound{ID: id}, NewestFirst: true, Selection: inbox.Selection{Filter: "a"}}} {
			q.Max, q.MaxBytes = 10, unlimited
			if _, err := tr.store.History(tr.ctx, q); !errors.Is(err, inbox.ErrUnknownID) {
				return err
			}
		}
		return inbox.ErrUnknownID
	})
}

func historyMax(tr *trial) {
	messages := talk(40, []string{"ann"}, []string{"a", "b"})
	for i, e := range messages {
		e.Payload = append(e.Payload, make([]byte, i%4*1000)...)
	}
	tr.append(messages...)
	for _, filter := range []string{"", "a", "+"} {
		want := which(messages, inbox.Selection{Filter: filter})
		for _, q := range []inbox.Query{{Max: 1}, {Max: 3}, {MaxBytes: 1}, {MaxBytes: 3000}, {Max: 4, MaxBytes: 4000}} {
			q.Selection.Filter = filter
			same(tr, fmt.Sprintf("%+v", q), payloads(tr.walk(tr.history, q)), want)
			q.NewestFirst = true
			same(tr, fmt.Sprintf("%+v", q), payloads(tr.walk(tr.history, q)), backwards(want))
		}
		if page := tr.page(tr.history, inbox.Query{Selection: inbox.Selection{Filter: filter}, Max: len(want)}); page.More {
			tr.Fatalf("%q: everything there is, and more", filter)
		}
	}
}

// Cases 138 and 137: backwards and forwards, by pages, while others publish, all within
// one millisecond.
func historyWhileOthersPublish(tr *trial) {
	now := time.Now().UnixMilli()
	at := func(topic string, from, n int) (out []*inbox.Envelope) {
		for i := range n {
			e := said("ann", topic, fmt.Sprint(from+i))
			e.Time = now
			out = append(out, e)
		}
		return out
	}
	tr.append(at("a", 0, 200)...)
	for _, filter := range []string{"a", "#"} {
		want := payloads(tr.walk(tr.history, inbox.Query{Selection: inbox.Selection{Filter: filter}}))
		var back []inbox.Entry
		for page := range tr.pages(tr.history, inbox.Query{Selection: inbox.Selection{Filter: filter}, Max: 20, NewestFirst: true}) {
			back = append(back, page.Entries...)
			tr.append(at([]string{"a", "b"}[len(back)%40/20], 1000+len(back), 2)...)
		}
		same(tr, "backwards "+filter, payloads(back), backwards(want))

		var forth []inbox.Entry
		for page := range tr.pages(tr.history, inbox.Query{Selection: inbox.Selection{Filter: filter}, Max: 50}) {
			forth = append(forth, page.Entries...)
			if page.More {
				tr.append(at("a", 2000+len(forth), 1)...)
			}
		}
		same(tr, "forwards "+filter, payloads(forth), payloads(tr.walk(tr.history, inbox.Query{Selection: inbox.Selection{Filter: filter}})))
	}
}

func historyEveryField(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a/0", 2)
	c.close(lasting)
	want := tr.appendRandom(30)
	tr.append(message("a/0", 0, "of QoS 0, which is not kept"))
	tr.keepsFields(tr.history, want)
}

// History is the same whoever has read what, and has one's own messages.
func historyWhoeverReads(tr *trial) {
	var readers []inbox.Receiver
	for _, r := range []inbox.Receiver{"ann's phone", "bob's phone", "bob's web"} {
		c := tr.connect(r, lasting)
		c.add(inbox.Subscription{Filter: "a/#", QoS: 1, NoLocal: true})
		c.close(lasting)
		readers = append(readers, r)
	}
	messages := tr.talk(30, []string{"ann", "bob"}, []string{"a", "a/b"})
	want := which(messages, inbox.Selection{})
	tr.unread("ann's phone", which(messages, inbox.Selection{Sender: "bob"})...)
	tr.remembers(inbox.Selection{}, want...)
	tr.remembers(inbox.Selection{Sender: "ann"}, which(messages, inbox.Selection{Sender: "ann"})...)
	for _, r := range readers {
		tr.acknowledge(r, inbox.Acknowledgement{})
		tr.remembers(inbox.Selection{}, want...)
	}
	tr.restart()
	tr.remembers(inbox.Selection{}, want...)
	for _, r := range readers {
		tr.connect(r, lasting).close(inbox.ExpiryAtOnce)
	}
	tr.eventually("history outlives its readers", func() bool { return len(tr.sessions()) == 0 })
	tr.restart()
	tr.remembers(inbox.Selection{}, want...)
}

// What is stored is in history from then on: when its publisher knows, and when
// a receiver has it.
func historyVisible(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	n := size(300, 100)
	newest := inbox.Query{Selection: inbox.Selection{Filter: "a"}, NewestFirst: true, Max: 1, MaxBytes: unlimited}
	var wg sync.WaitGroup
	var stored atomic.Int64
	wg.Go(func() {
		for i := range n {
			tr.main.append(message("a", 1, fmt.Sprint(i)))
			if i%10 == 0 {
				tr.main.wait()
				stored.Store(int64(i))
			}
		}
		tr.main.wait()
	})
	check := func(least int64) {
		page, err := tr.store.History(tr.ctx, newest)
		if err != nil || len(page.Entries) != 1 {
			tr.Errorf("the newest: %d messages, %v", len(page.Entries), err)
			return
		}
		var got int64
		if _, err := fmt.Sscan(string(page.Entries[0].Envelope.Payload), &got); err != nil || got < least {
			tr.Errorf("the newest in history is %d, and %d was stored", got, least)
		}
	}
	for read := 0; read < n && !tr.Failed(); {
		page, err := c.next(50, unlimited)
		if err != nil {
			tr.Fatalf("next: %v", err)
		}
		read += len(page)
		check(max(int64(read-1), stored.Load()))
	}
	wg.Wait()
}

// Wills are kept as other messages are.
func historyWill(tr *trial) {
	c := tr.connectWith("c", inbox.OpenOptions{Expiry: lasting, Will: willOf("a", "will", 0)})
	c.leave(inbox.Ending{Expiry: lasting})
	tr.eventually("the will is in history", func() bool { return len(tr.walk(tr.history, inbox.Query{})) == 1 })
	tr.remembers(inbox.Selection{Filter: "a"}, "will")
}

// What is older than its filter keeps it is not there any more, unless another keeps it.
func historyKeptForATime(tr *trial) {
	now := time.Now()
	for i := range 12 {
		e := said("ann", []string{"a/b", "a/long"}[i%2], fmt.Sprint(i))
		e.Time = now.Add(time.Duration(i-11) * 20 * time.Second).UnixMilli()
		tr.append(e)
	}
	for range 2 {
		tr.remembers(inbox.Selection{}, "1", "3", "5", "7", "9", "10", "11")
		tr.remembers(inbox.Selection{Filter: "a/b"}, "10")
		tr.remembers(inbox.Selection{Filter: "a/+"}, "1", "3", "5", "7", "9", "10", "11")
		tr.remembers(inbox.Selection{Sender: "ann", Filter: "a/long"}, "1", "3", "5", "7", "9", "11")
		tr.restart()
	}
}

// Of what is too much, the oldest go.
func historyKeptInBytes(tr *trial) {
	var messages []*inbox.Envelope
	for i := range 60 {
		e := said("ann", []string{"a/b", "a/more"}[i%6/5], fmt.Sprint(i))
		e.Payload = append(e.Payload, make([]byte, 1000)...)
		messages = append(messages, e)
		tr.append(e)
	}
	first, bytes := len(messages), 0
	for bytes+messages[first-1].Size() <= 20_000 {
		first--
		bytes += messages[first].Size()
	}
	var want []string
	for i, e := range messages {
		if i >= first || e.Topic == "a/more" {
			want = append(want, string(e.Payload))
		}
	}
	tr.eventually("the oldest go", func() bool { return len(tr.walk(tr.history, inbox.Query{})) <= len(want) })
	for range 2 {
		tr.remembers(inbox.Selection{}, want...)
		tr.remembers(inbox.Selection{Filter: "a/more"}, which(messages, inbox.Selection{Filter: "a/more"})...)
		tr.restart()
	}
}

// A message's own expiry counts in history too.
func historyExpired(tr *trial) {
	now := time.Now()
	var want []string
	for i := range 20 {
		e := said([]string{"ann", "bob"}[i%2], "a", fmt.Sprint(i))
		e.Time = now.Add(time.Duration(i-20) * time.Minute).UnixMilli()
		if e.Expiry = now.Add(time.Hour).UnixMilli(); i%5 == 2 || i%5 == 3 {
			e.Expiry = now.Add(-2 * time.Minute).UnixMilli()
		} else {
			want = append(want, fmt.Sprint(i))
		}
		tr.append(e)
	}
	soon := message("a", 1, "soon")
	soon.Expiry = now.Add(200 * time.Millisecond).UnixMilli()
	tr.append(soon)
	tr.eventually("it expires", func() bool { return time.Now().UnixMilli() > soon.Expiry })
	for range 2 {
		tr.remembers(inbox.Selection{}, want...)
		tr.remembers(inbox.Selection{Filter: "a"}, want...)
		tr.restart()
	}
}

// So many topics and messages that an engine may have prepared something.
func historyOfMany(tr *trial) {
	var topics []string
	for i := range 12 {
		topics = append(topics, fmt.Sprint("chat/", i/3, "/", i))
	}
	topics = append(topics, longNames("chat/", 2)...)
	users := []string{"ann", "bob", "eve", "joe", "kim"}
	var messages []*inbox.Envelope
	for round := range 3 {
		messages = append(messages, tr.talk(size(500, 200), users, topics)...)
		for _, s := range []inbox.Selection{{}, {Filter: topics[4]}, {Filter: "chat/1/+"}, {Filter: "+/+/7"}, {Sender: "eve"}, {Sender: "kim", Filter: topics[13]}} {
			want := which(messages, s)
			same(tr, fmt.Sprintf("%+.60v", s), payloads(tr.walk(tr.history, inbox.Query{Selection: s, Max: 100})), want)
			page := tr.page(tr.history, inbox.Query{Selection: s, Max: 20, NewestFirst: true})
			same(tr, fmt.Sprintf("newest of %+.60v", s), payloads(page.Entries), backwards(want)[:min(20, len(want))])
		}
		if round == 1 {
			tr.restart()
		}
	}
}
