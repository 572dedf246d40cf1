package killtest

import (
	"encoding/json"
	"slices"
	"strings"
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

// get compares what waits for a client, up to a message that says that it is the end, with
// what must.
func (r *run) get(t testing.TB, id string, want []string) {
	t.Helper()
	c := mqtttest.Dial(t, r.Address, mqtttest.Options{
		ClientID: id, Version: 5, SessionExpiry: sessionExpiry,
		UserProperties: []packets.UserProperty{{Key: "inbox-mode", Val: "push"}},
	})
	var got []string
	for {
		m := string(c.NextPublish().Payload)
		if m == "end" {
			break
		}
		got = append(got, m)
	}
	c.Disconnect()
	if !slices.Equal(got, want) {
		r.ledger.Violate("%s: got %s, want %s", id, strings.Join(got, " "), strings.Join(want, " "))
	}
}

// askFor asks over the link of a client.
func askFor(t testing.TB, c *mqtttest.Client, operation string, q question, answer any) {
	t.Helper()
	payload, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	c.Publish("$inbox/"+operation, string(payload), 0)
	pk := c.NextOn("$inbox/" + operation + "/answer")
	if err := json.Unmarshal(pk.Payload, answer); err != nil {
		t.Fatalf("%s: answer %q: %v", operation, pk.Payload, err)
	}
}
