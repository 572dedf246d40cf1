package hooks_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Every request is answered, whatever it is, and never stored.
func TestHostileRequests(t *testing.T) {
	store := &asked{summarize: counted(7)}
	b := start(t, setting{Wrap: store.wrap})
	b.subscribed(v5("everything"), "#", 1)
	for _, c := range []struct{ name, topic, payload, code string }{
		{"the topic alone", "$inbox", "{}", "unknown_operation"},
		{"no operation", "$inbox/", "{}", "unknown_operation"},
		{"no such operation", "$inbox/steal", "{}", "unknown_operation"},
		{"an answer", "$inbox/summary/answer", "{}", "unknown_operation"},
		{"a long operation", "$inbox/" + strings.Repeat("x", 65000), "{}", "unknown_operation"},
		{"many levels", "$inbox" + strings.Repeat("/", 1000), "{}", "unknown_operation"},
		{"other letters", "$inbox/Summary", "{}", "unknown_operation"},
		{"no JSON", "$inbox/summary", "{", "bad_request"},
		{"half a number", "$inbox/summary", `{"limit":1e`, "bad_request"},
		{"an array", "$inbox/summary", "[]", "bad_request"},
		{"no text", "$inbox/summary", "\xff\xfe", "bad_request"},
		{"msgpack that breaks off", "$inbox/summary", "\x81\xa5", ""},
		{"as large as it may be", "$inbox/summary", "{" + strings.Repeat(" ", 64<<10-2) + "}", "-"},
		{"too large", "$inbox/summary", "{" + strings.Repeat(" ", 64<<10-1) + "}", "too_large"},
		{"much too large", "$inbox/summary", strings.Repeat(" ", 900<<10), "too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, o := range []mqtttest.Options{v3("old"), v5("new")} {
				client := b.dial(o)
				client.PublishAndWait(c.topic, c.payload, 1, mqtttest.Retain)
				answer := client.NextPublish()
				if c.code == "" {
					if answer.Payload[0] == '{' {
						t.Errorf("answered in JSON with %q", answer.Payload)
					}
				} else if code := codeOf(t, answer); code != strings.Trim(c.code, "-") {
					t.Errorf("answered with %.100q", answer.Payload)
				}
			}
		})
	}
	client := b.dial(v5("new"))
	client.Subscribe("$inbox/#", 0) // none is retained
	client.Ping()
	client.Silent(0)
	everything := b.dial(v5("everything"))
	everything.Ping()
	everything.Silent(20 * time.Millisecond)
}

// The protocol has no wildcards in a response topic.
func TestResponseTopicWithWildcards(t *testing.T) {
	b := start(t, setting{})
	for _, topic := range []string{"a/#", "+/b", "#"} {
		c := b.dial(v5("client"))
		frame, err := mqtttest.Encode(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish}, ProtocolVersion: 5, TopicName: "$inbox/summary",
			Properties: packets.Properties{ResponseTopic: strings.Repeat("!", len(topic))}, // wildcards it would leave out
		})
		if err != nil {
			t.Fatal(err)
		}
		c.SendRaw(bytes.Replace(frame, []byte(strings.Repeat("!", len(topic))), []byte(topic), 1))
		if code := c.WaitDisconnect(); code != packets.ErrMalformedTopic.Code {
			t.Errorf("response topic %s: disconnected with %#x", topic, code)
		}
	}
}

