package hooks_test

import (
	"fmt"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// A message of QoS 0 that is published after CONNACK comes, however many
// subscriptions the session has; also if the client has changed one meanwhile,
// and never again after it has left.
func TestConnackMeansSubscribed(t *testing.T) {
	b := start(t, setting{})
	const filters = 500
	subs := make([]packets.Subscription, filters)
	for i := range subs {
		subs[i] = packets.Subscription{Filter: fmt.Sprint("many/", i), Qos: 1}
	}
	receiver := b.dial(v5("receiver"))
	receiver.SubscribeAll(subs...)
	receiver.Disconnect()
	b.awaitAway(receiver.ID)
	publisher := b.dial(v5("publisher"))
	for i := range 50 {
		receiver := b.dial(v5("receiver"))
		publisher.Publish(fmt.Sprint("many/", filters-1-i), "x", 0)
		if pk := receiver.NextPublish(); pk.FixedHeader.Qos != 0 {
			t.Fatalf("return %d: %s, want it at QoS 0", i, mqtttest.Describe(pk))
		}
		receiver.Disconnect()
	}

	receiver = b.dial(v5("receiver"))
	receiver.Unsubscribe("many/0")
	publisher.Publish("many/0", "given up", 0)
	publisher.Publish("many/1", "kept", 0)
	wantPayloads(t, receiver.Payloads(1), []string{"kept"})
	receiver.Disconnect()
	mqtttest.Eventually(t, func() bool { return b.server.Info.Clone().Subscriptions == 0 }, "the library has subscriptions of a client that is gone")
}

// More sessions than are restored at a time, and a publisher to all of them.
func TestManyReturnAtOnce(t *testing.T) {
	b := start(t, setting{})
	const receivers, filters = 12, 64
	for i := range receivers {
		c := b.dial(v3(fmt.Sprint("receiver-", i)))
		subs := make([]packets.Subscription, filters)
		for j := range subs {
			subs[j] = packets.Subscription{Filter: fmt.Sprintf("%d/%d", i, j), Qos: 1}
		}
		c.SubscribeAll(subs...)
		c.SubscribeAll(packets.Subscription{Filter: "all", Qos: 1})
		c.Disconnect()
	}
	for range 5 {
		back := make(chan *mqtttest.Conn, receivers)
		for i := range receivers {
			go func() {
				c, err := mqtttest.Open(b.addr, v3(fmt.Sprint("receiver-", i)))
				if err != nil {
					t.Error(err)
				}
				back <- c
			}()
		}
		for range receivers {
			c := <-back
			if c == nil {
				t.FailNow()
			}
			own := b.conn(clean("publisher"))
			if err := own.Write(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Publish}, TopicName: "all", Payload: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			pk, err := c.ReadWithin(mqtttest.Deadline)
			if err != nil || pk.TopicName != "all" {
				t.Fatalf("%s, %v", mqtttest.Describe(pk), err)
			}
			_ = own.Close() // nothing more comes of it
			_ = c.Close()
		}
	}
}
