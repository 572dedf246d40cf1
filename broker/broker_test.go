package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
)

// quietOptions are those of a broker in memory on any free port.
func quietOptions() Options {
	return Options{
		TCP:   []string{"127.0.0.1:0"},
		Store: memory.New(memory.Options{}),
		Log:   slog.New(slog.DiscardHandler),
	}
}

// serve runs a broker until the test ends or stop is called, which returns what
// Serve returned.
func serve(t *testing.T, o Options) (b *Broker, stop func() error) {
	t.Helper()
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx) }()
	var result error
	ended := false
	stop = func() error {
		cancel()
		if !ended {
			ended, result = true, <-served
		}
		return result
	}
	t.Cleanup(func() { stop() }) // tests that care look at the result
	return b, stop
}

func TestEveryListenerServes(t *testing.T) {
	o := quietOptions()
	o.TCP = append(o.TCP, "127.0.0.1:0")
	o.WebSocket = []string{"127.0.0.1:0"}
	o.Unix = []string{filepath.Join(t.TempDir(), "s")}
	o.HTTP = []string{"127.0.0.1:0", "127.0.0.1:0"}
	b, stop := serve(t, o)
	addresses := b.Addresses()
	if len(addresses) != 6 {
		t.Fatalf("addresses: %v, want six", addresses)
	}
	for _, address := range addresses[4:] {
		f := face{t: t, base: "http://" + address}
		if got := f.ask("GET", "/health", nil); string(got.body) != `{"status":"ok"}`+"\n" {
			t.Errorf("health: status %d, %s", got.status, got.body)
		}
	}
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+addresses[2], nil)
	if err != nil {
		t.Fatal(err)
	}
	receivers := []*mqtttest.Client{
		mqtttest.Dial(t, addresses[0], mqtttest.Options{ClientID: "tcp", Clean: true}),
		mqtttest.Connect(t, &wsConn{Conn: ws.NetConn(), ws: ws}, mqtttest.Options{ClientID: "ws", Clean: true}),
		mqtttest.Dial(t, "unix:"+addresses[3], mqtttest.Options{ClientID: "unix", Clean: true}),
	}
	for _, r := range receivers {
		r.Subscribe("news", 1)
	}
	mqtttest.Dial(t, addresses[1], mqtttest.Options{ClientID: "sender", Clean: true}).PublishAndWait("news", "hello", 1)
	for _, r := range receivers {
		if got := string(r.NextPublish().Payload); got != "hello" {
			t.Errorf("received %q", got)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestClientsAreToldThatTheBrokerStops(t *testing.T) {
	b, stop := serve(t, quietOptions())
	v5 := mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "v5", Version: 5, Clean: true})
	silent, err := net.Dial("tcp", b.Addresses()[0]) // never says who it is
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if code := v5.WaitDisconnect(); code != 0x8B {
		t.Errorf("DISCONNECT with %#x, want 0x8B", code)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent connection is still open")
	}
}

func TestServeOnce(t *testing.T) {
	b, err := New(quietOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := b.Serve(t.Context()); err == nil {
		t.Error("a closed broker serves")
	}
}

func TestCloseEndsServe(t *testing.T) {
	b, stop := serve(t, quietOptions())
	mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "a", Clean: true}) // it serves now
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// A New that fails must not keep ports, files or the store.
func TestNewLeavesNothingBehind(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()

	o := quietOptions()
	o.TCP = []string{address}
	o.WebSocket = []string{taken.Addr().String()}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "the port is in use") {
		t.Errorf("error: %v", err)
	}
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Errorf("the other port: %v", err)
	} else {
		again.Close()
	}
	stored := make(chan error, 1)
	o.Store.Append(t.Context(), &inbox.Envelope{Topic: "t", QoS: 1}, func(_ inbox.Receipt, err error) { stored <- err })
	if err := <-stored; !errors.Is(err, inbox.ErrClosed) {
		t.Errorf("the store: %v, want %v", err, inbox.ErrClosed)
	}
}

// failingStore fails when the test says so.
type failingStore struct {
	inbox.Store
	failed chan struct{}
}

var errDisk = errors.New("disk on fire")

func (s *failingStore) Failed() <-chan struct{} { return s.failed }
func (s *failingStore) Err() error              { return errDisk }

func TestServeEndsWhenTheStoreFails(t *testing.T) {
	o := quietOptions()
	store := &failingStore{o.Store, make(chan struct{})}
	o.Store = store
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	close(store.failed)
	if err := b.Serve(t.Context()); !errors.Is(err, errDisk) {
		t.Errorf("Serve: %v, want %v", err, errDisk)
	}
}

func TestServeEndsWhenAListenerFails(t *testing.T) {
	b, err := New(quietOptions())
	if err != nil {
		t.Fatal(err)
	}
	b.endpoints[0].listener.Close() // behind the endpoint's back
	if err := b.Serve(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v, want %v", err, net.ErrClosed)
	}
}