// One connection may have a few requests at a time, and what is more is told so at
// once; the others are answered in order.
func TestTooManyRequestsAtATime(t *testing.T) {
	hold := newGate()
	store := &asked{summarize: hold.summarize}
	b := start(t, setting{Wrap: store.wrap})
	c := b.dial(v5("client"))
	c.Publish("$inbox/summary", "", 0, answering("r", "0"))
	hold.came(t)
	var ids []uint16
	for i := 1; i <= 6; i++ {
		ids = append(ids, c.Publish("$inbox/summary", "", 1, answering("r", fmt.Sprint(i))))
	}
	for _, i := range []int{5, 6} {
		answer := c.NextPublish()
		if code := codeOf(t, answer); code != "busy" || string(answer.Properties.CorrelationData) != fmt.Sprint(i) {
			t.Errorf("request %s is answered with %q", answer.Properties.CorrelationData, code)
		}
		c.WaitAck(ids[i-1])
	}
	b.dial(v5("other")).Publish("$inbox/summary", "", 0) // has room of its own
	hold.came(t)
	c.Ping()
	c.Silent(0)
	close(hold.opened)
	for i := range 5 {
		answer := c.NextPublish()
		if code := codeOf(t, answer); code != "" || string(answer.Properties.CorrelationData) != fmt.Sprint(i) {
			t.Errorf("answer %d is to request %s, with %q", i, answer.Properties.CorrelationData, code)
		}
		if i > 0 {
			c.WaitAck(ids[i-1])
		}
	}
}

// Pages are small while many ask for large ones, so that memory does not grow with the
// number of those who ask, and large again when the others have had theirs.
func TestManyLargePagesAtATime(t *testing.T) {
	const most, large = 16, 1 << 20
	hold := newGate()
	sizes := make(chan int, most+2)
	store := &asked{page: func(ctx context.Context, q inbox.Query) (inbox.Page, error) {
		sizes <- q.MaxBytes
		return inbox.Page{}, hold.wait(ctx)
	}}
	b := start(t, setting{Wrap: store.wrap})
	var clients []*mqtttest.Client
	ask := func(i int) (size int) {
		c := b.dial(v5(fmt.Sprint("client", i)))
		clients = append(clients, c)
		c.Publish("$inbox/pull", fmt.Sprintf(`{"limit":1,"max_bytes":%d}`, large), 0)
		hold.came(t)
		return <-sizes
	}
	for i := range most {
		if size := ask(i); size < large {
			t.Errorf("page %d has %d bytes", i, size)
		}
	}
	if size := ask(most); size < 256<<10 || size > 300<<10 {
		t.Errorf("one more has %d bytes", size)
	}
	close(hold.opened)
	for _, c := range clients {
		c.NextPublish()
	}
	if size := ask(most + 1); size < large {
		t.Errorf("a page has %d bytes when all have theirs", size)
	}
}

// A connection that asks without end is told to ask less.
func TestTooManyRequestsInASecond(t *testing.T) {
	b := start(t, setting{Wrap: (&asked{summarize: counted(7)}).wrap})
	c := b.dial(v5("client"))
	busy := func() bool {
		c.Publish("$inbox/summary", "", 0)
		return codeOf(t, c.NextPublish()) == "busy"
	}
	for range 100 { // at once
		if busy() {
			t.Fatal("busy within the first 100")
		}
	}
	for i := 0; !busy(); i++ {
		if i == 2000 {
			t.Fatal("2000 requests one behind the other are all answered")
		}
	}
	mqtttest.Eventually(t, func() bool { return !busy() }, "a request is answered again")
}

// Floods cost the one who sends them, and nobody else.
func TestFloodOfRequests(t *testing.T) {
	b := start(t, setting{Options: hooks.Options{OutBytes: 4 << 10}, Wrap: (&asked{summarize: counted(7)}).wrap})
	flooder := b.dial(v5("flooder"))
	flooder.Freeze()
	for range 2000 { // 8 MB to be answered, more than sockets hold
		flooder.Publish("$inbox/nothing", "", 0, answering("r", strings.Repeat("x", 4<<10)))
	}
	mqtttest.Eventually(t, func() bool { return b.hook.Counts().Unanswered > 0 }, "answers are left out")
	other := b.dial(v3("other"))
	other.Publish("$inbox/summary", "", 0)
	if code := codeOf(t, other.NextPublish()); code != "" {
		t.Errorf("the other is answered with %q", code)
	}
	flooder.Thaw()
	flooder.Ping() // all of it is worked off
	mqtttest.Eventually(t, func() bool {
		flooder.WaitAck(flooder.Publish("$inbox/summary", "", 1, answering("again", "")))
		for pk, ok := flooder.Next(0); ok; pk, ok = flooder.Next(0) {
			if pk.TopicName == "again" && codeOf(t, pk) == "" {
				return true
			}
		}
		return false
	}, "the flooder is answered again")
}

