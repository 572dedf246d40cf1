package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/client"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// link is a connection to a broker that is only a store. It answers what a client
// asks, from a goroutine of its own as Paho would.
type link struct {
	client  *client.Client
	service *pull.Service
	asker   pull.Asker
	all     sync.WaitGroup

	mu     sync.Mutex                                            // guards what follows
	asked  []string                                              // the operations
	answer func(n int, p *paho.Publish) (body []byte, send bool) // instead of the service; n counts from 0
}

func (l *link) Publish(ctx context.Context, p *paho.Publish) (*paho.PublishResponse, error) {
	operation := strings.TrimPrefix(p.Topic, "$inbox/")
	l.mu.Lock()
	n := len(l.asked)
	l.asked = append(l.asked, operation)
	answer := l.answer
	l.mu.Unlock()
	l.all.Go(func() {
		body, send := []byte(nil), true
		if answer != nil {
			body, send = answer(n, p)
		}
		if body == nil && send {
			body, _ = l.service.Do(ctx, l.asker, operation, p.Payload, p.Properties.ContentType)
		}
		if send {
			l.send(p.Topic+"/answer", body, p.Properties.CorrelationData)
		}
	})
	return &paho.PublishResponse{}, nil
}

func (l *link) send(topic string, body, correlation []byte) bool {
	properties := &paho.PublishProperties{CorrelationData: correlation}
	taken, _ := l.client.Received(paho.PublishReceived{Packet: &paho.Publish{Topic: topic, Payload: body, Properties: properties}})
	return taken
}

// asks counts the requests so far.
func (l *link) asks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}

// world is a store that keeps history, with alice, who is away and is subscribed to
// chat/#.
type world struct {
	*link
	store inbox.Store
	t     *testing.T
}

func newWorld(t *testing.T, o client.Options) *world {
	t.Helper()
	store := memory.New(memory.Options{History: []inbox.Kept{{Filter: "#"}}})
	t.Cleanup(func() { _ = store.Close() })
	in, _, err := store.Open(t.Context(), "alice", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Subscribe(t.Context(), inbox.Subscription{Filter: "chat/#", QoS: 1}); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever, Goodbye: true}); err != nil {
		t.Fatal(err)
	}
	o.Log = slog.New(slog.DiscardHandler)
	l := &link{client: client.New(o), service: pull.New(store, pull.Options{}), asker: pull.Asker{Receiver: "alice"}}
	l.client.Use(l)
	t.Cleanup(l.all.Wait)
	return &world{l, store, t}
}

func (w *world) publish(from, topic string, payloads ...string) (ids []string) {
	w.t.Helper()
	for _, payload := range payloads {
		done := make(chan inbox.Receipt, 1)
		w.store.Append(w.t.Context(), &inbox.Envelope{
			Time: time.Now().UnixMilli(), Topic: topic, Payload: []byte(payload), QoS: 1, Client: from,
		}, func(r inbox.Receipt, err error) {
			if err != nil {
				w.t.Error(err)
			}
			done <- r
		})
		ids = append(ids, (<-done).ID.String())
	}
	return ids
}

func numbers(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// unread returns the payloads of what alice has not acknowledged.
func (w *world) unread() (all []string) {
	w.t.Helper()
	for m, err := range w.client.Messages(w.t.Context(), pull.PullRequest{Ack: new(false)}) {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, m.Payload)
	}
	return all
}

func (w *world) equal(what string, got, want []string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A walk gives everything in order, and acknowledges a page when the next one is asked
// for.
func TestPagesAcknowledgeThePageBefore(t *testing.T) {
	w := newWorld(t, client.Options{})
	w.publish("bob", "chat/a", numbers(0, 10)...)
	var got []string
	for page, err := range w.client.Pages(t.Context(), pull.PullRequest{Limit: 4}) {
		if err != nil {
			t.Fatal(err)
		}
		w.equal("unread", w.unread(), numbers(len(got), 10)) // this page among them
		for _, m := range page.Messages {
			got = append(got, m.Payload)
		}
		if left := page.Remaining.Messages; left != int64(10-len(got)) {
			t.Errorf("%d are said to remain after %d", left, len(got))
		}
	}
	w.equal("pages", got, numbers(0, 10))
	w.equal("unread at last", w.unread(), nil)
}

func TestWalkTakesOneRequestMoreThanPages(t *testing.T) {
	w := newWorld(t, client.Options{})
	w.publish("bob", "chat/a", numbers(0, 12)...)
	var got []string
	for m, err := range w.client.Messages(t.Context(), pull.PullRequest{Limit: 4}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Payload)
	}
	w.equal("messages", got, numbers(0, 12))
	if n := w.asks(); n != 4 {
		t.Errorf("3 pages took %d requests, want 4", n)
	}
}

