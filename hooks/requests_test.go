package hooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// asked is a store whose summaries, and acknowledgements, a test answers itself.
type asked struct {
	inbox.Store
	summarize   func(context.Context, inbox.Receiver) (inbox.Summary, error)
	acknowledge func(context.Context, inbox.Receiver) (int, error)
	page        func(context.Context, inbox.Query) (inbox.Page, error) // nil: the store's own
}

func (s *asked) Pull(ctx context.Context, r inbox.Receiver, q inbox.Query) (inbox.Page, error) {
	if s.page == nil {
		return s.Store.Pull(ctx, r, q)
	}
	return s.page(ctx, q)
}

func (s *asked) wrap(store inbox.Store) inbox.Store {
	s.Store = store
	return s
}

func (s *asked) Summarize(ctx context.Context, r inbox.Receiver, q inbox.SummaryQuery) (inbox.Summary, error) {
	summary, err := s.summarize(ctx, r)
	summary.Topics = summary.Topics[:min(q.Max, len(summary.Topics))]
	return summary, err
}

func (s *asked) Acknowledge(ctx context.Context, r inbox.Receiver, _ inbox.Acknowledgement) (int, error) {
	return s.acknowledge(ctx, r)
}

// counted answers that so many messages are unread.
func counted(n int64) func(context.Context, inbox.Receiver) (inbox.Summary, error) {
	return func(context.Context, inbox.Receiver) (inbox.Summary, error) {
		return inbox.Summary{Position: 1, Total: inbox.Count{Messages: n}}, nil
	}
}

// gate holds up those who come to it.
type gate struct {
	arrived chan struct{}
	opened  chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) wait(ctx context.Context) error {
	g.arrived <- struct{}{}
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// came waits until somebody is held up.
func (g *gate) came(t testing.TB) {
	t.Helper()
	select {
	case <-g.arrived:
	case <-time.After(mqtttest.Deadline):
		t.Fatal("nobody has asked the store")
	}
}

func (g *gate) summarize(ctx context.Context, _ inbox.Receiver) (inbox.Summary, error) {
	return inbox.Summary{Position: 1}, g.wait(ctx)
}

// answering adds to a PUBLISH what makes it a request of MQTT 5.
func answering(topic, correlation string) func(*packets.Packet) {
	return func(pk *packets.Packet) {
		pk.Properties.ResponseTopic, pk.Properties.CorrelationData = topic, []byte(correlation)
	}
}

// codeOf returns the code of an answer that is an error, "" if it is none.
func codeOf(t testing.TB, pk packets.Packet) string {
	t.Helper()
	var answer struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(pk.Payload, &answer); err != nil {
		t.Fatalf("answer %.200q: %v", pk.Payload, err)
	}
	if (answer.Error.Code == "") != (answer.Error.Message == "") {
		t.Errorf("answer %.200q has only half an error", pk.Payload)
	}
	return answer.Error.Code
}

// nextOf waits for the first packet of one of two kinds.
func nextOf(t testing.TB, c *mqtttest.Client) packets.Packet {
	t.Helper()
	pk, ok := c.Next(mqtttest.Deadline)
	if !ok {
		t.Fatalf("client %s: nothing came", c.ID)
	}
	return pk
}

// A request is answered on the same connection at QoS 0, and then acknowledged, in
// every version and at every QoS.
func TestRequestIsAnswered(t *testing.T) {
	store := &asked{summarize: counted(7)}
	b := start(t, setting{Wrap: store.wrap})
	for _, version := range []byte{3, 4, 5} {
		for qos := range byte(3) {
			c := b.dial(mqtttest.Options{ClientID: "client", Version: version, Clean: true})
			id := c.Publish("$inbox/summary", "", qos)
			answer := nextOf(t, c)
			want := mqtttest.Describe(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Publish}, TopicName: "$inbox/summary/answer", Payload: answer.Payload})
			if got := mqtttest.Describe(answer); got != want || !bytes.Contains(answer.Payload, []byte(`"messages":7`)) {
				t.Errorf("version %d, QoS %d: got %s", version, qos, got)
			}
			if version == 5 && (answer.Properties.ContentType != "application/json" || answer.Properties.CorrelationData != nil) {
				t.Errorf("QoS %d: the answer has properties %+v", qos, answer.Properties)
			}
			if qos > 0 {
				if ack := c.WaitAck(id); ack.ReasonCode != 0 {
					t.Errorf("version %d, QoS %d: acknowledged with %#x", version, qos, ack.ReasonCode)
				}
			}
			c.Ping()
			c.Silent(0)
			c.Disconnect()
		}
	}
}

