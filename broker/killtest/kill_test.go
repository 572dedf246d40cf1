package killtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
)

var (
	kills   = flag.Int("kills", 4, "how often each kill test ends the broker")
	seed    = flag.Uint64("seed", 0, "of the kill tests; 0 draws one")
	qos     = flag.Int("qos", 0, "of the messages in the kill tests, 1 or 2; 0 for one run of each")
	rest    = flag.Duration("pause", 120*time.Millisecond, "between two bursts of a publisher; less is more load")
	command = flag.String("broker", "", "the command line of another broker, with {address}, {port} and {data}")
)

func TestMain(m *testing.M) {
	brokertest.Main(m, func() error { return goleak.Find() })
}

// load is the load of every run.
func load(qos byte) Config {
	c := Config{Seed: *seed, Kills: *kills, QoS: qos, Publishers: 4, Window: 48, Pause: *rest}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c
}

func TestKillLosesNothing(t *testing.T) {
	levels := []int{1, 2}
	if *qos != 0 {
		levels = []int{*qos}
	}
	for _, qos := range levels {
		t.Run(fmt.Sprintf("qos %d", qos), func(t *testing.T) {
			b := brokertest.Start(t, brokertest.Options{Command: strings.Fields(*command)})
			c := load(byte(qos)) //nolint:gosec // 1 or 2
			c.Address, c.Crash, c.Recover = b.Address, b.Crash, b.Restart
			Run(t, c).Check(t)
		})
	}
}
