package hooks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// ask publishes a request and decodes its answer into A. Messages that come
// meanwhile stay where they are.
func ask[A any](t testing.TB, c *mqtttest.Client, operation string, request any) (answer A) {
	t.Helper()
	if failed := tryAsk(t, c, operation, request, &answer); failed != nil {
		t.Fatalf("%s %+v: %v", operation, request, failed)
	}
	return answer
}

func tryAsk(t testing.TB, c *mqtttest.Client, operation string, request, answer any) *pull.Error {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	c.Publish("$inbox/"+operation, string(body), 0)
	pk := c.NextOn("$inbox/" + operation + "/answer")
	var failed pull.ErrorAnswer
	if err := json.Unmarshal(pk.Payload, &failed); err != nil {
		t.Fatalf("%s: answer %.200q: %v", operation, pk.Payload, err)
	}
	if failed.Error == nil {
		if err := json.Unmarshal(pk.Payload, answer); err != nil {
			t.Fatalf("%s: answer %.200q: %v", operation, pk.Payload, err)
		}
	}
	return failed.Error
}

func payloadsOf(messages []pull.Message) []string {
	all := make([]string, len(messages))
	for i := range messages {
		all[i] = messages[i].Payload
	}
	return all
}

// unread waits until a summary counts so many messages: what a connection has
// acknowledged is counted some time soon.
func unread(t testing.TB, c *mqtttest.Client, want int64) {
	t.Helper()
	got := int64(-1)
	mqtttest.Eventually(t, func() bool {
		var summary pull.SummaryAnswer
		if tryAsk(t, c, "summary", pull.SummaryRequest{}, &summary) == nil { // else busy
			got = summary.Messages
		}
		return got == want
	}, fmt.Sprintf("%d messages are unread", want))
}

// fill stores messages without a connection, and returns when they are all stored.
func (b *broker) fill(n int, envelope func(i int) *inbox.Envelope) {
	b.t.Helper()
	var all sync.WaitGroup
	all.Add(n)
	for i := range n {
		e := envelope(i)
		e.Time = time.Now().UnixMilli()
		b.store.Append(b.t.Context(), e, func(_ inbox.Receipt, err error) {
			if err != nil {
				b.t.Error(err)
			}
			all.Done()
		})
	}
	all.Wait()
}