// Answers wait for a client that does not read, and what it publishes does not.
func TestAnswersWaitForRoom(t *testing.T) {
	topics := make([]inbox.Tally, 200)
	for i := range topics {
		topics[i].Name = strings.Repeat("x", 1000) + fmt.Sprint(i)
	}
	b := start(t, setting{Options: hooks.Options{OutBytes: 4 << 10}, Wrap: (&asked{summarize: func(context.Context, inbox.Receiver) (inbox.Summary, error) {
		return inbox.Summary{Position: 1, Topics: topics}, nil
	}}).wrap})
	receiver := b.dial(v5("receiver"))
	receiver.Subscribe("a", 1)
	slow := b.dial(v5("slow"))
	slow.Freeze()
	for i := range 60 { // 12 MB, more than sockets hold
		slow.Publish("$inbox/summary", "", 0, answering("r", fmt.Sprint(i)))
		slow.Publish("a", fmt.Sprint(i), 0)
	}
	for i := range 60 {
		if pk := receiver.NextPublish(); string(pk.Payload) != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, mqtttest.Describe(pk))
		}
	}
	slow.Thaw()
	for last := -1; last < 1000; { // a last request is answered behind all others
		slow.WaitAck(slow.Publish("$inbox/summary", "", 1, answering("r", "1000")))
		for pk, ok := slow.Next(0); ok; pk, ok = slow.Next(0) {
			if codeOf(t, pk) != "" {
				continue // too many at a time
			}
			n, err := strconv.Atoi(string(pk.Properties.CorrelationData))
			if err != nil || n <= last {
				t.Fatalf("the answer to request %d is followed by %s", last, mqtttest.Describe(pk))
			}
			last = n
		}
	}
}

// No answer is larger than what the client takes, and one for which there is no
// room at all is left out: the request is acknowledged all the same.
func TestAnswersFitTheClient(t *testing.T) {
	topics := make([]inbox.Tally, 200)
	for i := range topics {
		topics[i].Name = fmt.Sprintf("some/topic/%d", i)
	}
	store := &asked{summarize: func(context.Context, inbox.Receiver) (inbox.Summary, error) {
		return inbox.Summary{Position: 1, Topics: topics}, nil
	}}
	b := start(t, setting{Wrap: store.wrap})
	for _, c := range []struct {
		size   uint32
		beside int // bytes of correlation data
		code   string
	}{{32, 1, "none"}, {100, 10, "none"}, {300, 10, "too_large"}, {2000, 10, ""}, {2000, 850, ""}, {10000, 8000, ""}, {10000, 9500, "too_large"}, {10000, 9950, "none"}} {
		o := v5("client")
		o.MaxPacketSize = c.size
		o.Clean = true
		client := b.dial(o)
		before := b.hook.Counts().Unanswered
		client.PublishAndWait("$inbox/summary", "", 1, answering("response/topic", strings.Repeat("x", c.beside)))
		client.Ping()
		answer, ok := client.Next(0)
		switch unanswered := b.hook.Counts().Unanswered - before; {
		case c.code == "none":
			if ok || unanswered != 1 {
				t.Errorf("%d bytes: got %s, %d are left out", c.size, mqtttest.Describe(answer), unanswered)
			}
		case !ok || unanswered != 0:
			t.Errorf("%d bytes: no answer, %d are left out", c.size, unanswered)
		case codeOf(t, answer) != c.code:
			t.Errorf("%d bytes: answered with %s", c.size, answer.Payload)
		case uint32(answer.FixedHeader.Remaining)+2 > c.size:
			t.Errorf("%d bytes: the answer has %d and its header", c.size, answer.FixedHeader.Remaining)
		}
		client.Disconnect()
	}
}