// Who stops in the middle of a page has acknowledged nothing of it.
func TestStoppingEarlyAcknowledgesNothingOfThePage(t *testing.T) {
	w := newWorld(t, client.Options{})
	w.publish("bob", "chat/a", numbers(0, 12)...)
	for m, err := range w.client.Messages(t.Context(), pull.PullRequest{Limit: 4}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload == "5" {
			break
		}
	}
	w.equal("unread", w.unread(), numbers(4, 12))
	for range w.client.Pages(t.Context(), pull.PullRequest{Limit: 4, Order: pull.NewestFirst}) {
		break
	}
	w.equal("unread", w.unread(), numbers(4, 12))
}

func TestPagesOfASelectionNewestFirst(t *testing.T) {
	w := newWorld(t, client.Options{})
	for i := range 10 {
		w.publish("bob", "chat/a", fmt.Sprint("bob", i))
		w.publish("carol", "chat/a", fmt.Sprint("carol", i))
	}
	var got []string
	for m, err := range w.client.Messages(t.Context(), pull.PullRequest{Limit: 3, Order: pull.NewestFirst, Sender: "bob"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Payload)
	}
	want := []string{"bob9", "bob8", "bob7", "bob6", "bob5", "bob4", "bob3", "bob2", "bob1", "bob0"}
	w.equal("bob's", got, want)
	if left := w.unread(); len(left) != 10 || left[0] != "carol0" {
		t.Errorf("unread are %q", left)
	}
}

func TestSummaryAndAck(t *testing.T) {
	w := newWorld(t, client.Options{})
	ids := w.publish("bob", "chat/a", numbers(0, 3)...)
	w.publish("carol", "chat/b", numbers(3, 8)...)
	s, err := w.client.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Messages != 8 || len(s.Senders) != 2 || s.Senders[0].Sender != "carol" || s.Senders[0].Messages != 5 ||
		s.Topics[1].Topic != "chat/a" || s.Topics[1].Newest.ID != ids[2] {
		t.Errorf("summary: %+v", s)
	}
	for _, x := range []struct {
		r    pull.AckRequest
		want int
	}{
		{pull.AckRequest{IDs: ids[:2]}, 2},
		{pull.AckRequest{IDs: ids[:2]}, 0},
		{pull.AckRequest{IDs: []string{}}, 0},
		{pull.AckRequest{IDs: slices.Repeat(ids, 1000)}, 1}, // more than one request takes
		{pull.AckRequest{Sender: "carol", Topic: "chat/+"}, 5},
	} {
		if n, err := w.client.Ack(t.Context(), x.r); err != nil || n != x.want {
			t.Errorf("%d ids: %d are acknowledged, %v; want %d", len(x.r.IDs), n, err, x.want)
		}
	}
	w.equal("unread", w.unread(), nil)
}

// A summary of many conversations comes in parts, and is one all the same.
func TestSummaryInParts(t *testing.T) {
	w := newWorld(t, client.Options{})
	w.asker.MaxAnswer = 2000
	for i := range 60 {
		w.publish(fmt.Sprint("sender", i), fmt.Sprint("chat/", i%40), "")
	}
	s, err := w.client.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Messages != 60 || len(s.Senders) != 60 || len(s.Topics) != 40 || s.Senders[0].Sender != "sender59" || s.Topics[0].Topic != "chat/19" {
		t.Errorf("%d messages, %d senders, %d topics; the first are %q and %q", s.Messages, len(s.Senders), len(s.Topics), s.Senders[0].Sender, s.Topics[0].Topic)
	}
	if w.asks() < 3 {
		t.Errorf("it came in %d parts", w.asks())
	}
}

func TestHistoryModeAndDelete(t *testing.T) {
	w := newWorld(t, client.Options{})
	w.publish("bob", "chat/a", numbers(0, 30)...)
	own := w.publish("alice", "chat/a", "\xff") // no text
	var got []string
	for m, err := range w.client.History(t.Context(), pull.HistoryRequest{Topic: "chat/a", Limit: 7}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(m.Content()))
	}
	want := append(numbers(0, 30), "\xff")
	slices.Reverse(want)
	w.equal("history", got, want)
	if n := w.asks(); n != 6 {
		t.Errorf("5 pages took %d requests", n)
	}
	for m, err := range w.client.History(t.Context(), pull.HistoryRequest{Order: pull.OldestFirst, After: own[0]}) {
		t.Errorf("behind the last: %v, %v", m, err)
	}
	if err := w.client.Delete(t.Context(), own[0]); err != nil {
		t.Fatal(err)
	}
	for m, err := range w.client.History(t.Context(), pull.HistoryRequest{}) {
		if err != nil || !m.Deleted || m.ID != own[0] {
			t.Errorf("deleted: %v, %v", m, err)
		}
		break
	}
	page, err := w.client.HistoryPage(t.Context(), pull.HistoryRequest{Limit: 2})
	if err != nil || len(page.Messages) != 2 || !page.More {
		t.Errorf("a page of history: %v, %v", page, err)
	}
	page, err = w.client.Pull(t.Context(), pull.PullRequest{Limit: 2})
	if err != nil || len(page.Messages) != 2 || page.Remaining.Messages != 28 {
		t.Errorf("a page: %v, %v", page, err)
	}
	if err := w.client.SetMode(t.Context(), pull.ModePull); err != nil {
		t.Error(err)
	}
	if mode, err := w.client.Mode(t.Context()); err != nil || mode != pull.ModePull {
		t.Errorf("the mode is %q, %v", mode, err)
	}
	for s, err := range w.store.Sessions(t.Context()) {
		if err != nil || s.Mode != inbox.ModePull {
			t.Errorf("the mode is %v, %v", s.Mode, err)
		}
	}
}