// A client asks before it takes: what waits is counted and pulled a page at a time,
// by sender, by topic or at all, and acknowledged, while what comes meanwhile is
// delivered. In every version of MQTT.
func TestInboxIsAskedFor(t *testing.T) {
	for name, o := range map[string]mqtttest.Options{"MQTT 3.1.1": v3("phone"), "MQTT 5": v5("phone")} {
		t.Run(name, func(t *testing.T) {
			b := start(t, setting{})
			o.Username = "carol"
			phone := b.dial(o)
			phone.Subscribe("chat/#", 1)
			if mode := ask[pull.ModeAnswer](t, phone, "mode", pull.ModeRequest{Mode: "pull"}); mode.Mode != "pull" {
				t.Errorf("the mode is %q", mode.Mode)
			}
			phone.Disconnect()

			senders := []string{"alice", "bob", "carol"} // the last is the asker's own
			for i := range 30 {
				user := senders[i%3]
				sender := b.dial(mqtttest.Options{ClientID: user + "'s", Clean: true, Username: user, Version: o.Version})
				sender.PublishAndWait(fmt.Sprintf("chat/%d", i%2), fmt.Sprint(user, i), 1)
				sender.Disconnect()
			}

			phone = b.dial(o)
			summary := ask[pull.SummaryAnswer](t, phone, "summary", pull.SummaryRequest{})
			if summary.Messages != 20 || len(summary.Senders) != 2 || len(summary.Topics) != 2 || summary.More {
				t.Errorf("summary %+v, want 20 messages of two others in two topics", summary)
			}
			for _, tally := range summary.Senders {
				if tally.Messages != 10 {
					t.Errorf("tally %+v, want 10", tally)
				}
			}
			page := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{Sender: "bob", Limit: 4})
			if got := payloadsOf(page.Messages); !slices.Equal(got, []string{"bob1", "bob4", "bob7", "bob10"}) || !page.More || page.Remaining.Messages != 6 {
				t.Errorf("pulled %q of bob, then %v %+v", got, page.More, page.Remaining)
			}
			again := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{Sender: "bob", Limit: 4})
			if again.Messages[0].ID != page.Messages[0].ID {
				t.Error("a page that was not acknowledged does not come again")
			}
			page = ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{Sender: "bob", Limit: 100, After: page.Next})
			if got := payloadsOf(page.Messages); len(got) != 6 || got[0] != "bob13" || page.More {
				t.Errorf("pulled %q of bob behind the first page", got)
			}
			newest := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{Topic: "chat/0", Order: "desc", Limit: 2})
			if got := payloadsOf(newest.Messages); !slices.Equal(got, []string{"bob28", "carol26"}) {
				t.Errorf("pulled %q of chat/0, newest first", got)
			}

			b.dial(clean("live")).PublishAndWait("chat/1", "live", 1)
			if pk := phone.NextOn("chat/1"); string(pk.Payload) != "live" {
				t.Errorf("got %s", mqtttest.Describe(pk))
			}
			// bob's first page is read, and one of bob's second is now, and the live one by PUBACK
			one := ask[pull.AckAnswer](t, phone, "ack", pull.AckRequest{IDs: []string{page.Messages[5].ID}})
			if one.Acknowledged != 1 {
				t.Errorf("%d acknowledged by id", one.Acknowledged)
			}
			unread(t, phone, 15)
			if all := ask[pull.AckAnswer](t, phone, "ack", pull.AckRequest{Sender: "alice"}); all.Acknowledged != 10 {
				t.Errorf("%d of alice acknowledged", all.Acknowledged)
			}
			if all := ask[pull.AckAnswer](t, phone, "ack", pull.AckRequest{All: true}); all.Acknowledged != 5+10 {
				t.Errorf("%d of all others acknowledged", all.Acknowledged)
			}
			unread(t, phone, 0)
			var none pull.MessagesAnswer
			if failed := tryAsk(t, phone, "ack", pull.AckRequest{IDs: []string{"0000000000000001-00000001"}}, &none); failed == nil || failed.Code != "unknown_id" {
				t.Errorf("an unknown id is acknowledged: %v", failed)
			}
			phone.Ping()
			phone.Silent(0)
		})
	}
}

// Ten thousand messages of a thousand senders are read in 51 requests.
func TestTenThousandMessagesIn51Requests(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("phone"), "chat/#", 1)
	const n = 10_000
	b.fill(n, func(i int) *inbox.Envelope {
		sender := "sender" + strconv.Itoa(i%1000)
		return &inbox.Envelope{Topic: "chat/" + sender, Payload: []byte(strconv.Itoa(i)), QoS: 1, Client: sender, User: sender}
	})
	phone := b.dial(saying(v5("phone"), "inbox-mode", "pull"))
	got, requests := make([]string, 0, n), 0
	for more, next := true, ""; more; requests++ {
		page := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{After: next})
		got = append(got, payloadsOf(page.Messages)...)
		next, more = page.Next, len(page.Messages) > 0
	}
	wantPayloads(t, got, numbers(0, n-1))
	if requests != 51 {
		t.Errorf("%d requests, want 51", requests)
	}
	phone.Ping()
	phone.Silent(0)
	unread(t, phone, 0)
}