// stuckStore does not come to an end until the test says so.
type stuckStore struct {
	inbox.Store
	release chan struct{}
}

func (s *stuckStore) Close() error {
	<-s.release
	return s.Store.Close()
}

func TestCloseIsBounded(t *testing.T) {
	o := quietOptions()
	store := &stuckStore{o.Store, make(chan struct{})}
	defer close(store.release)
	o.Store = store
	o.StopTimeout = 50 * time.Millisecond
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); !errors.Is(err, ErrStopTimeout) {
		t.Errorf("Close: %v, want %v", err, ErrStopTimeout)
	}
}

func TestPublish(t *testing.T) {
	b, _ := serve(t, quietOptions())
	dial := func() *mqtttest.Client {
		return mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "alice", Version: 5, SessionExpiry: 60})
	}
	alice := dial()
	alice.Subscribe("to/alice", 1)
	alice.Disconnect()
	alice.WaitClosed()

	for i := range 3 {
		receipt, err := b.Publish(t.Context(), "to/alice", fmt.Append(nil, i), func(e *inbox.Envelope) { e.ContentType = "text/plain" })
		if err != nil {
			t.Fatal(err)
		}
		if receipt.ID == (inbox.MessageID{}) || receipt.Matched != 1 {
			t.Errorf("receipt: %+v", receipt)
		}
	}
	alice = dial()
	for i := range 3 {
		pk := alice.NextPublish()
		if string(pk.Payload) != strconv.Itoa(i) || pk.FixedHeader.Qos != 1 || pk.Properties.ContentType != "text/plain" {
			t.Errorf("message %d: %v", i, mqtttest.Describe(pk))
		}
	}

	if _, err := b.Publish(t.Context(), "news", []byte("kept"), func(e *inbox.Envelope) { e.Retain = true }); err != nil {
		t.Fatal(err)
	}
	alice.Subscribe("news", 1)
	if pk := alice.NextPublish(); string(pk.Payload) != "kept" || !pk.FixedHeader.Retain {
		t.Errorf("got %s, want the retained message", mqtttest.Describe(pk))
	}
}

func TestSubscribeRefusesWhatIsNoFilter(t *testing.T) {
	b, _ := serve(t, quietOptions())
	if _, err := b.Subscribe(t.Context(), "a#", func(inbox.Entry) {}); err == nil {
		t.Error("it is subscribed to")
	}
}

func TestPublishRefusesWhatAClientCouldNotSend(t *testing.T) {
	b, stop := serve(t, quietOptions())
	tests := []struct {
		name  string
		topic string
		size  int
		set   func(*inbox.Envelope)
	}{
		{"no topic", "", 1, nil},
		{"wildcard", "a/#", 1, nil},
		{"null", "a\x00", 1, nil},
		{"not UTF-8", "a\xff", 1, nil},
		{"long topic", strings.Repeat("a", 65536), 1, nil},
		{"too large", "a", DefaultMaxPacketSize, nil},
		{"too large with its properties", "a", DefaultMaxPacketSize - 100, func(e *inbox.Envelope) { e.ContentType = strings.Repeat("a", 100) }},
		{"QoS 3", "a", 1, func(e *inbox.Envelope) { e.QoS = 3 }},
		{"topic of the server", "$SYS/a", 1, nil},
		{"payload format", "a", 1, func(e *inbox.Envelope) { e.PayloadFormat = 7 }},
		{"long content type", "a", 1, func(e *inbox.Envelope) { e.ContentType = strings.Repeat("a", 70_000) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := []func(*inbox.Envelope){}
			if test.set != nil {
				set = append(set, test.set)
			}
			if _, err := b.Publish(t.Context(), test.topic, make([]byte, test.size), set...); err == nil {
				t.Error("it was published")
			}
		})
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Publish(t.Context(), "a", nil); !errors.Is(err, inbox.ErrClosed) {
		t.Errorf("after the end: %v, want %v", err, inbox.ErrClosed)
	}
}

func TestAccessIsAsked(t *testing.T) {
	o := quietOptions()
	o.Access = rules{}
	b, _ := serve(t, o)
	mqtttest.Refused(t, b.Addresses()[0], mqtttest.Options{ClientID: "a", Clean: true, Username: "alice", Password: "guess"})
	alice := mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "b", Version: 5, Clean: true, Username: "alice", Password: "secret"})
	if code := alice.Subscribe("from/alice", 1); code != 1 {
		t.Errorf("SUBACK for what is allowed: %#x", code)
	}
	will := mqtttest.Options{ClientID: "c", Version: 5, Username: "alice", Password: "secret", Will: &mqtttest.Will{Topic: "forbidden"}}
	if pk := mqtttest.Refused(t, b.Addresses()[0], will); pk.ReasonCode != 0x87 {
		t.Errorf("will where it may not publish: %s, want 0x87", mqtttest.Describe(pk))
	}
	if code := alice.Subscribe("from/bob", 1); code != 0x87 {
		t.Errorf("SUBACK for what is not: %#x, want 0x87", code)
	}
	for filter, want := range map[string]byte{"$share/g/from/alice": 1, "$share/g/from/bob": 0x87, "$share/from/alice": 0x87} {
		if code := alice.Subscribe(filter, 1); code != want {
			t.Errorf("SUBACK for %s: %#x, want %#x", filter, code, want)
		}
	}
	if code := alice.WaitAck(alice.Publish("to/bob", "x", 1)).ReasonCode; code != 0x87 {
		t.Errorf("PUBACK for what is not: %#x, want 0x87", code)
	}
}

