package pull

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
)

// house is a real store and the service before it.
type house struct {
	t     *testing.T
	store *memory.Store
	*Service
}

func newHouse(t *testing.T, o memory.Options) *house {
	h := &house{t: t, store: memory.New(o)}
	h.Service = New(h.store, Options{Rewind: o.Rewind > 0})
	t.Cleanup(func() { h.store.Close() })
	return h
}

// restart is what a restart of the store leaves.
func (h *house) restart() {
	h.store = h.store.Reopen()
	h.store.Close()
	h.store = h.store.Reopen()
	h.Service = New(h.store, Options{Rewind: h.rewind})
}

// keepAll keeps history of everything.
var keepAll = memory.Options{History: []inbox.Kept{{Filter: "#"}}}

// join gives a receiver a session with a subscription, and goes.
func (h *house) join(r inbox.Receiver, filter string) {
	h.t.Helper()
	in, _, err := h.store.Open(context.Background(), r, inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err == nil {
		_, err = in.Subscribe(context.Background(), inbox.Subscription{Filter: filter, QoS: 1})
	}
	if err == nil {
		err = in.Close(context.Background(), inbox.Ending{Expiry: inbox.ExpiryNever})
	}
	if err != nil {
		h.t.Fatalf("join %s: %v", r, err)
	}
}

// send publishes messages, and returns their ids. What is given as life ends them.
func (h *house) send(n int, user, topic string, life time.Duration) (ids []string) {
	h.t.Helper()
	for i := range n {
		now := time.Now()
		e := &inbox.Envelope{Time: now.UnixMilli(), Topic: topic, QoS: 1, Client: user + "-client", User: user, Payload: fmt.Appendf(nil, "%d", i)}
		if life > 0 {
			e.Expiry = now.Add(life).UnixMilli()
		}
		done := make(chan error, 1)
		h.store.Append(context.Background(), e, func(r inbox.Receipt, err error) {
			ids = append(ids, r.ID.String())
			done <- err
		})
		if err := <-done; err != nil {
			h.t.Fatalf("publish: %v", err)
		}
	}
	return ids
}

// unread is what the summary says.
func (h *house) unread(a Asker) int {
	h.t.Helper()
	answer, err := h.Summary(context.Background(), a, SummaryRequest{})
	if err != nil {
		h.t.Fatalf("summary: %v", err)
	}
	return int(answer.Messages)
}

func (h *house) ack(a Asker, r AckRequest) int {
	h.t.Helper()
	answer, err := h.Ack(context.Background(), a, r)
	if err != nil {
		h.t.Fatalf("ack %+v: %v", r, err)
	}
	return answer.Acknowledged
}

// walkHistory reads on until there is no more, and calls between after each page.
func (h *house) walkHistory(a Asker, r HistoryRequest, between func()) (messages []Message) {
	h.t.Helper()
	for {
		answer, err := h.History(context.Background(), a, r)
		if err != nil {
			h.t.Fatalf("history %+v: %v", r, err)
		}
		messages = append(messages, answer.Messages...)
		if answer.Next == "" {
			return messages
		}
		if r.Order == OldestFirst {
			r.After = answer.Next
		} else {
			r.Before = answer.Next
		}
		between()
	}
}

func messageIDs(messages []Message) (ids []string) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}