// A notice is told, and is not for the app; one that is none, and one that nobody wants,
// do no harm.
func TestNoticesAreTold(t *testing.T) {
	var told []pull.Notice
	w := newWorld(t, client.Options{Acknowledged: func(n pull.Notice) { told = append(told, n) }})
	other := newWorld(t, client.Options{})
	for _, payload := range []string{`{"clients":["a","b"]}`, `[`, `{"clients":[],"more":true,"new":1}`} {
		if !w.send("$inbox/acknowledged", []byte(payload), nil) || !other.send("$inbox/acknowledged", []byte(payload), nil) {
			t.Errorf("%s is given to the app", payload)
		}
	}
	if want := []pull.Notice{{Clients: []string{"a", "b"}}, {Clients: []string{}, More: true}}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %+v, want %+v", told, want)
	}
}

func TestErrorsOfTheBroker(t *testing.T) {
	w := newWorld(t, client.Options{})
	w.asker.Receiver = "nobody"
	_, err := w.client.Summary(t.Context())
	var told *client.Error
	if !errors.As(err, &told) || told.Code != pull.CodeNoSession || told.Message == "" {
		t.Errorf("summary: %v", err)
	}
	seen := 0
	for _, err := range w.client.Messages(t.Context(), pull.PullRequest{}) {
		if seen++; !errors.As(err, &told) {
			t.Errorf("messages: %v", err)
		}
	}
	if seen != 1 {
		t.Errorf("an error came %d times", seen)
	}
	w.answer = func(int, *paho.Publish) ([]byte, bool) { return []byte{0xc1}, true } // no msgpack
	if _, err := w.client.Summary(t.Context()); err == nil {
		t.Error("an answer that cannot be read is taken")
	}
}

// A broker that is busy is asked again; but not for ever.
func TestBusyIsAskedAgain(t *testing.T) {
	busy, err := msgpack.Marshal(pull.ErrorAnswer{Error: &pull.Error{Code: pull.CodeBusy}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, client.Options{})
		w.publish("bob", "chat/a", "0")
		w.answer = func(n int, _ *paho.Publish) ([]byte, bool) {
			if n < 3 {
				return busy, true
			}
			return nil, true
		}
		if s, err := w.client.Summary(t.Context()); err != nil || s.Messages != 1 {
			t.Errorf("summary: %v, %v", s, err)
		}
		if w.asks() != 4 {
			t.Errorf("asked %d times", w.asks())
		}
		w.answer = func(int, *paho.Publish) ([]byte, bool) { return busy, true }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := w.client.Summary(ctx)
		var told *client.Error
		if !errors.As(err, &told) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("always busy: %v", err)
		}
	})
}

// Without an answer a request ends after the timeout, or with its context.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, client.Options{Timeout: 5 * time.Second})
		unanswered := make(chan []byte, 2)
		w.answer = func(_ int, p *paho.Publish) ([]byte, bool) {
			unanswered <- p.Properties.CorrelationData
			return nil, false
		}
		began := time.Now()
		if _, err := w.client.Summary(t.Context()); !errors.Is(err, client.ErrNoAnswer) {
			t.Errorf("no answer: %v", err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.client.Summary(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrNoAnswer) {
			t.Errorf("with a deadline: %v", err)
		}
		late := <-unanswered
		// What comes too late, or is not ours, does no harm.
		for _, correlation := range [][]byte{late, nil, []byte("x"), []byte("12345678")} {
			if !w.send("$inbox/summary/answer", []byte{0x80}, correlation) {
				t.Error("an answer is given to the app")
			}
		}
		if taken, err := w.client.Received(paho.PublishReceived{Packet: &paho.Publish{Topic: "$inbox/pull/answer"}}); !taken || err != nil {
			t.Error("an answer without properties is given to the app")
		}
		for _, topic := range []string{"chat/a", "$inbox/summary", "inbox/summary/answer"} {
			if w.send(topic, nil, late) {
				t.Errorf("a message of %s is taken for an answer", topic)
			}
		}
	})
}