// Case 141: what is delivered and what is pulled is one inbox. A message has the same
// id by both doors, and what is acknowledged by either comes by neither again.
func TestPullAndPushAreOneInbox(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("phone"), "a", 1)
	publisher := b.dial(clean("publisher"))
	for i := range 20 {
		publisher.PublishAndWait("a", strconv.Itoa(i), 1)
	}
	phone := b.dial(manual(asking(v5("phone"), "on")))
	page := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{Limit: 100})
	if len(page.Messages) != 20 {
		t.Fatalf("pulled %d messages", len(page.Messages))
	}
	pushed := make([]packets.Packet, 20)
	for i, m := range page.Messages {
		pushed[i] = phone.NextOn("a")
		if id := told(pushed[i].Properties, "inbox-id"); id != m.ID || string(pushed[i].Payload) != m.Payload {
			t.Errorf("message %d is %s when delivered, and %s %q when pulled", i, id, m.ID, m.Payload)
		}
	}
	var ids []string
	for i, m := range page.Messages {
		if i%2 == 0 {
			phone.Ack(pushed[i])
		} else if i%4 == 1 {
			ids = append(ids, m.ID)
		}
	}
	if n := ask[pull.AckAnswer](t, phone, "ack", pull.AckRequest{IDs: ids}); n.Acknowledged != 5 {
		t.Errorf("%d are acknowledged by id", n.Acknowledged)
	}
	phone.Ack(pushed[1]) // and by PUBACK too
	unread(t, phone, 5)
	left := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{Limit: 100})
	if got := payloadsOf(left.Messages); !slices.Equal(got, []string{"3", "7", "11", "15", "19"}) {
		t.Errorf("pulled again: %q", got)
	}
	phone.Cut()

	for _, restart := range []bool{false, true} {
		if restart {
			b.restart()
		}
		phone = b.dial(manual(v5("phone")))
		for _, want := range []string{"3", "7", "11", "15", "19"} {
			if pk := phone.NextOn("a"); string(pk.Payload) != want || !pk.FixedHeader.Dup {
				t.Errorf("restart %v: delivered again: %s, want %s", restart, mqtttest.Describe(pk), want)
			}
		}
		phone.Ping()
		phone.Silent(0)
		phone.Cut()
	}
	phone = b.dial(manual(saying(v5("phone"), "inbox-mode", "pull")))
	if n := ask[pull.AckAnswer](t, phone, "ack", pull.AckRequest{All: true}); n.Acknowledged != 5 {
		t.Errorf("%d are acknowledged at the end", n.Acknowledged)
	}
	phone.Cut()
	b.awaitAway(phone.ID)
	phone = b.dial(saying(v5("phone"), "inbox-mode", "push"))
	unread(t, phone, 0)
	publisher = b.dial(clean("publisher"))
	publisher.PublishAndWait("a", "next", 1)
	if pk := phone.NextOn("a"); string(pk.Payload) != "next" {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
}

// In pull mode the backlog waits and what comes is delivered, and the one is
// acknowledged without the other. Back in push mode the rest of the backlog comes, in
// order, and what was read does not.
func TestFromPullToPush(t *testing.T) {
	for _, qos := range []byte{1, 2} {
		t.Run(fmt.Sprint("QoS ", qos), func(t *testing.T) {
			b := start(t, setting{})
			b.subscribed(v5("phone"), "a", qos)
			publish := func(first, last int) {
				t.Helper()
				publisher := b.dial(clean("publisher"))
				for _, n := range numbers(first, last) {
					publisher.PublishAndWait("a", n, qos)
				}
				publisher.Disconnect()
			}
			publish(0, 9) // wait
			phone := b.dial(manual(saying(v5("phone"), "inbox-mode", "pull")))
			publish(10, 14) // are delivered
			pushed := make([]packets.Packet, 5)
			for i := range pushed {
				pushed[i] = phone.NextOn("a")
				if string(pushed[i].Payload) != strconv.Itoa(10+i) {
					t.Fatalf("got %s", mqtttest.Describe(pushed[i]))
				}
			}
			phone.Ack(pushed[0]) // 10 is had
			if qos == 2 {
				phone.NextOf(packets.Pubrel)
				phone.Complete(pushed[0].PacketID)
			}
			page := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{Limit: 100})
			ack := pull.AckRequest{IDs: []string{page.Messages[0].ID, page.Messages[2].ID, page.Messages[len(page.Messages)-1].ID}} // 0, 2 and 14
			if n := ask[pull.AckAnswer](t, phone, "ack", ack); n.Acknowledged != 3 {
				t.Errorf("%d acknowledged", n.Acknowledged)
			}
			unread(t, phone, 15-1-3)
			phone.Cut()
			b.awaitAway(phone.ID)
			publish(15, 19) // wait again
			phone = b.dial(v5("phone"))
			// 11 to 13 are under way and come again, and nothing else does
			for _, want := range []string{"11", "12", "13"} {
				if pk := phone.NextOn("a"); string(pk.Payload) != want || !pk.FixedHeader.Dup {
					t.Errorf("got %s, want %s again", mqtttest.Describe(pk), want)
				}
			}
			publish(20, 20)
			if pk := phone.NextOn("a"); string(pk.Payload) != "20" {
				t.Errorf("got %s", mqtttest.Describe(pk))
			}
			unread(t, phone, 8+5)
			phone.Disconnect()
			b.restart()

			phone = b.dial(saying(v5("phone"), "inbox-mode", "push"))
			for _, want := range append([]string{"1"}, append(numbers(3, 9), numbers(15, 19)...)...) {
				if pk := phone.NextOn("a"); string(pk.Payload) != want {
					t.Errorf("got %s, want %s", mqtttest.Describe(pk), want)
				}
			}
			publish(21, 21)
			if pk := phone.NextOn("a"); string(pk.Payload) != "21" {
				t.Errorf("got %s", mqtttest.Describe(pk))
			}
			unread(t, phone, 0)
			phone.Ping()
			phone.Silent(0)
		})
	}
}

