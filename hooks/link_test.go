package hooks_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// Field case 117: what is sent to a client that is silent does not keep it
// alive.
func TestKeepAliveCountsPacketsOfClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		o := manual(v3("silent"))
		o.KeepAlive = 1
		o.Will = &mqtttest.Will{Topic: "will", Payload: "gone", QoS: 1}
		watcher := b.dial(v3("watcher"))
		watcher.Subscribe("will", 1)
		publisher := b.dial(clean("publisher"))
		silent := b.dial(o)
		before := time.Now()
		silent.Subscribe("a", 1) // the last that it says
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					publisher.Publish("a", "0", 0)
					publisher.Publish("a", "1", 1)
				case <-stop:
					return
				}
			}
		})
		silent.WaitClosed()
		took := time.Since(before)
		close(stop)
		wg.Wait()
		if took < 1500*time.Millisecond || took > 1750*time.Millisecond {
			t.Errorf("closed after %s, want one and a half times the keep alive of 1 s, or little more", took)
		}
		wantPayloads(t, watcher.Payloads(1), []string{"gone"})
		b.dial(v3("silent")).NextPublish()
	})
}

// Acknowledgements count for keep alive as every packet does.
func TestAcksKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, setting{Memory: true})
		o := v3("receiver") // acknowledges, and sends nothing else
		o.KeepAlive = 4
		receiver := b.dial(o)
		receiver.Subscribe("a", 1)
		publisher := b.dial(clean("publisher"))
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for range 14 { // longer than one and a half times the keep alive
			<-tick.C
			publisher.PublishAndWait("a", "x", 1)
			receiver.NextPublish()
		}
		receiver.WaitClosed() // and it ends once they stop
	})
}

// Who has not said all of CONNECT in time is cut off; who has may be silent.
func TestConnectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		b := start(t, setting{Memory: true, Options: hooks.Options{ConnectTimeout: timeout}})
		for _, beginning := range []string{"", "\x10", string(connectFrame("x")[:5])} {
			link, before := b.link(), time.Now()
			if _, err := io.WriteString(link, beginning); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, link); n > 0 || err != nil {
				t.Errorf("after %x: got %d bytes, %v", beginning, n, err)
			}
			if took := time.Since(before); took < timeout || took > timeout+250*time.Millisecond {
				t.Errorf("after %x: cut off in %s, want %s, or little more", beginning, took, timeout)
			}
		}
		late := b.link()
		time.Sleep(timeout - time.Millisecond)
		c := mqtttest.Connect(t, late, v3("x"))
		time.Sleep(timeout * 2)
		c.Ping()
	})
}

// A receiver that takes nothing is cut when the time for a write is over, however long that
// takes, and has everything on the next connection.
func TestWriteTimeout(t *testing.T) {
	v := new(valves)
	b := start(t, setting{Listen: v.listen})
	b.subscribed(v3("stuck"), "a", 1)
	b.publish("a", 1, 40)

	b.options.WriteTimeout = 50 * time.Millisecond
	b.restart()
	v.shutNew(true)
	stuck := mqtttest.DialRaw(t, b.addr, v3("stuck"))
	stuck.SendRaw(connectFrame("stuck"))
	stuck.WaitClosed()
	b.awaitAway("stuck")

	v.shutNew(false)
	b.options.WriteTimeout = 0
	b.restart()
	wantPayloads(t, b.dial(v3("stuck")).Payloads(40), numbers(1, 40))
}

// A SUBSCRIBE without its last byte makes the MQTT library's decoder panic.
func TestDecoderPanicEndsOneConnection(t *testing.T) {
	b := start(t, setting{})
	other := b.dial(v5("other"))
	other.Subscribe("will", 1)
	o := v5("bad")
	for qos := byte(0); qos <= 1; qos++ {
		o.Will = &mqtttest.Will{Topic: "will", Payload: "gone", QoS: qos}
		bad := b.dial(o)
		bad.Subscribe("a", 1)
		bad.SendRaw([]byte{0x82, 6, 0, 1, 0, 0, 1, 'x'})
		bad.WaitClosed()
		if pk := other.NextPublish(); string(pk.Payload) != "gone" || pk.FixedHeader.Qos != qos {
			t.Errorf("got %s, want the will", mqtttest.Describe(pk))
		}
	}
	b.publish("a", 1, 1)
	wantPayloads(t, b.dial(v5("bad")).Payloads(1), numbers(1, 1))
}

