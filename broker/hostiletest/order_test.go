package hostiletest

import (
	"fmt"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// A SUBSCRIBE that came before a PUBLISH on another connection comes before it,
// even if the broker was busy and finds both at once. Nothing in MQTT says so
// before SUBACK, and a few of the tries may go wrong, not most of them.
func TestPublishDoesNotOvertakeASubscribeThatCameBefore(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	const tries = 24
	overtaken := 0
	for i := range tries {
		topic := fmt.Sprintf("order/%d", i)
		subscriber := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "subscriber", Version: 5, Clean: true})
		publisher := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "publisher", Version: 5, Clean: true})
		b.Pause()
		subscriber.Send(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Subscribe, Qos: 1}, PacketID: 1,
			Filters: packets.Subscriptions{{Filter: topic, Qos: 1}},
		})
		publisher.Send(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1}, PacketID: 1,
			TopicName: topic, Payload: []byte("m"),
		})
		b.Continue()
		ack := publisher.WaitAck(1)
		if ack.ReasonCode == packets.CodeNoMatchingSubscribers.Code {
			overtaken++
		}
	}
	if overtaken > tries/2 {
		t.Errorf("%d of %d messages overtook the subscription", overtaken, tries)
	}
}