// What was delivered in pull mode and never acknowledged but by a request is finished
// when push mode begins, and the backlog is not held up by it.
func TestToPushWithNothingLeftOpen(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("phone"), "a", 1)
	publisher := b.dial(clean("publisher"))
	publisher.PublishAndWait("a", "waits", 1)
	phone := b.dial(manual(saying(v5("phone"), "inbox-mode", "pull")))
	publisher.PublishAndWait("a", "delivered", 1)
	phone.NextOn("a")
	page := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{Order: "desc", Limit: 1})
	ask[pull.AckAnswer](t, phone, "ack", pull.AckRequest{IDs: []string{page.Messages[0].ID}})
	phone.Cut()

	phone = b.dial(saying(v5("phone"), "inbox-mode", "push"))
	if pk := phone.NextOn("a"); string(pk.Payload) != "waits" {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
	unread(t, phone, 0)
}

// What was read by a request is not delivered any more, however much of it there is.
func TestWhatWasReadIsNotDelivered(t *testing.T) {
	b := start(t, setting{Options: hooks.Options{Window: 8, PageMessages: 5}})
	b.subscribed(v5("phone"), "a", 1)
	b.fill(200, func(i int) *inbox.Envelope {
		return &inbox.Envelope{Topic: "a", Payload: []byte(strconv.Itoa(i)), QoS: 1, Client: "publisher"}
	})
	phone := b.dial(manual(v5("phone")))
	delivered := phone.Collect(8)
	if n := ask[pull.AckAnswer](t, phone, "ack", pull.AckRequest{All: true}); n.Acknowledged != 200 {
		t.Errorf("%d are acknowledged", n.Acknowledged)
	}
	for _, pk := range delivered {
		phone.Ack(pk)
	}
	b.dial(clean("publisher")).PublishAndWait("a", "next", 1)
	if pk := phone.NextOn("a"); string(pk.Payload) != "next" {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
	unread(t, phone, 1)
}

// What is to be delivered again and has no room yet is not delivered when it is read
// by a request in the meantime.
func TestWhatWasReadIsNotDeliveredAgain(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("phone"), "a", 1)
	publisher := b.dial(clean("publisher"))
	for _, n := range numbers(0, 9) {
		publisher.PublishAndWait("a", n, 1)
	}
	phone := b.dial(manual(v5("phone")))
	phone.Collect(10)
	phone.Cut()

	narrow := manual(v5("phone"))
	narrow.ReceiveMaximum = 3
	phone = b.dial(narrow)
	again := phone.Collect(3)
	if n := ask[pull.AckAnswer](t, phone, "ack", pull.AckRequest{All: true}); n.Acknowledged != 10 {
		t.Errorf("%d are acknowledged", n.Acknowledged)
	}
	for _, pk := range again {
		phone.Ack(pk)
	}
	publisher.PublishAndWait("a", "next", 1)
	if pk := phone.NextOn("a"); string(pk.Payload) != "next" {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
	unread(t, phone, 1)
}