// A client that acknowledges in a way that is none is disconnected.
// A panic in the delivery ends the connection, and nothing else.
func TestPumpPanicEndsOneConnection(t *testing.T) {
	store := &faulty{next: func() error { panic("a fault of ours") }}
	b := start(t, setting{Wrap: store.wrap})
	if code := b.dial(v5("c")).WaitDisconnect(); code != 0x80 {
		t.Errorf("DISCONNECT %#x, want 0x80", code)
	}
	store.set(func(f *faulty) { f.next = nil })
	b.subscribed(v5("c"), "a", 1)
	b.publish("a", 1, 1)
	b.dial(v5("c")).NextPublish()
}

// A client is told that it was silent for too long.
func TestKeepAliveTimeoutIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := v5("c")
		o.KeepAlive = 1
		if code := start(t, setting{Memory: true}).dial(o).WaitDisconnect(); code != 0x8D {
			t.Errorf("DISCONNECT %#x, want 0x8d", code)
		}
	})
}

// Answers stay as small as the client wants them, and what the client wants to
// hear of problems does not touch messages.
func TestReasonStrings(t *testing.T) {
	b := start(t, setting{})
	o := v5("small")
	o.MaxPacketSize = 100
	small := b.dial(o)
	small.Subscribe("a", 0)
	b.dial(v5("publisher")).Publish("a", "x", 0, mqtttest.WithUser("k", "v"))
	if pk := small.NextPublish(); len(pk.Properties.User) != 1 {
		t.Errorf("properties %+v, want the message's own", pk.Properties)
	}
	o.ClientID, o.Will = "smaller", &mqtttest.Will{Topic: "$SYS/x"}
	if pk := mqtttest.Refused(t, b.addr, o); pk.ReasonCode != 0x90 || pk.Properties.ReasonString != "" {
		t.Errorf("got %s with reason %q", mqtttest.Describe(pk), pk.Properties.ReasonString)
	}
	o.MaxPacketSize = 0
	if pk := mqtttest.Refused(t, b.addr, o); pk.Properties.ReasonString == "" {
		t.Error("no reason string")
	}
}

func TestMalformedAcks(t *testing.T) {
	b := start(t, setting{})
	tests := []struct {
		name  string
		frame []byte
		code  byte
	}{
		{"flags", []byte{0x41, 2, 0, 1}, 0x81},
		{"PUBREL without flags", []byte{0x60, 2, 0, 1}, 0x81},
		{"too short", []byte{0x40, 1, 0}, 0x81},
		{"id 0", []byte{0x40, 2, 0, 0}, 0x82},
		{"length without end", []byte{0x40, 0x80, 0x80, 0x80, 0x80, 1}, 0x81},
		{"larger than the server takes", []byte{0x30, 0xFF, 0xFF, 0x7F}, 0x95},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			modern := b.dial(v5("modern"))
			modern.SendRaw(tt.frame)
			if code := modern.WaitDisconnect(); code != tt.code {
				t.Errorf("DISCONNECT %#x, want %#x", code, tt.code)
			}
			old := b.dial(v3("old"))
			old.SendRaw(tt.frame)
			old.WaitClosed()
			if pk, ok := old.Next(time.Millisecond); ok {
				t.Errorf("%s to a client that knows no DISCONNECT from a server", mqtttest.Describe(pk))
			}
		})
	}
}

