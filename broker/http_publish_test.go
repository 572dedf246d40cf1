package broker

import (
	"context"
	"encoding/base64"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

func TestHTTPPublish(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		alice := f.dial("alice")
		alice.Subscribe("chat/#", 2)
		before := time.Now().Add(-time.Second)
		a := want[PublishAnswer](f, "POST", "/v1/messages?client=bobs-phone", `{
			"topic": "chat/alice", "payload_base64": "/9j/4AAQ", "payload_format": 0, "qos": 2, "retain": true,
			"content_type": "image/jpeg", "response_topic": "chat/bob", "correlation_base64": "AAE=",
			"properties": [["album", "may"], ["album", "june"]], "expires_in": 3600, "msg_id": "photo-1"}`, as("bob", "x"))
		if a.Duplicate || a.ID == "" {
			t.Errorf("answer: %+v", a)
		}
		pk := alice.NextPublish()
		p := pk.Properties
		if pk.TopicName != "chat/alice" || string(pk.Payload) != "\xff\xd8\xff\xe0\x00\x10" || pk.FixedHeader.Qos != 2 ||
			p.ContentType != "image/jpeg" || p.ResponseTopic != "chat/bob" || string(p.CorrelationData) != "\x00\x01" ||
			!p.PayloadFormatFlag || p.PayloadFormat != 0 || p.MessageExpiryInterval < 3500 || p.MessageExpiryInterval > 3600 {
			t.Errorf("delivered: %s, %+v", mqtttest.Describe(pk), p)
		}
		var properties []string
		for _, u := range p.User {
			properties = append(properties, u.Key+"="+u.Val)
		}
		if got := strings.Join(properties, " "); got != "msg-id=photo-1 album=may album=june" {
			t.Errorf("user properties: %s", got)
		}

		m := want[pull.MessagesAnswer](f, "GET", "/v1/history", nil).Messages[0]
		if m.ID != a.ID || m.Sender != "bob" || m.Client != "bobs-phone" || m.QoS != 2 || !m.Retain || m.Time.Std().Before(before) ||
			base64.StdEncoding.EncodeToString(m.PayloadBase64) != "/9j/4AAQ" {
			t.Errorf("history: %+v", m)
		}

		// It is retained, too.
		late := f.dial("late")
		late.Subscribe("chat/alice", 1)
		if pk := late.NextPublish(); !pk.FixedHeader.Retain || string(pk.Payload) != string(m.PayloadBase64) {
			t.Errorf("retained: %s", mqtttest.Describe(pk))
		}
	})
}

func TestHTTPPublishAtEveryQoS(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		for _, body := range []string{`{"topic":"chat/a","qos":0}`, `{"topic":"chat/a","payload":"1","qos":1}`, `{"topic":"chat/a","payload":"2","qos":2}`, `{"topic":"chat/a","payload":"default"}`} {
			want[PublishAnswer](f, "POST", "/v1/messages", body)
		}
		if got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages", nil).Messages); !slices.Equal(got, []string{"1", "2", "default"}) {
			t.Errorf("kept: %v", got)
		}
		live := f.dial("live")
		live.Subscribe("news", 0)
		want[PublishAnswer](f, "POST", "/v1/messages", `{"topic":"news","payload":"now","qos":0}`)
		if pk := live.NextPublish(); string(pk.Payload) != "now" {
			t.Errorf("live: %s", mqtttest.Describe(pk))
		}
	})
}

// A name is that of one client, over HTTP and MQTT alike.
func TestHTTPPublishesANamedMessageOnce(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		once := func(client, payload string) PublishAnswer {
			return want[PublishAnswer](f, "POST", "/v1/messages?client="+client, PublishRequest{Topic: "chat/a", Payload: payload, MsgID: "n"})
		}
		first := once("bob", "1")
		if again := once("bob", "again"); !again.Duplicate || again.ID != first.ID {
			t.Errorf("again: %+v, want the id of %+v", again, first)
		}
		f.dial("bob").PublishAndWait("chat/a", "over MQTT", 1, mqtttest.WithUser("msg-id", "n"))
		if other := once("carol", "2"); other.Duplicate {
			t.Errorf("of another client: %+v", other)
		}
		if got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages", nil).Messages); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("stored: %v", got)
		}
	})
}