// A connection that ends, or is taken over, does not wait for what is only read,
// and the next one is answered.
func TestConnectionEndsWhileItIsAnswered(t *testing.T) {
	hold := newGate()
	store := &asked{summarize: hold.summarize}
	b := start(t, setting{Wrap: store.wrap})
	first := b.dial(v5("client"))
	for range 5 {
		first.Publish("$inbox/summary", "", 1)
	}
	hold.came(t)
	second := b.dial(v5("client"))
	if code := first.WaitDisconnect(); code != packets.ErrSessionTakenOver.Code {
		t.Errorf("disconnected with %#x", code)
	}
	second.Publish("$inbox/summary", "", 1)
	hold.came(t)
	second.Cut()
	third := b.dial(v5("client"))
	close(hold.opened)
	third.Publish("$inbox/summary", "", 1)
	if code := codeOf(t, third.NextPublish()); code != "" {
		t.Errorf("answered with %q", code)
	}
}

// What changes something is done also for a client that asks and leaves, and is
// done before its next connection begins.
func TestRequestOfAClientThatLeaves(t *testing.T) {
	hold := newGate()
	var mu sync.Mutex
	done := 0
	store := &asked{summarize: counted(7), acknowledge: func(ctx context.Context, _ inbox.Receiver) (int, error) {
		err := hold.wait(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			done++
		}
		return 1, err
	}}
	b := start(t, setting{Wrap: store.wrap})
	c := b.dial(v5("client"))
	c.Publish("$inbox/ack", `{"all":true}`, 0)
	hold.came(t)
	c.Publish("$inbox/ack", `{"all":true}`, 0)
	c.Ping()
	c.Cut()
	came := make(chan int, 1) // how many requests are done when the next connection is there
	go func() {
		next, err := mqtttest.Open(b.addr, v5("client"))
		mu.Lock()
		came <- done
		mu.Unlock()
		if err == nil {
			err = next.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}()
	mqtttest.Eventually(t, func() bool { return goroutinesIn(".(*Hook).open(") == 1 }, "the next connection waits")
	close(hold.opened)
	if n := <-came; n != 2 {
		t.Errorf("the next connection is there when %d of 2 requests are done", n)
	}
}

// goroutinesIn returns how many goroutines are in a function.
func goroutinesIn(function string) int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(function))
}

// A connection has a goroutine for its requests while it has some, and not before
// or after.
func TestGoroutineOfRequests(t *testing.T) {
	answering := func() int { return goroutinesIn(".(*requests).work(") }
	hold := newGate()
	b := start(t, setting{Wrap: (&asked{summarize: hold.summarize}).wrap})
	first, second := b.dial(v5("first")), b.dial(v5("second"))
	second.Ping()
	if n := answering(); n != 0 {
		t.Errorf("%d goroutines before the first request", n)
	}
	for range 3 {
		first.Publish("$inbox/summary", "", 0)
	}
	hold.came(t)
	if n := answering(); n != 1 {
		t.Errorf("%d goroutines for 3 requests of one connection", n)
	}
	close(hold.opened)
	first.Collect(3)
	mqtttest.Eventually(t, func() bool { return answering() == 0 }, "the goroutine ends with the last answer")
	first.Publish("$inbox/summary", "", 0)
	first.NextPublish()
}

// A fault in an answer ends the connection that has asked, and nothing else.
func TestPanicInAnAnswer(t *testing.T) {
	b := start(t, setting{Wrap: (&asked{summarize: func(context.Context, inbox.Receiver) (inbox.Summary, error) { panic("a fault") }}).wrap})
	c, other := b.dial(v5("client")), b.dial(v5("other"))
	for range 3 {
		c.Publish("$inbox/summary", "", 1)
	}
	if code := c.WaitDisconnect(); code != packets.ErrUnspecifiedError.Code {
		t.Errorf("disconnected with %#x", code)
	}
	other.Publish("$inbox/nothing", "", 0)
	other.NextPublish()
	b.dial(v5("client")).Ping()
}