// MQTT 5 has the answer go where the client wants it, with what the request is
// known by.
func TestRequestHasAResponseTopic(t *testing.T) {
	store := &asked{summarize: counted(7)}
	b := start(t, setting{Wrap: store.wrap})
	o := v5("client")
	o.TopicAliasMaximum = 1
	c := b.dial(o)
	for i, topic := range []string{"my/answers", "my/answers", "other/answers", "$SYS/broker", "$inbox/pull"} {
		correlation := fmt.Sprintf("\x00%d", i)
		c.Publish("$inbox/summary", "{}", 1, answering(topic, correlation))
		answer := c.NextPublish()
		alias := answer.Properties.TopicAlias
		switch {
		case i == 1 && (answer.TopicName != "" || alias != 1), i != 1 && answer.TopicName != topic, i > 1 && alias != 0:
			t.Errorf("answer %d came on %q, alias %d", i, answer.TopicName, alias)
		case string(answer.Properties.CorrelationData) != correlation:
			t.Errorf("answer %d has correlation data %q", i, answer.Properties.CorrelationData)
		case codeOf(t, answer) != "":
			t.Errorf("answer %d is %s", i, answer.Payload)
		}
	}
	empty := func(pk *packets.Packet) { pk.Properties.CorrelationData = []byte{} }
	c.Publish("$inbox/summary", "{}", 1, answering("r", ""), empty)
	if answer := c.NextPublish(); answer.TopicName != "r" {
		t.Errorf("got %s", mqtttest.Describe(answer))
	}
}

// A client may give the topic of requests an alias.
func TestRequestByTopicAlias(t *testing.T) {
	store := &asked{summarize: counted(7)}
	b := start(t, setting{Wrap: store.wrap})
	c := b.dial(v5("client"))
	alias := func(pk *packets.Packet) { pk.Properties.TopicAlias, pk.Properties.TopicAliasFlag = 3, true }
	for _, topic := range []string{"$inbox/summary", ""} {
		c.Publish(topic, "", 1, alias)
		if answer := c.NextPublish(); codeOf(t, answer) != "" || answer.TopicName != "$inbox/summary/answer" {
			t.Errorf("got %s", mqtttest.Describe(answer))
		}
	}
}

// A request in msgpack is answered in msgpack, whether its content type says so or
// its first byte.
func TestRequestInMsgpack(t *testing.T) {
	store := &asked{summarize: counted(7)}
	b := start(t, setting{Wrap: store.wrap})
	request, err := msgpack.Marshal(map[string]any{"limit": 5})
	if err != nil {
		t.Fatal(err)
	}
	said := func(pk *packets.Packet) { pk.Properties.ContentType = "application/msgpack" }
	c := b.dial(v5("client"))
	c.Publish("$inbox/summary", string(request), 0)
	c.Publish("$inbox/summary", string(request), 0, said)
	c.Publish("$inbox/summary", "", 0, said)
	for range 3 {
		answer := c.NextPublish()
		var summary struct {
			Messages int64 `msgpack:"messages"`
		}
		if err := msgpack.Unmarshal(answer.Payload, &summary); err != nil || summary.Messages != 7 || answer.Properties.ContentType != "application/msgpack" {
			t.Errorf("got %q of type %q: %v", answer.Payload, answer.Properties.ContentType, err)
		}
	}
	old := b.dial(v3("old"))
	old.Publish("$inbox/summary", string(request), 1)
	if answer := old.NextPublish(); answer.Payload[0] == '{' {
		t.Errorf("got %q", answer.Payload)
	}
}