// Access rules are about topics of messages. What a client asks its own inbox, and
// the subscription that its library may make for the answer, is not asked about.
func TestAccessIsNotAskedAboutTheOwnInbox(t *testing.T) {
	o := quietOptions()
	o.Access = denying{t}
	b, _ := serve(t, o)
	for _, version := range []byte{4, 5} {
		alice := mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "a", Version: version, Clean: true})
		if code := alice.Subscribe("$inbox/summary/answer", 1); code != 1 {
			t.Errorf("SUBACK %#x", code)
		}
		alice.PublishAndWait("$inbox/summary", "", 1)
		if pk := alice.NextPublish(); !strings.HasPrefix(string(pk.Payload), `{"position":`) {
			t.Errorf("answered with %s", pk.Payload)
		}
		alice.Disconnect()
	}
}

// History over MQTT is read by the rules for subscriptions.
func TestHistoryIsReadByTheRules(t *testing.T) {
	o := quietOptions()
	o.Access = rules{}
	o.Store = memory.New(memory.Options{History: []inbox.Kept{{Filter: "#"}}})
	b, _ := serve(t, o)
	for _, topic := range []string{"from/alice", "from/bob"} {
		if _, err := b.Publish(t.Context(), topic, []byte(topic)); err != nil {
			t.Fatal(err)
		}
	}
	alice := mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "a", Clean: true, Username: "alice", Password: "secret"})
	alice.Publish("$inbox/history", `{"topic":"#"}`, 0)
	if answer := string(alice.NextPublish().Payload); !strings.Contains(answer, "from/alice") || strings.Contains(answer, "from/bob") {
		t.Errorf("answered with %s", answer)
	}
	alice.Publish("$inbox/history", `{"topic":"from/bob","sender":"bob"}`, 0)
	if answer := string(alice.NextPublish().Payload); !strings.Contains(answer, `"forbidden"`) {
		t.Errorf("answered with %s", answer)
	}
}

// denying lets everyone connect and do nothing.
type denying struct{ t *testing.T }

func (denying) Connect(Client, []byte) bool { return true }

func (a denying) Publish(_ Client, topic string) bool {
	a.t.Errorf("asked about publishing to %s", topic)
	return false
}

func (a denying) Subscribe(_ Client, filter string) bool {
	a.t.Errorf("asked about subscribing to %s", filter)
	return false
}

// The operator has some users' inboxes wait to be asked for.
func TestPullUsers(t *testing.T) {
	o := quietOptions()
	o.PullUsers = []string{"app", "bot"}
	b, _ := serve(t, o)
	for user, want := range map[string]string{"app": "pull", "bot": "pull", "alice": "push", "": "push"} {
		client := mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{
			ClientID: "c", Version: 5, Clean: true, Username: user,
			UserProperties: []packets.UserProperty{{Key: "inbox-metadata", Val: "on"}},
		})
		if got := client.Properties.User; len(got) != 1 || got[0] != (packets.UserProperty{Key: "inbox-mode", Val: want}) {
			t.Errorf("user %q is told %v, want mode %s", user, got, want)
		}
	}
}

func TestVersionIsTheBrokers(t *testing.T) {
	b, _ := serve(t, quietOptions())
	watcher := mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "w", Clean: true})
	watcher.Subscribe("$SYS/broker/version", 0)
	if got, want := string(watcher.NextPublish().Payload), "mqtt-inbox "+Version(); got != want {
		t.Errorf("version: %q, want %q", got, want)
	}
}

func TestCommitsAreCounted(t *testing.T) {
	o := quietOptions()
	o.Store, o.Dir = nil, t.TempDir()
	b, stop := serve(t, o)
	watcher := mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "w", Clean: true})
	keeper := mqtttest.Dial(t, b.Addresses()[0], mqtttest.Options{ClientID: "k"})
	keeper.Subscribe("t", 1)
	if _, err := b.Publish(t.Context(), "t", []byte("x")); err != nil {
		t.Fatal(err)
	}
	watcher.Subscribe(TopicCommits, 0)
	for {
		pk := watcher.NextPublish()
		if pk.FixedHeader.Retain {
			continue // from before
		}
		if n, err := strconv.Atoi(string(pk.Payload)); err != nil || n < 2 {
			t.Errorf("commits: %q, want at least the session's and the message's", pk.Payload)
		}
		break
	}
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}
