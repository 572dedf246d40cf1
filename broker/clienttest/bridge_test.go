package clienttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// Field case 130: a mosquitto broker that bridges every topic both ways. What says
// that it is a bridge does not get back what it has sent; what does not say so
// does, once or for ever, as it takes it.
func TestBridgeBothWays(t *testing.T) {
	brokertest.NeedTools(t, "mosquitto")
	cases := []struct {
		name, version string
		private, echo bool
	}{
		{"MQTT 3.1.1, private", "mqttv311", true, false},
		{"MQTT 3.1, private", "mqttv31", true, false},
		{"MQTT 3.1.1, like a client", "mqttv311", false, true},
		{"MQTT 5", "mqttv50", false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ours := brokertest.Start(t, brokertest.Options{})
			theirs := startBridge(t, ours.Address, c.version, c.private)
			awaitBridge(t, ours, theirs)
			here := watch(t, ours, "here")
			there := watch(t, theirs, "there")

			publish(t, ours, "from/here", "one")
			publish(t, theirs, "from/there", "two")
			if c.echo {
				here.Collect(2)
				there.Collect(2)
				mqtttest.Dial(t, ours.Address, mqtttest.Options{ClientID: "alive", Version: 4, Clean: true}).Ping()
				return
			}
			collect(t, here, "one", "two")
			collect(t, there, "one", "two")

			ours.Kill()
			publish(t, theirs, "from/there", "three")
			ours.Restart()
			here = watch(t, ours, "here")
			collect(t, here, "three")
			collect(t, there, "three")
		})
	}
}

// startBridge starts a mosquitto broker that is a bridge to an address.
func startBridge(t *testing.T, address, version string, private bool) *brokertest.Broker {
	t.Helper()
	config := filepath.Join(t.TempDir(), "mosquitto.conf")
	b := []byte(fmt.Sprintf(`allow_anonymous true
connection bridge
address %s
topic # both 1
bridge_protocol_version %s
try_private %v
cleansession false
remote_clientid bridge
notifications false
restart_timeout 1
`, address, version, private))
	if err := os.WriteFile(config, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return brokertest.Start(t, brokertest.Options{Command: []string{"mosquitto", "-c", config, "-p", "{port}"}})
}

// watch has a session that gets everything.
func watch(t *testing.T, b *brokertest.Broker, id string) *mqtttest.Client {
	t.Helper()
	c := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: id, Version: 4})
	c.Subscribe("from/#", 1)
	return c
}

func publish(t *testing.T, b *brokertest.Broker, topic, payload string) {
	t.Helper()
	c := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "publisher", Version: 4, Clean: true})
	c.PublishAndWait(topic, payload, 1)
	c.Disconnect()
}

// awaitBridge sends probes until one has come over the bridge. Others may be under way still.
func awaitBridge(t *testing.T, ours, theirs *brokertest.Broker) {
	t.Helper()
	there := mqtttest.Dial(t, theirs.Address, mqtttest.Options{ClientID: "prober", Version: 4, Clean: true})
	defer there.Disconnect()
	there.Subscribe("probe", 1)
	mqtttest.Eventually(t, func() bool {
		publish(t, ours, "probe", "")
		_, ok := there.Next(200 * time.Millisecond)
		return ok
	}, "a probe comes over the bridge")
}

// collect wants these messages, in any order, and nothing more.
func collect(t *testing.T, c *mqtttest.Client, want ...string) {
	t.Helper()
	got := map[string]int{}
	for range want {
		got[c.Payloads(1)[0]]++
	}
	for _, payload := range want {
		if got[payload] != 1 {
			t.Fatalf("got %v, want %s each once", got, strings.Join(want, ", "))
		}
	}
	c.Silent(300 * time.Millisecond)
}
