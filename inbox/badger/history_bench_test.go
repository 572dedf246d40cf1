package badger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// A page of 20 in one topic, in a history with a million messages, in that topic or in a
// thousand.
func BenchmarkHistoryPage(b *testing.B) {
	const messages = 1_000_000
	for _, topics := range []int{1, 1000} {
		s := openKeeping(b, keeping(b.TempDir(), "chat/#"))
		began := time.Now()
		middle := fillChats(b, s, messages, topics)
		b.Logf("%d messages in %d topics: stored in %v", messages, topics, time.Since(began).Round(time.Millisecond))
		if _, err := s.History(background, inbox.Query{Selection: inbox.Selection{Filter: "chat/0"}, Max: 1, MaxBytes: 1}); err != nil {
			b.Fatal(err)
		}
		b.Logf("indexed in %v", time.Since(began).Round(time.Millisecond))
		for _, c := range []struct {
			name   string
			filter string
			sender string
			at     inbox.Bound
		}{
			{name: "newest", filter: "chat/0"},
			{name: "middle", filter: "chat/0", at: inbox.Bound{ID: middle}},
			{name: "by time", filter: "chat/0", at: inbox.Bound{Time: time.Now().Add(-time.Second).UnixMilli()}},
			{name: "of a sender", sender: "user 7", at: inbox.Bound{ID: middle}},
			{name: "of a sender in it", filter: "chat/0", sender: "user 0", at: inbox.Bound{ID: middle}},
			{name: "with a wildcard", filter: "chat/+", at: inbox.Bound{ID: middle}},
			{name: "everything", at: inbox.Bound{ID: middle}},
		} {
			q := inbox.Query{Selection: inbox.Selection{Filter: c.filter, Sender: c.sender}, Before: c.at, NewestFirst: true, Max: 20, MaxBytes: 1 << 20}
			b.Run(fmt.Sprintf("topics=%d/%s", topics, c.name), func(b *testing.B) {
				for b.Loop() {
					readWhole(b, s, q)
				}
			})
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// readWhole reads as many messages as are asked for, though a page may be short while
// the index is behind.
func readWhole(b *testing.B, s *badger.Store, q inbox.Query) {
	for q.Max > 0 {
		page, err := s.History(background, q)
		if err != nil || len(page.Entries) < q.Max && !page.More {
			b.Fatalf("%d entries, %v", len(page.Entries), err)
		}
		q.Max -= len(page.Entries)
		if q.Before = (inbox.Bound{Position: page.Next}); page.Next == 0 && len(page.Entries) > 0 {
			q.Before.Position = page.Entries[len(page.Entries)-1].Position
		}
	}
}

// fillChats stores messages of 100 users in turn in some topics, and returns the id of
// the one in the middle.
func fillChats(b *testing.B, s *badger.Store, messages, topics int) (middle inbox.MessageID) {
	type result struct {
		id  inbox.MessageID
		err error
	}
	done := make(chan result, messages)
	payload := make([]byte, 200)
	for i := range messages {
		e := &inbox.Envelope{
			Topic: fmt.Sprint("chat/", i%topics), QoS: 1, Payload: payload, Time: time.Now().UnixMilli(),
			Client: "c", User: fmt.Sprint("user ", i%100),
		}
		s.Append(background, e, func(r inbox.Receipt, err error) { done <- result{r.ID, err} })
	}
	for i := range messages {
		r := <-done
		if r.err != nil {
			b.Fatal(r.err)
		}
		if i == messages/2 {
			middle = r.id
		}
	}
	return middle
}
