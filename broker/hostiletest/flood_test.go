package hostiletest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// subscriptionFlood sends SUBSCRIBE and UNSUBSCRIBE by the thousand, as fast as
// they are answered, and some in packets with hundreds of filters. All are
// answered, and nobody else waits.
func subscriptionFlood(t *testing.T, p *patient) {
	const rounds, window = 30, 100
	flooder, err := mqtttest.Open(p.Address, mqtttest.Options{ClientID: "flooder", Version: 5, SessionExpiry: 60})
	if err != nil {
		t.Fatal(err)
	}
	defer flooder.Close()
	other := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "other", Clean: true})
	other.Subscribe("flood/0/0", 1)
	for round := range rounds {
		for i := range window {
			id := uint16(1 + i) //nolint:gosec // small
			pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: id}
			if round%2 == 1 {
				pk.FixedHeader.Type = packets.Unsubscribe
			}
			filters := 1
			if i == 0 {
				filters = 500
			}
			for n := range filters {
				pk.Filters = append(pk.Filters, packets.Subscription{Filter: fmt.Sprintf("flood/%d/%d", i, n), Qos: 1})
			}
			if err := flooder.Buffer(pk); err != nil {
				t.Fatal(err)
			}
		}
		if err := flooder.Flush(); err != nil {
			t.Fatal(err)
		}
		for i := range window {
			pk, err := flooder.ReadWithin(mqtttest.Deadline)
			if err != nil || pk.PacketID != uint16(1+i) { //nolint:gosec // small
				t.Fatalf("round %d: answer %d: %s, %v", round, i, mqtttest.Describe(pk), err)
			}
		}
		other.PublishAndWait("flood/0/0", "flood", 1)
		if got := other.NextPublish(); got.TopicName != "flood/0/0" {
			t.Errorf("got %s", mqtttest.Describe(got))
		}
		if round%2 == 0 {
			if pk, err := flooder.ReadWithin(mqtttest.Deadline); err != nil || pk.FixedHeader.Type != packets.Publish {
				t.Fatalf("round %d: the flooder got %s, %v", round, mqtttest.Describe(pk), err)
			} else if err := flooder.Write(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: pk.PacketID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	other.Disconnect()
	p.clean(t, "flooder")
}

// slowReaders has clients of each kind that stop reading while much is sent to
// them. A healthy receiver gets everything meanwhile.
func slowReaders(t *testing.T, p *patient) {
	const messages = 1500
	payload := strings.Repeat("x", 2<<10)
	var slow []*mqtttest.Client
	for qos := range byte(3) {
		for _, o := range []mqtttest.Options{
			{ClientID: fmt.Sprintf("slow-kept-%d", qos)},
			{ClientID: fmt.Sprintf("slow-clean-%d", qos), Clean: true},
			{ClientID: fmt.Sprintf("slow-5-%d", qos), Version: 5, SessionExpiry: 60},
		} {
			c := mqtttest.Dial(t, p.Address, o)
			c.Subscribe("much/#", qos)
			c.Freeze()
			slow = append(slow, c)
		}
	}
	healthy := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "healthy", Clean: true})
	healthy.Subscribe("much/1", 1)
	publisher := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "much", Clean: true})
	for i := 0; i < messages; i += 50 {
		var ids []uint16
		for range 50 {
			publisher.Publish("much/0", payload, 0)
			ids = append(ids, publisher.Publish("much/1", payload, 1))
		}
		for _, id := range ids {
			publisher.WaitAck(id)
		}
	}
	healthy.Collect(messages)
	publisher.Disconnect()
	healthy.Disconnect()
	for _, c := range slow {
		c.Cut()
		p.clean(t, c.ID)
	}
}