// Answers go to who has asked and to nobody else, whatever others subscribe to,
// and such subscriptions are granted, so that what subscribes before it asks works.
func TestNobodySeesAnswersOfOthers(t *testing.T) {
	store := &asked{summarize: counted(7)}
	b := start(t, setting{Wrap: store.wrap})
	spy := b.dial(v5("spy"))
	codes := spy.SubscribeAll(
		packets.Subscription{Filter: "$inbox/#", Qos: 2}, packets.Subscription{Filter: "$inbox/summary/answer", Qos: 1},
		packets.Subscription{Filter: "$inbox", Qos: 0}, packets.Subscription{Filter: "#", Qos: 1}, packets.Subscription{Filter: "stolen", Qos: 1},
		packets.Subscription{Filter: "$share/g/$inbox/#", Qos: 1},
	)
	if !slices.Equal(codes, []byte{2, 1, 0, 1, 1, packets.ErrTopicFilterInvalid.Code}) {
		t.Errorf("SUBACK %#x", codes)
	}
	for _, o := range []mqtttest.Options{v3("old"), v5("new")} {
		c := b.dial(o)
		if code := c.Subscribe("$inbox/summary/answer", 1); code != 1 {
			t.Errorf("SUBACK %#x", code)
		}
		c.Publish("$inbox/summary", "", 1)
		c.NextPublish() // once
		if o.Version == 5 {
			c.Publish("$inbox/summary", "", 1, answering("stolen", ""))
			c.NextPublish()
		}
		c.Ping()
		c.Silent(0)
		if codes := c.Unsubscribe("$inbox/summary/answer"); o.Version == 5 && codes[0] != 0 {
			t.Errorf("UNSUBACK %#x", codes)
		}
	}
	b.dial(v5("other")).PublishAndWait("stolen", "marker", 1)
	if pk := spy.NextPublish(); string(pk.Payload) != "marker" {
		t.Errorf("the spy got %s", mqtttest.Describe(pk))
	}
	spy.Ping()
	spy.Silent(0)
	spy.Disconnect()
	if got := b.subscriptions("spy"); !slices.Equal(got, []string{"#", "stolen"}) {
		t.Errorf("the session has kept %q", got)
	}
}

// subscriptions returns the filters of a session that is not connected, sorted.
func (b *broker) subscriptions(r inbox.Receiver) (filters []string) {
	b.t.Helper()
	in, _, err := b.store.Open(b.t.Context(), r, inbox.OpenOptions{Resume: true, Expiry: 3600})
	if err != nil {
		b.t.Fatal(err)
	}
	subs, err := in.Subscriptions(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, sub := range subs {
		filters = append(filters, sub.Filter)
	}
	if err := in.Close(b.t.Context(), inbox.Ending{Expiry: 3600}); err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(filters)
	return filters
}

// A request of QoS 2 has its handshake without the store. Sent again it is
// answered again.
func TestRequestOfQoS2(t *testing.T) {
	store := &asked{summarize: counted(7)}
	b := start(t, setting{Wrap: store.wrap})
	for _, o := range []mqtttest.Options{v3("old"), v5("new")} {
		o.ManualRelease = true
		c := b.dial(o)
		id := c.Publish("$inbox/summary", "", 2)
		c.NextPublish()
		c.NextOf(packets.Pubrec)
		c.Publish("$inbox/summary", "", 2, mqtttest.WithID(id), mqtttest.Dup)
		c.NextPublish()
		c.NextOf(packets.Pubrec)
		c.Release(id)
		if pubcomp := c.NextOf(packets.Pubcomp); pubcomp.PacketID != id || pubcomp.ReasonCode != 0 {
			t.Errorf("version %d: got %s", o.Version, mqtttest.Describe(pubcomp))
		}
		if c.Release(id); o.Version == 5 { // unknown by now
			if pubcomp := c.NextOf(packets.Pubcomp); pubcomp.ReasonCode != packets.ErrPacketIdentifierNotFound.Code {
				t.Errorf("got %s", mqtttest.Describe(pubcomp))
			}
		}
		b.subscribed(v5("receiver"), "a", 2)
		c.Publish("a", "a message under the same id", 2, mqtttest.WithID(id))
		c.NextOf(packets.Pubrec)
		c.Cut()
		receiver := b.dial(v5("receiver"))
		if pk := receiver.NextPublish(); string(pk.Payload) != "a message under the same id" {
			t.Errorf("got %s", mqtttest.Describe(pk))
		}
		receiver.Disconnect()
	}
}

// The program itself has no inbox there.
func TestProgramDoesNotPublishToInboxes(t *testing.T) {
	b := start(t, setting{Mochi: func(o *mqtt.Options) { o.InlineClient = true }})
	c := b.dial(v5("client"))
	c.Subscribe("$inbox/#", 1)
	for qos := range byte(3) {
		if err := b.server.Publish("$inbox/summary/answer", []byte("forged"), false, qos); err != nil {
			t.Error(err)
		}
	}
	c.Ping()
	c.Silent(20 * time.Millisecond)
}