// Acknowledgements may be as long as their properties make them.
func TestLongAck(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 1)
	b.publish("a", 1, 2)
	receiver := b.dial(manual(v5("receiver")))
	for _, pk := range receiver.Collect(2) {
		receiver.Send(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Puback},
			PacketID:    pk.PacketID,
			Properties:  packets.Properties{ReasonString: strings.Repeat("why", 10000)},
		})
	}
	receiver.Ping()
	receiver.Disconnect()
	b.dial(v5("receiver")).Silent(20 * time.Millisecond)
}

// Frames may come in any pieces.
func TestFramesInPieces(t *testing.T) {
	b := start(t, setting{})
	b.subscribed(v5("receiver"), "a", 1)
	b.publish("a", 1, 1)
	receiver := b.dial(manual(v5("receiver")))
	pk := receiver.NextPublish()
	frame := []byte{0x40, 2, byte(pk.PacketID >> 8), byte(pk.PacketID), 0xC0, 0}
	for i := range frame {
		receiver.SendRaw(frame[i : i+1])
	}
	receiver.NextOf(packets.Pingresp)
	receiver.Disconnect()
	b.dial(v5("receiver")).Silent(20 * time.Millisecond)
}

// What the server counts includes what the library does not see.
func TestServerCounts(t *testing.T) {
	b := start(t, setting{})
	receiver := b.dial(v3("receiver"))
	receiver.Subscribe("a", 1)
	b.publish("a", 1, 10)
	receiver.Payloads(10)
	receiver.Disconnect()
	b.close()
	info := b.server.Info
	if info.MessagesSent != 10 || info.MessagesReceived != 10 {
		t.Errorf("%d messages sent and %d received, want 10 and 10", info.MessagesSent, info.MessagesReceived)
	}
	// PUBACKs each way, two CONNACKs, SUBACK; two CONNECTs, SUBSCRIBE, DISCONNECT.
	if info.PacketsSent != 10+10+3 || info.PacketsReceived != 10+10+4 {
		t.Errorf("%d packets sent and %d received, want 23 and 24", info.PacketsSent, info.PacketsReceived)
	}
}

// A connection that came past the hook's listener is refused, and the log says
// what to do.
func TestListenerWithoutHook(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	b := start(t, setting{Options: hooks.Options{Log: slog.New(slog.NewTextHandler(&locked{mu: &mu, w: &log}, nil))}})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain := listeners.NewNet("plain", tcp)
	if err := b.server.AddListener(plain); err != nil {
		t.Fatal(err)
	}
	b.server.Listeners.Serve("plain", b.server.EstablishConnection)
	defer plain.Close(func(string) {}) // of the server's own way see listener.Close
	if pk := mqtttest.Refused(t, tcp.Addr().String(), v5("x")); pk.ReasonCode != 0x88 {
		t.Errorf("got %s, want 0x88", mqtttest.Describe(pk))
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "Hook).Listener") {
		t.Errorf("log does not say what to do: %s", log.String())
	}
}

// A write that fails while the inbox is being sent ends the connection, and is not logged as
// a fault of the store. What was not sent comes on the next one.
func TestFailedWriteIsNoFaultOfTheStore(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	v := new(valves)
	b := start(t, setting{
		Options: hooks.Options{OutBytes: 4 << 10, Log: slog.New(slog.NewTextHandler(&locked{mu: &mu, w: &log}, nil))},
		Listen:  v.listen,
	})
	c := b.dial(manual(v5("r")))
	c.Subscribe("topic", 1)
	valve := v.last()
	valve.stop(c)
	long := strings.Repeat("x", 4<<10)
	tellAll(b, "topic", []string{"0" + long, "1" + long, "2" + long}, 1) // the buffer has room for one
	valve.fail()
	b.awaitAway("r")
	c = b.dial(v5("r"))
	wantPayloads(t, c.Payloads(3), []string{"0" + long, "1" + long, "2" + long})
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log has %s", log.String())
	}
}

