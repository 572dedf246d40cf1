package killtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// expiring publishes to an absent receiver messages that expire soon, much later,
// and never. In the end the first are not delivered, the second have the rest of
// their time, and all of them come in order.
type expiring struct {
	*run
	sent []expiringMessage
}

type expiringMessage struct {
	payload      string
	interval     uint32 // seconds; 0 for never
	sent         time.Time
	acknowledged time.Time
}

// The intervals, in seconds.
const (
	brief = 1
	long  = 3600
)

func (x *expiring) before(t testing.TB, round int) {
	if round == 0 {
		receiver := x.dial(t, "expiring-receiver", nil)
		receiver.Subscribe("expiring", x.QoS)
		receiver.Disconnect()
	}
	publisher := x.dial(t, "expiring-publisher", nil)
	defer publisher.Disconnect()
	for _, interval := range []uint32{brief, long, 0} {
		m := expiringMessage{payload: fmt.Sprintf("%d in round %d", interval, round), interval: interval, sent: time.Now()}
		publisher.PublishAndWait("expiring", m.payload, x.QoS, mqtttest.WithExpiry(interval))
		m.acknowledged = time.Now()
		x.sent = append(x.sent, m)
	}
}

func (x *expiring) after(testing.TB, int) {}

func (x *expiring) finally(t testing.TB) {
	var want []expiringMessage
	for _, m := range x.sent {
		if m.interval != brief {
			want = append(want, m)
		}
	}
	last := x.sent[len(x.sent)-1]
	pause(x.life, time.Until(last.acknowledged.Add(brief*time.Second)))

	connected := time.Now()
	receiver := x.dial(t, "expiring-receiver", nil)
	defer receiver.Disconnect()
	got := gather(receiver, len(want))
	received := time.Now()
	for i, pk := range got {
		if i >= len(want) || string(pk.Payload) != want[i].payload {
			x.ledger.Violate("%s: %s is its message %d, want %v", receiver.ID, mqtttest.Describe(pk), i, want[min(i, len(want)-1)].payload)
			return
		}
		m, left := want[i], pk.Properties.MessageExpiryInterval
		low, high := remaining(m.interval, received.Sub(m.sent)), remaining(m.interval, connected.Sub(m.acknowledged))
		if left < low || left > high+1 {
			x.ledger.Violate("%s: %q has %d seconds left, want %d to %d", receiver.ID, m.payload, left, low, high+1)
		}
	}
	if len(got) < len(want) {
		x.ledger.Violate("%s: got %d messages, want %d", receiver.ID, len(got), len(want))
	}
}

// remaining is what is left of an interval after a time, in whole seconds.
func remaining(interval uint32, passed time.Duration) uint32 {
	return interval - min(interval, uint32((passed+time.Second-1)/time.Second)) //nolint:gosec // within one run
}