func TestHTTPPublishRefuses(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	tests := []struct {
		name, body string
		status     int
		says       string
	}{
		{"nothing", "", 400, "EOF"},
		{"no JSON", "hello", 400, "invalid character"},
		{"no object", "[]", 400, "array"},
		{"half an object", `{"topic":"a"`, 400, "unexpected EOF"},
		{"two messages", `{"topic":"a"} {"topic":"a"}`, 400, "goes on"},
		{"unknown field", `{"topic":"a","ttl":3}`, 400, "ttl"},
		{"no topic", `{"payload":"a"}`, 400, "topic"},
		{"wildcard", `{"topic":"a/#"}`, 400, "# or +"},
		{"topic of the server", `{"topic":"$SYS/a"}`, 400, "$"},
		{"control character", `{"topic":"a\u0000"}`, 400, "topic"},
		{"two payloads", `{"topic":"a","payload":"a","payload_base64":"YQ=="}`, 400, "payload_base64"},
		{"text that is no UTF-8", "{\"topic\":\"chat/a\",\"payload\":\"\xff\"}", 400, "UTF-8"},
		{"half of a pair", `{"topic":"chat/a","payload":"\ud800"}`, 400, "UTF-8"},
		{"the other half", `{"topic":"chat/a","payload":"a\udc00\ud800"}`, 400, "UTF-8"},
		{"half of a pair in a name", `{"topic":"chat/\uD83D"}`, 400, "UTF-8"},
		{"half of a pair in a property", `{"topic":"chat/a","properties":[["a","\ud83d\u0020"]]}`, 400, "UTF-8"},
		{"no base64", `{"topic":"a","payload_base64":"?"}`, 400, "base64"},
		{"QoS 3", `{"topic":"a","qos":3}`, 400, "qos"},
		{"QoS 256", `{"topic":"a","qos":256}`, 400, "qos"},
		{"negative QoS", `{"topic":"a","qos":-1}`, 400, "qos"},
		{"payload format", `{"topic":"a","payload_format":2}`, 400, "payload_format"},
		{"no time", `{"topic":"a","expires_in":0}`, 400, "expires_in"},
		{"more time than there is", `{"topic":"a","expires_in":4294967296}`, 400, "expires_in"},
		{"properties that are no pairs", `{"topic":"a","properties":[["a"]]}`, 400, "pairs"},
		{"properties of three", `{"topic":"a","properties":[["a","b","c"]]}`, 400, "pairs"},
		{"two names", `{"topic":"a","msg_id":"a","properties":[["msg-id","b"]]}`, 400, "msg_id"},
		{"a name of nobody", `{"topic":"a","msg_id":"a"}`, 400, "client"},
		{"a name of nobody, as a property", `{"topic":"a","properties":[["msg-id","b"]]}`, 400, "client"},
		{"long content type", `{"topic":"a","content_type":"` + strings.Repeat("a", 70_000) + `"}`, 400, "content type"},
		{"large message", `{"topic":"a","payload":"` + strings.Repeat("a", DefaultMaxPacketSize) + `"}`, 413, "901120"},
		{"huge request", strings.Repeat(" ", 2*DefaultMaxPacketSize+64<<10+1), 413, "bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := *f
			f.t = t
			got := f.ask("POST", "/v1/messages", test.body)
			if got.status != test.status || !strings.Contains(string(got.body), test.says) {
				t.Errorf("status %d, want %d and %q: %s", got.status, test.status, test.says, got.body)
			}
		})
	}
	if code := f.refused(http.StatusBadRequest, "POST", "/v1/messages?topic=a", "{}"); code != pull.CodeBadRequest {
		t.Errorf("query: code %q", code)
	}
	if m := want[pull.MessagesAnswer](f, "GET", "/v1/history", nil).Messages; len(m) > 0 {
		t.Errorf("published all the same: %+v", m)
	}
}

// What anybody may send is a message that can be checked, or refused.
func FuzzReadMessage(f *testing.F) {
	f.Add(`{"topic":"a","payload":"b","qos":2,"properties":[["a","b"]],"expires_in":5,"msg_id":"n"}`)
	f.Add(`{"topic":"a","payload_base64":"AA==","correlation_base64":"","payload_format":1}`)
	f.Add(`{"properties":[[]]}`)
	f.Add(`{"qos":null,"expires_in":9223372036854775807}`)
	f.Fuzz(func(t *testing.T, body string) {
		e, err := readMessage([]byte(body), Client{ID: "c", User: "u"}, time.UnixMilli(1000))
		if err != nil {
			if pull.ErrorOf(err).Code != pull.CodeBadRequest {
				t.Fatal(err)
			}
			return
		}
		if e.Client != "c" || e.User != "u" || e.Time != 1000 || e.QoS > 2 || e.PayloadFormat > inbox.FormatUTF8 || e.Expiry < 0 || e.Expiry > 1000+math.MaxUint32*1000 {
			t.Errorf("%q: %+v", body, e)
		}
		_ = hooks.CheckMessage(e, DefaultMaxPacketSize)
	})
}

// refusingStore stores nothing.
type refusingStore struct {
	inbox.Store
	err error
}

func (s *refusingStore) Append(_ context.Context, _ *inbox.Envelope, done func(inbox.Receipt, error)) {
	go done(inbox.Receipt{}, s.err)
}

func TestHTTPPublishTellsOfTheStore(t *testing.T) {
	for err, status := range map[error]int{
		inbox.ErrFull:           http.StatusInsufficientStorage,
		inbox.ErrTooLarge:       http.StatusRequestEntityTooLarge,
		inbox.ErrUncertain:      http.StatusServiceUnavailable,
		inbox.ErrClosed:         http.StatusServiceUnavailable,
		errors.New("disk fire"): http.StatusInternalServerError,
	} {
		o := httpOptions()
		o.Store = &refusingStore{o.Store, err}
		got := serveHTTP(t, o).ask("POST", "/v1/messages", PublishRequest{Topic: "a"})
		if got.status != status || strings.Contains(string(got.body), "disk fire") {
			t.Errorf("%v: status %d, want %d: %s", err, got.status, status, got.body)
		}
	}
}
