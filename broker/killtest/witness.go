package killtest

import (
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// witness knows of one thing beside messages that a broker must keep. All its
// methods run on the test's goroutine while the broker is there.
type witness interface {
	before(t testing.TB, round int) // sets up what the kill of this round must leave
	after(t testing.TB, round int)  // looks whether it did
	finally(t testing.TB)           // looks for what may take longer
}

// dial connects a client whose session is kept.
func (r *run) dial(t testing.TB, id string, will *mqtttest.Will) *mqtttest.Client {
	t.Helper()
	return mqtttest.Dial(t, r.Address, mqtttest.Options{ClientID: id, Version: 5, SessionExpiry: sessionExpiry, Will: will})
}

// gather takes n messages, and then all that come soon after.
func gather(c *mqtttest.Client, n int) []packets.Packet {
	var all []packets.Packet
	for {
		patience := mqtttest.Deadline
		if len(all) >= n {
			patience = quietTime
		}
		pk, ok := c.Next(patience)
		if !ok {
			return all
		}
		if pk.FixedHeader.Type == packets.Publish {
			all = append(all, pk)
		}
	}
}
