package hooks_test

import (
	"io"
	"log/slog"
	"net"
	"testing"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// broker is a server with a hook on a TCP listener of its own.
type broker struct {
	t       testing.TB
	addr    string
	hook    *hooks.Hook
	server  *mqtt.Server
	store   inbox.Store
	options setting
	memory  *memoryNet // how it is reached, with setting.Memory
	closed  bool
}

// setting is what a test may change about its broker.
type setting struct {
	hooks.Options
	Mochi func(*mqtt.Options)
	Hooks []mqtt.Hook
	Wrap  func(inbox.Store) inbox.Store

	Listen func(net.Listener) net.Listener
	Memory bool // reached in memory, for a bubble of synctest
	Keep   keeping
}

// start starts a broker on an empty store, which ends with the test.
func start(t testing.TB, o setting) *broker {
	t.Helper()
	b := &broker{t: t, store: engine.open(t, o.Keep), options: o}
	b.serve()
	t.Cleanup(func() {
		b.close()
		if err := b.store.Close(); err != nil {
			t.Error("close store:", err)
		}
	})
	return b
}

// restart ends the broker and starts another on the same data.
func (b *broker) restart() {
	b.t.Helper()
	b.close()
	b.store = engine.reopen(b.t, b.store)
	b.serve()
}

func (b *broker) serve() {
	b.t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	if b.options.Log == nil {
		b.options.Log = quiet
	}
	store := b.store
	if b.options.Wrap != nil {
		store = b.options.Wrap(store)
	}
	options := b.options.Options
	if b.options.Keep.Rewind > 0 {
		options.Pull = pull.New(store, pull.Options{Rewind: true, Log: options.Log})
	}
	hook, err := hooks.New(store, options)
	if err != nil {
		b.t.Fatal(err)
	}

	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumPacketSize = 1 << 20
	capabilities.MaximumClientWritesPending = 256
	capabilities.TopicAliasMaximum = 10
	server := &mqtt.Options{Capabilities: capabilities, Logger: quiet, SysTopicResendInterval: 1}
	if b.options.Mochi != nil {
		b.options.Mochi(server)
	}
	b.server = mqtt.New(server)
	b.hook = hook
	for _, h := range append([]mqtt.Hook{new(auth.AllowHook)}, b.options.Hooks...) {
		if err := b.server.AddHook(h, nil); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := hook.Attach(b.server); err != nil {
		b.t.Fatal(err)
	}

	if err := b.server.AddListener(hook.Listener(listeners.NewNet("tcp", b.listen()))); err != nil {
		b.t.Fatal(err)
	}
	if err := b.server.Serve(); err != nil {
		b.t.Fatal(err)
	}
	b.closed = false
}

func (b *broker) listen() net.Listener {
	b.t.Helper()
	var l net.Listener
	if b.options.Memory {
		b.memory = newMemoryNet()
		l = b.memory
	} else {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.t.Fatal(err)
		}
		b.addr = tcp.Addr().String()
		l = tcp
	}
	if b.options.Listen != nil {
		l = b.options.Listen(l)
	}
	return l
}

func (b *broker) close() {
	b.t.Helper()
	if b.closed {
		return
	}
	b.closed = true
	if err := b.server.Close(); err != nil {
		b.t.Error("close server:", err)
	}
	b.hook.Wait()
	if n := b.server.Info.Inflight; n != 0 {
		b.t.Errorf("the MQTT library has %d messages in flight, want none ever", n)
	}
}

// dial connects a client.
func (b *broker) dial(o mqtttest.Options) *mqtttest.Client {
	b.t.Helper()
	if b.options.Memory {
		return mqtttest.Connect(b.t, b.link(), o)
	}
	return mqtttest.Dial(b.t, b.addr, o)
}

// v5 is an MQTT 5 client that wants its session kept.
func v5(id string) mqtttest.Options {
	return mqtttest.Options{ClientID: id, Version: 5, SessionExpiry: 3600}
}

// v3 is an MQTT 3.1.1 client that wants its session kept.
func v3(id string) mqtttest.Options {
	return mqtttest.Options{ClientID: id}
}

// clean is a client whose session ends with its link.
func clean(id string) mqtttest.Options {
	return mqtttest.Options{ClientID: id, Clean: true}
}

// manual is a client that acknowledges when the test says so.
func manual(o mqtttest.Options) mqtttest.Options {
	o.ManualAck = true
	return o
}

// subscribed makes a session with one subscription of QoS 1 and leaves it.
func (b *broker) subscribed(o mqtttest.Options, filter string, qos byte) {
	b.t.Helper()
	c := b.dial(o)
	if code := c.Subscribe(filter, qos); code != qos {
		b.t.Fatalf("SUBACK %#x, want %#x", code, qos)
	}
	c.Disconnect()
	b.awaitAway(c.ID)
}

// awaitAway waits until the broker has noticed that a client is gone: what is published before
// that may be sent on its link, and then comes again with DUP.
func (b *broker) awaitAway(id string) {
	b.t.Helper()
	mqtttest.Eventually(b.t, func() bool {
		for s, err := range b.store.Sessions(b.t.Context()) {
			if err != nil {
				b.t.Fatal(err)
			}
			if s.Receiver == inbox.Receiver(id) {
				return !s.Connected
			}
		}
		return true
	}, id+" is away")
}