// Many may ask at the same time; four requests at most are under way.
func TestConcurrentRequests(t *testing.T) {
	w := newWorld(t, client.Options{})
	w.publish("bob", "chat/a", numbers(0, 5)...)
	var mu sync.Mutex
	running, most := 0, 0
	reached := make(chan struct{}, 100)
	leave := make(chan struct{})
	w.answer = func(int, *paho.Publish) ([]byte, bool) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		reached <- struct{}{}
		<-leave
		mu.Lock()
		running--
		mu.Unlock()
		return nil, true
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			page, err := w.client.Pull(t.Context(), pull.PullRequest{Limit: i%5 + 1})
			if err != nil || len(page.Messages) != i%5+1 {
				t.Errorf("page of %d: %v, %v", i%5+1, page, err)
			}
		})
	}
	for range 4 {
		<-reached
	}
	close(leave)
	all.Wait()
	if most > 4 {
		t.Errorf("%d requests were under way at a time", most)
	}
}

func TestWithoutConnection(t *testing.T) {
	c := client.New(client.Options{})
	if _, err := c.Summary(t.Context()); !errors.Is(err, client.ErrNotConnected) {
		t.Errorf("summary: %v", err)
	}
	if _, err := c.Publish(t.Context(), message("a")); !errors.Is(err, client.ErrNotConnected) {
		t.Errorf("publish: %v", err)
	}
	over := &broker{over: make(chan struct{})}
	close(over.over)
	c.Use(over)
	if _, err := c.Publish(t.Context(), message("a")); !errors.Is(err, client.ErrConnectionOver) {
		t.Errorf("publish: %v", err)
	}
	if _, err := c.Summary(t.Context()); !errors.Is(err, client.ErrConnectionOver) {
		t.Errorf("summary: %v", err)
	}
}

// A message is sent under one name until it is acknowledged.
func TestPublishInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client.New(client.Options{Log: slog.New(slog.DiscardHandler)})
		to := &broker{answer: func(n int, p *paho.Publish) (*paho.PublishResponse, error) {
			switch {
			case p.Topic == "forbidden":
				return &paho.PublishResponse{ReasonCode: packets.PubackNotAuthorized}, errors.New("refused")
			case n < 2:
				return nil, errors.New("no connection")
			}
			return acknowledged("the id"), nil
		}}
		c.Use(to)
		receipt, err := c.Publish(t.Context(), message("a"))
		if err != nil || receipt.ID != "the id" {
			t.Errorf("published: %v, %v", receipt, err)
		}
		if got := to.names(); !slices.Equal(got, slices.Repeat([]string{receipt.Name}, 3)) {
			t.Errorf("sent under %q, want 3 times %q", got, receipt.Name)
		}
		var refused *client.RefusedError
		if _, err := c.Publish(t.Context(), message("forbidden")); !errors.As(err, &refused) || refused.Error() == "" {
			t.Errorf("forbidden: %v", err)
		}
		if _, err := c.Publish(t.Context(), &paho.Publish{Topic: "a"}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("QoS 0: %v", err)
		}
	})
}

func TestMetadataOf(t *testing.T) {
	if m := client.MetadataOf(&paho.Publish{}); m.ID != "" || !m.Time.IsZero() {
		t.Errorf("of nothing: %+v", m)
	}
	m := client.MetadataOf(&paho.Publish{Properties: &paho.PublishProperties{User: paho.UserProperties{
		{Key: "inbox-sender", Value: "forged"}, {Key: "inbox-id", Value: "forged"}, {Key: "inbox-gap", Value: "9 forged a b"},
		{Key: "k", Value: "v"},
		{Key: "inbox-id", Value: "0000000000000001-00000002"}, {Key: "inbox-time", Value: "2026-01-02T15:04:05.006Z"},
		{Key: "inbox-sender", Value: "bob"}, {Key: "inbox-gap", Value: "3 expired 2026-01-02T15:04:05.000Z 2026-01-02T15:04:06.000Z"},
		{Key: "inbox-gap", Value: "nonsense"}, {Key: "inbox-gap", Value: "x limit a b"}, {Key: "inbox-gap", Value: "1 limit a b"},
	}}})
	if m.ID != "0000000000000001-00000002" || m.Sender != "bob" || m.Time.UnixMilli()%1000 != 6 || len(m.Gaps) != 1 ||
		m.Gaps[0].Count != 3 || m.Gaps[0].Reason != "expired" || m.Gaps[0].To-m.Gaps[0].From != 1000 {
		t.Errorf("read %+v", m)
	}
}
