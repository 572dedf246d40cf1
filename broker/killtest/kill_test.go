package killtest

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
)

var (
	kills   = flag.Int("kills", 3, "how often each kill test ends the broker")
	seed    = flag.Uint64("seed", 0, "of the kill tests; 0 draws one")
	onlyQoS = flag.Int("qos", 0, "the QoS of the kill tests; 0 runs both, 1 and 2")
	command = flag.String("broker", "", "the command line of another broker, with {address}, {port} and {data}")
)

func TestMain(m *testing.M) {
	brokertest.Main(m, func() error { return goleak.Find() })
}

// load is the load of every run in this file.
func load(qos byte) Config {
	c := Config{Seed: *seed, Kills: *kills, QoS: qos, Publishers: 4, Window: 48, Pause: 15 * time.Millisecond}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c
}

func TestKillLosesNothingAtQoS1(t *testing.T) { killTest(t, 1) }

func TestKillLosesNothingAtQoS2(t *testing.T) { killTest(t, 2) }

func killTest(t *testing.T, qos byte) {
	t.Helper()
	if *onlyQoS != 0 && *onlyQoS != int(qos) {
		t.Skipf("-qos %d", *onlyQoS)
	}
	b := brokertest.Start(t, brokertest.Options{Command: strings.Fields(*command)})
	c := load(qos)
	c.Address, c.Crash, c.Recover = b.Address, b.Crash, b.Restart
	Run(t, c).Check(t)
}
