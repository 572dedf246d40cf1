package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// face is a broker that a test asks over HTTP.
type face struct {
	*Broker
	t    testing.TB
	mqtt string // address
	base string // of URLs
	stop func() error
}

// httpOptions are those of a broker in memory that keeps everything under chat.
func httpOptions() Options {
	o := quietOptions()
	o.HTTP = []string{"127.0.0.1:0"}
	o.History = []inbox.Kept{{Filter: "chat/#"}}
	o.Store = memory.New(memory.Options{History: o.History})
	return o
}

func serveHTTP(t *testing.T, o Options) *face {
	t.Helper()
	b, stop := serve(t, o)
	addresses := b.Addresses()
	return &face{Broker: b, t: t, mqtt: addresses[0], base: "http://" + addresses[len(addresses)-1], stop: stop}
}

// onEveryEngine runs a test with a broker in memory, and one on disk.
func onEveryEngine(t *testing.T, test func(*testing.T, *face), changes ...func(*Options)) {
	change := func(o Options) Options {
		for _, c := range changes {
			c(&o)
		}
		return o
	}
	t.Run("memory", func(t *testing.T) { test(t, serveHTTP(t, change(httpOptions()))) })
	t.Run("badger", func(t *testing.T) {
		o := change(httpOptions())
		o.Store, o.Dir = nil, t.TempDir()
		test(t, serveHTTP(t, o))
	})
}

// answered is what came back.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// with changes a request before it is sent.
type with func(*http.Request)

func as(user, password string) with {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

func header(name, value string) with {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// ask sends one request. body is nil, a string, or encoded as JSON.
func (f *face) ask(method, path string, body any, changes ...with) answered {
	f.t.Helper()
	var content io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(body)
	default:
		b, err := json.Marshal(body)
		if err != nil {
			f.t.Fatal(err)
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.base+path, content)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, change := range changes {
		change(r)
	}
	response, err := http.DefaultTransport.RoundTrip(r) // redirects are answers, too
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answered{response.StatusCode, response.Header, b}
}

// want decodes the answer to a request that must succeed.
func want[A any](f *face, method, path string, body any, changes ...with) (a A) {
	f.t.Helper()
	got := f.ask(method, path, body, changes...)
	if got.status != http.StatusOK {
		f.t.Fatalf("%s %s: status %d: %s", method, path, got.status, got.body)
	}
	if kind := got.header.Get("Content-Type"); kind != "application/json" {
		f.t.Errorf("%s %s: type %q", method, path, kind)
	}
	dec := json.NewDecoder(bytes.NewReader(got.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		f.t.Fatalf("%s %s: %v: %s", method, path, err, got.body)
	}
	return a
}

// refused returns the code of the error of a request that must fail with a status.
func (f *face) refused(status int, method, path string, body any, changes ...with) string {
	f.t.Helper()
	got := f.ask(method, path, body, changes...)
	var e pull.ErrorAnswer
	if err := json.Unmarshal(got.body, &e); err != nil || e.Error == nil {
		f.t.Fatalf("%s %s: no error but %d: %q", method, path, got.status, got.body)
	}
	if got.status != status || e.Error.Message == "" {
		f.t.Errorf("%s %s: status %d, want %d: %s", method, path, got.status, status, got.body)
	}
	return e.Error.Code
}

// publish publishes a text.
func (f *face) publish(topic, payload string, changes ...with) string {
	f.t.Helper()
	return want[PublishAnswer](f, "POST", "/v1/messages", PublishRequest{Topic: topic, Payload: payload}, changes...).ID
}

// receiver makes a session that lasts, with a subscription, and leaves it.
func (f *face) receiver(id, filter string) {
	f.t.Helper()
	c := f.dial(id)
	c.Subscribe(filter, 1)
	c.Disconnect()
	c.WaitClosed()
}

func (f *face) dial(id string, changes ...func(*mqtttest.Options)) *mqtttest.Client {
	f.t.Helper()
	o := mqtttest.Options{ClientID: id, Version: 5, SessionExpiry: 3600}
	for _, change := range changes {
		change(&o)
	}
	return mqtttest.Dial(f.t, f.mqtt, o)
}

func payloads(messages []pull.Message) []string {
	texts := make([]string, len(messages))
	for i := range messages {
		texts[i] = string(messages[i].Content())
	}
	return texts
}

func TestHTTPWalk(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		var sent []string
		for i := range 25 {
			sent = append(sent, string(rune('a'+i)))
			f.publish("chat/alice", sent[i])
		}
		if s := want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/alice/summary", nil); s.Messages != 25 || len(s.Topics) != 1 || s.Topics[0].Topic != "chat/alice" {
			t.Errorf("summary: %+v", s)
		}

		var got []string
		path, requests := "/v1/inboxes/alice/messages?limit=10", 0
		for next := ""; ; requests++ {
			page := want[pull.MessagesAnswer](f, "GET", path+next, nil)
			if again := want[pull.MessagesAnswer](f, "GET", path+next, nil); !slices.Equal(payloads(again.Messages), payloads(page.Messages)) {
				t.Errorf("asked again: %v, want %v", payloads(again.Messages), payloads(page.Messages))
			}
			if len(page.Messages) == 0 {
				break
			}
			got = append(got, payloads(page.Messages)...)
			if requests == 0 {
				f.publish("chat/alice", "meanwhile")
				sent = append(sent, "meanwhile")
			}
			next = "&after=" + page.Next
		}
		if !slices.Equal(got, sent) || requests != 3 {
			t.Errorf("in %d pages: %v, want %v in 3", requests, got, sent)
		}
		if s := want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/alice/summary", nil); s.Messages != 0 {
			t.Errorf("%d messages are unread after all were pulled", s.Messages)
		}
		f.publish("chat/alice", "live")
		if pk := f.dial("alice").NextPublish(); string(pk.Payload) != "live" {
			t.Errorf("by MQTT %s comes, want only what was not pulled", mqtttest.Describe(pk))
		}
	})
}