type locked struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// Close tells the clients, gives their sessions back, and waits for all of it,
// also for connections that have not introduced themselves.
func TestClose(t *testing.T) {
	read := make(chan struct{}, 4)
	b := start(t, setting{
		Options: hooks.Options{ConnectTimeout: time.Hour},
		Listen:  func(l net.Listener) net.Listener { return readListener{l, read} },
	})
	modern, old := b.dial(v5("modern")), b.dial(v3("old"))
	raw := mqtttest.DialRaw(t, b.addr, v3(""))
	raw.SendRaw(connectFrame("x")[:5])
	mqtttest.DialRaw(t, b.addr, v3(""))
	for range cap(read) { // else the library may have one that it forgets, and does not close
		<-read
	}
	b.close()
	if code := modern.WaitDisconnect(); code != 0x8B {
		t.Errorf("DISCONNECT %#x, want 0x8b", code)
	}
	old.WaitClosed()
	raw.WaitClosed()
	sessions := 0
	for s, err := range b.store.Sessions(t.Context()) {
		if err != nil || s.Connected {
			t.Errorf("session %+v, error %v", s, err)
		}
		sessions++
	}
	if sessions != 2 {
		t.Errorf("%d sessions, want 2", sessions)
	}
}

// readListener tells of each of its connections that it is read from: from then on the hook
// has it.
type readListener struct {
	net.Listener
	read chan<- struct{}
}

func (l readListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &readConn{Conn: conn, tell: sync.OnceFunc(func() { l.read <- struct{}{} })}, nil
}

type readConn struct {
	net.Conn
	tell func()
}

func (c *readConn) Read(p []byte) (int, error) {
	c.tell()
	return c.Conn.Read(p)
}

// The store may close first.
func TestStoreClosesUnderBroker(t *testing.T) {
	b := start(t, setting{})
	modern, old := b.dial(v5("modern")), b.dial(v3("old"))
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	modern.Publish("a", "x", 1)
	if code := modern.WaitDisconnect(); code != 0x8B {
		t.Errorf("DISCONNECT %#x, want 0x8b", code)
	}
	old.Publish("a", "x", 1)
	old.WaitClosed()
	if pk := mqtttest.Refused(t, b.addr, v3("other")); pk.ReasonCode != 3 {
		t.Errorf("got %s, want 3", mqtttest.Describe(pk))
	}
}

// DISCONNECT is not for clients older than MQTT 5, whoever sends it.
func TestDisconnectByServer(t *testing.T) {
	b := start(t, setting{})
	modern, old := b.dial(v5("modern")), b.dial(v3("old"))
	if !b.hook.Disconnect("modern", packets.ErrAdministrativeAction) || b.hook.Disconnect("nobody", packets.ErrAdministrativeAction) {
		t.Error("Disconnect does not know who is connected")
	}
	if code := modern.WaitDisconnect(); code != 0x98 {
		t.Errorf("DISCONNECT %#x, want 0x98", code)
	}
	known, _ := b.server.Clients.Get("old")
	_ = b.server.DisconnectClient(known, packets.ErrAdministrativeAction) // returns the code as an error
	old.WaitClosed()
	if pk, ok := old.Next(time.Millisecond); ok {
		t.Errorf("got %s, want a closed link", mqtttest.Describe(pk))
	}
}

// Hooks may look at the connection that the listener accepted.
func TestNetConn(t *testing.T) {
	seen := make(chan bool, 1)
	b := start(t, setting{Hooks: []mqtt.Hook{&looking{seen: seen}}})
	b.dial(v3("x"))
	if !<-seen {
		t.Error("the accepted connection is not to be had")
	}
}

type looking struct {
	mqtt.HookBase
	seen chan bool
}

func (h *looking) ID() string           { return "looking" }
func (h *looking) Provides(b byte) bool { return b == mqtt.OnConnect }
func (h *looking) OnConnect(cl *mqtt.Client, _ packets.Packet) error {
	wrapped, ok := cl.Net.Conn.(interface{ NetConn() net.Conn })
	if ok {
		_, ok = wrapped.NetConn().(*net.TCPConn)
	}
	h.seen <- ok
	return nil
}
