package mqtttest_test

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve starts a broker and returns its address. A stock server would not do: it takes a
// read lock within the same read lock, when it is closed and with each acknowledgement, which
// is a deadlock if something else comes in between.
func serve(t *testing.T, hook mqtt.Hook, config any) string {
	t.Helper()
	store := memory.New(memory.Options{})
	ours, err := hooks.New(store, hooks.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("make hook: %v", err)
	}
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := errors.Join(server.AddHook(hook, config), ours.Attach(server)); err != nil {
		t.Fatalf("add hooks: %v", err)
	}
	link, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	if err := server.AddListener(ours.Listener(listeners.NewNet("tcp", link))); err != nil {
		t.Fatalf("add listener: %v", err)
	}
	if err := server.Serve(); err != nil {
		t.Fatalf("serve: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		ours.Wait()
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return link.Addr().String()
}

func serveAll(t *testing.T) string { return serve(t, new(auth.AllowHook), nil) }

func TestMessagesArriveInOrderAtEveryQoSAndVersion(t *testing.T) {
	addr := serveAll(t)
	for _, version := range []byte{3, 4, 5} {
		for qos := range byte(3) {
			o := mqtttest.Options{ClientID: "receiver", Version: version, Clean: true}
			receiver := mqtttest.Dial(t, addr, o)
			if code := receiver.Subscribe("chat/#", qos); code != qos {
				t.Fatalf("version %d: granted %#x, want %d", version, code, qos)
			}
			sender := mqtttest.Dial(t, addr, mqtttest.Options{ClientID: "sender", Version: version, Clean: true})
			want := []string{"a", "b", "c"}
			for _, payload := range want {
				sender.PublishAndWait("chat/1", payload, qos)
			}
			if got := receiver.Payloads(3); !slices.Equal(got, want) {
				t.Errorf("version %d, qos %d: got %q, want %q", version, qos, got, want)
			}
			receiver.Unsubscribe("chat/#")
			receiver.Disconnect()
			sender.Disconnect()
		}
	}
}

func TestManualAcknowledgement(t *testing.T) {
	addr := serveAll(t)
	receiver := mqtttest.Dial(t, addr, mqtttest.Options{ClientID: "receiver", Version: 5, ManualAck: true})
	receiver.Subscribe("a", 2)
	sender := mqtttest.Dial(t, addr, mqtttest.Options{ClientID: "sender", Version: 5, ManualRelease: true})

	id := sender.Publish("a", "x", 2)
	if got := sender.NextOf(packets.Pubrec).PacketID; got != id {
		t.Fatalf("PUBREC for %d, want %d", got, id)
	}
	sender.Release(id)
	sender.WaitAck(id)

	message := receiver.NextPublish()
	receiver.Ack(message)
	if got := receiver.NextOf(packets.Pubrel).PacketID; got != message.PacketID {
		t.Fatalf("PUBREL for %d, want %d", got, message.PacketID)
	}
	receiver.Complete(message.PacketID)
	receiver.Ping()
}

func TestCutLeavesAWillAndASession(t *testing.T) {
	addr := serveAll(t)
	watcher := mqtttest.Dial(t, addr, mqtttest.Options{ClientID: "watcher", Version: 5, Clean: true})
	watcher.SubscribeAll(packets.Subscription{Filter: "gone", Qos: 1, Identifier: 7})

	o := mqtttest.Options{ClientID: "device", Version: 5, SessionExpiry: 60, Will: &mqtttest.Will{Topic: "gone", Payload: "device", QoS: 1}}
	device := mqtttest.Dial(t, addr, o)
	if device.SessionPresent {
		t.Error("a new session is said to be present")
	}
	device.Subscribe("b", 1)
	device.Cut()

	will := watcher.NextPublish()
	if string(will.Payload) != "device" || !slices.Equal(will.Properties.SubscriptionIdentifier, []int{7}) {
		t.Errorf("got %s with identifiers %d", mqtttest.Describe(will), will.Properties.SubscriptionIdentifier)
	}
	if !mqtttest.Dial(t, addr, o).SessionPresent {
		t.Error("the session is said not to be present")
	}
}

func TestTakeoverIsToldWithDisconnect(t *testing.T) {
	addr := serveAll(t)
	o := mqtttest.Options{ClientID: "phone", Version: 5}
	first := mqtttest.Dial(t, addr, o)
	mqtttest.Dial(t, addr, o)
	if code := first.WaitDisconnect(); code != packets.ErrSessionTakenOver.Code {
		t.Errorf("disconnected with %#x, want %#x", code, packets.ErrSessionTakenOver.Code)
	}
}

func TestRefusedConnect(t *testing.T) {
	addr := serve(t, new(auth.Hook), &auth.Options{Ledger: &auth.Ledger{}})
	connack := mqtttest.Refused(t, addr, mqtttest.Options{ClientID: "eve", Version: 5})
	if connack.ReasonCode != packets.ErrBadUsernameOrPassword.Code {
		t.Errorf("refused with %#x", connack.ReasonCode)
	}
}

func TestRawLink(t *testing.T) {
	raw := mqtttest.DialRaw(t, serveAll(t), mqtttest.Options{})
	raw.SendRaw([]byte{0xF0, 0}) // no CONNECT
	raw.WaitClosed()
	if pk, ok := raw.Next(time.Millisecond); ok {
		t.Errorf("got %s from a link without CONNECT", mqtttest.Describe(pk))
	}
}

func TestFrozenClientReadsOnlyAfterThaw(t *testing.T) {
	addr := serveAll(t)
	receiver := mqtttest.Dial(t, addr, mqtttest.Options{ClientID: "receiver"})
	receiver.Subscribe("a", 0)
	receiver.Freeze()
	sender := mqtttest.Dial(t, addr, mqtttest.Options{ClientID: "sender"})
	for _, payload := range []string{"1", "2", "3"} {
		sender.PublishAndWait("a", payload, 1)
	}
	receiver.Thaw()
	if got := receiver.Payloads(3); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("got %q", got)
	}
	receiver.Silent(time.Millisecond)
}

func TestEventuallySeesALateChange(t *testing.T) {
	calls := 0
	mqtttest.Eventually(t, func() bool { calls++; return calls == 3 }, "the third look")
}