func TestHTTPSelectsAndBounds(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		first := f.publish("chat/a", "1", as("bob", "x"))
		f.publish("chat/b", "2", as("bob", "x"))
		f.publish("chat/a", "3", as("carol", "x"))
		f.publish("chat/a/b", "4", as("carol", "x"))
		tests := []struct {
			query string
			want  []string
		}{
			{"", []string{"1", "2", "3", "4"}},
			{"?order=desc", []string{"4", "3", "2", "1"}},
			{"?sender=bob", []string{"1", "2"}},
			{"?topic=chat/a", []string{"1", "3"}},
			{"?topic=chat/a/%23", []string{"1", "3", "4"}},
			{"?topic=%2B/a&sender=carol", []string{"3"}},
			{"?after=" + first, []string{"2", "3", "4"}},
			{"?before=" + first, nil},
			{"?limit=1&order=desc", []string{"4"}},
			{"?max_bytes=1", []string{"1"}},
			{"?after=2000-01-01T00:00:00Z&limit=2", []string{"1", "2"}},
			{"?after=2000-01-01T00:00:00%2B02:00&limit=2", []string{"1", "2"}},
		}
		for _, test := range tests {
			if got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages"+test.query, nil).Messages); !slices.Equal(got, test.want) {
				t.Errorf("%q: %v, want %v", test.query, got, test.want)
			}
			order := "&order=asc"
			if strings.Contains(test.query, "order") {
				order = ""
			}
			path := "/v1/history?client=alice&" + strings.TrimPrefix(test.query, "?") + order
			if got := payloads(want[pull.MessagesAnswer](f, "GET", path, nil).Messages); !slices.Equal(got, test.want) {
				t.Errorf("history %q: %v, want %v", path, got, test.want)
			}
		}
		if n := want[pull.AckAnswer](f, "POST", "/v1/inboxes/alice/acknowledge", pull.AckRequest{Sender: "carol"}).Acknowledged; n != 2 {
			t.Errorf("acknowledged: %d", n)
		}
		if got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages?order=desc", nil).Messages); !slices.Equal(got, []string{"2", "1"}) {
			t.Errorf("after one sender was acknowledged: %v", got)
		}
		if n := want[pull.AckAnswer](f, "POST", "/v1/inboxes/alice/acknowledge", pull.AckRequest{Through: first}).Acknowledged; n != 1 {
			t.Errorf("acknowledged through the first: %d", n)
		}
	})
}

// A receiver that is connected pulls as well, and is not sent again what it has
// acknowledged over HTTP.
func TestHTTPBesideMQTT(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		alice := f.dial("alice", func(o *mqtttest.Options) { o.ManualAck = true })
		alice.Subscribe("chat/#", 1)
		for _, text := range []string{"1", "2", "3"} {
			f.publish("chat/alice", text)
		}
		delivered := alice.Collect(3)
		page := want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages?limit=2", nil)
		if got := payloads(page.Messages); !slices.Equal(got, []string{"1", "2"}) {
			t.Fatalf("pulled while they are on their way: %v", got)
		}
		alice.Ack(delivered[0])
		want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages?limit=2&after="+page.Next, nil)
		alice.Ack(delivered[1]) // which it has acknowledged by now
		alice.Disconnect()
		alice.WaitClosed()
		if pk := f.dial("alice").NextPublish(); string(pk.Payload) != "3" {
			t.Errorf("%s comes again, want only what was not acknowledged", mqtttest.Describe(pk))
		}
	})
}

// Everything comes by one way or the other, whatever goes on at the same time.
func TestHTTPAndMQTTAtOnce(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		const each = 50
		alice := f.dial("alice")
		alice.Subscribe("chat/#", 1)
		var publishers, readers sync.WaitGroup
		var published atomic.Bool
		for n := range 2 {
			publishers.Go(func() {
				for i := range each {
					f.publish("chat/a", fmt.Sprintf("http %d %d", n, i))
				}
			})
		}
		bob := f.dial("bob")
		publishers.Go(func() {
			for i := range each {
				bob.PublishAndWait("chat/a", fmt.Sprintf("mqtt %d", i), 1)
			}
		})
		pulled := make([][]string, 2)
		for n := range pulled {
			readers.Go(func() {
				for next := ""; ; {
					last := published.Load()
					page := want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages?limit=7"+next, nil)
					pulled[n] = append(pulled[n], payloads(page.Messages)...)
					if last && len(page.Messages) == 0 {
						return
					}
					if next = ""; page.Next != "" {
						next = "&after=" + page.Next
					}
				}
			})
		}
		publishers.Wait()
		published.Store(true)
		readers.Wait()

		got := map[string]bool{}
		for _, text := range slices.Concat(pulled...) {
			got[text] = true
		}
		f.publish("chat/a", "end")
		for {
			text := string(alice.NextPublish().Payload)
			if text == "end" {
				break
			}
			got[text] = true
		}
		if len(got) != 3*each {
			t.Errorf("%d messages came, want %d", len(got), 3*each)
		}
		mqtttest.Eventually(t, func() bool {
			return want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/alice/summary", nil).Messages == 0
		}, "nothing is unread")
	})
}

func TestHTTPMode(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		if m := want[pull.ModeAnswer](f, "PUT", "/v1/inboxes/alice/mode", pull.ModeRequest{Mode: "pull"}).Mode; m != "pull" {
			t.Errorf("mode: %q", m)
		}
		if m := want[pull.ModeAnswer](f, "GET", "/v1/inboxes/alice/mode", nil).Mode; m != "pull" {
			t.Errorf("mode, asked: %q", m)
		}
		if got := f.ask("GET", "/v1/inboxes/alice/mode?mode=push", nil); got.status != http.StatusBadRequest {
			t.Errorf("asking with a mode: status %d: %s", got.status, got.body)
		}
		f.publish("chat/alice", "waits")
		alice := f.dial("alice")
		f.publish("chat/alice", "live")
		if pk := alice.NextPublish(); string(pk.Payload) != "live" {
			t.Errorf("%s is delivered in pull mode", mqtttest.Describe(pk))
		}
		mqtttest.Eventually(t, func() bool {
			got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages", nil).Messages)
			return slices.Equal(got, []string{"waits"})
		}, "what was delivered is read, and what waits is not")
	})
}

func TestHTTPDelete(t *testing.T) {
	nobodyIsAnOperator := func(o *Options) { o.AllowAnonymous = true }
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		bobs := f.publish("chat/a", "bob's", as("bob", "x"))
		carols := f.publish("chat/a", "carol's", as("carol", "x"))
		if code := f.refused(http.StatusForbidden, "DELETE", "/v1/history/"+carols, nil, as("bob", "x")); code != pull.CodeForbidden {
			t.Errorf("code %q", code)
		}
		f.refused(http.StatusForbidden, "DELETE", "/v1/history?sender=bob", nil, as("bob", "x"))
		f.refused(http.StatusBadRequest, "DELETE", "/v1/history/"+bobs, nil) // nobody asks
		if n := want[pull.DeleteAnswer](f, "DELETE", "/v1/history/"+bobs, nil, as("bob", "x")).Deleted; n != 1 {
			t.Errorf("deleted: %d", n)
		}
		history := want[pull.MessagesAnswer](f, "GET", "/v1/history?client=alice&order=asc", nil).Messages
		if len(history) != 2 || !history[0].Deleted || history[0].Payload != "" || history[1].Payload != "carol's" {
			t.Errorf("history: %+v", history)
		}
		if got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages", nil).Messages); !slices.Equal(got, []string{"carol's"}) {
			t.Errorf("inbox: %v", got)
		}
	}, nobodyIsAnOperator)
}

// Where there are no users, programs of the machine itself are operators.
func TestHTTPErase(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.publish("chat/a", "1", as("bob", "x"))
		f.publish("chat/b", "2", as("bob", "x"))
		f.publish("chat/b", "3", as("carol", "x"))
		if n := want[pull.DeleteAnswer](f, "DELETE", "/v1/history?sender=bob", nil).Deleted; n != 2 {
			t.Errorf("deleted: %d", n)
		}
		if got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/history?sender=bob", nil).Messages); len(got) > 0 {
			t.Errorf("of bob there is left: %v", got)
		}
	})
}

func TestHTTPStopAnswersWhatWasAsked(t *testing.T) {
	o := httpOptions()
	held := &heldStore{Store: o.Store, asked: make(chan struct{}), release: make(chan struct{})}
	o.Store = held
	f := serveHTTP(t, o)
	status := make(chan int)
	go func() { status <- f.ask("GET", "/v1/history", nil).status }()
	<-held.asked
	stopped := make(chan error)
	go func() { stopped <- f.stop() }()
	mqtttest.Eventually(t, func() bool {
		conn, err := dialHTTP(f)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, "nobody new comes in")
	close(held.release)
	if got := <-status; got != http.StatusOK {
		t.Errorf("status %d for what was asked before the stop", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// A request that does not end is cut off, and the store closed after it.
func TestHTTPStopIsBounded(t *testing.T) {
	t.Parallel()
	o := httpOptions()
	o.StopTimeout = mqtttest.Deadline // the grace for what has begun is over long before
	held := &heldStore{Store: o.Store, asked: make(chan struct{}), release: make(chan struct{})}
	o.Store = held
	f := serveHTTP(t, o)
	failed := make(chan error)
	go func() {
		_, err := http.Get(f.base + "/v1/history")
		failed <- err
	}()
	<-held.asked
	if err := f.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("there is an answer")
	}
}

// A receiver that has lost its memory has again what it had acknowledged, where the
// operator keeps that.
func TestHTTPStartingAgain(t *testing.T) {
	keep := func(o *Options) {
		o.Rewind = time.Hour
		o.Store = memory.New(memory.Options{History: o.History, Rewind: o.Rewind})
	}
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		for _, text := range []string{"1", "2", "3"} {
			f.publish("chat/a", text)
		}
		const inbox = "/v1/inboxes/alice/messages"
		page := want[pull.MessagesAnswer](f, "GET", inbox, nil)
		want[pull.MessagesAnswer](f, "GET", inbox+"?after="+page.Next, nil)
		if got := want[pull.MessagesAnswer](f, "GET", inbox, nil).Messages; len(got) > 0 {
			t.Errorf("unread: %v", payloads(got))
		}
		if got := payloads(want[pull.MessagesAnswer](f, "GET", inbox+"?after=0", nil).Messages); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("from the beginning: %v", got)
		}
		if got := payloads(want[pull.MessagesAnswer](f, "GET", inbox+"?after="+page.Messages[1].ID, nil).Messages); !slices.Equal(got, []string{"3"}) {
			t.Errorf("after the second: %v", got)
		}
	}, keep)
}
