package killtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

var (
	kills   = flag.Int("kills", 4, "how often each kill test ends the broker")
	seed    = flag.Uint64("seed", 0, "of the kill tests; 0 draws one")
	qos     = flag.Int("qos", 0, "of the messages in the kill tests, 1 or 2; 0 for one run of each")
	rest    = flag.Duration("pause", 120*time.Millisecond, "between two bursts of a publisher; less is more load")
	from    = flag.Int("group-from", 0, "sessions from which on the messages of a filter are stored once, -1 for never; 0 for half of the kills without and half with all filters so")
	command = flag.String("broker", "", "the command line of another broker, with {address}, {port} and {data}")
)

func TestMain(m *testing.M) {
	brokertest.Main(m, func() error { return leaktest.Find() })
}

// load is the load of every run.
func load(qos byte) Config {
	c := Config{Asks: *command == "", Seed: *seed, Kills: *kills, QoS: qos, Publishers: 4, Window: 48, Pause: *rest}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c
}

// storing is how the broker is told to store what several receivers get.
type storing struct {
	name    string
	args    []string
	history bool // everything is kept in history too
	rewind  bool // and what was acknowledged, for a time
}

// options are those of the broker. Where there is history an operator may ask.
func (s storing) options() brokertest.Options {
	o := brokertest.Options{Args: s.args, Command: strings.Fields(*command)}
	if s.history {
		o.HTTP = true
		o.Args = append([]string{"--allow-anonymous=false"}, s.args...)
	}
	return o
}

// storings returns the ways of storing that a test goes through, at one QoS.
func storings(qos byte) []storing {
	switch {
	case *command != "":
		return []storing{{name: "another broker"}}
	case *from != 0:
		args := []string{fmt.Sprintf("--group-stream-from=%d", *from), "--history=#"}
		return []storing{{name: fmt.Sprintf("group-from %d, history", *from), args: args, history: true}}
	}
	references := storing{name: "references"}
	if qos == 2 { // at QoS 1 what was acknowledged is swept
		references = storing{name: "references and rewind", args: []string{"--rewind=1h"}, rewind: true}
	}
	streams := storing{name: "streams and history", args: []string{"--group-pull=#", "--history=#"}, history: true}
	return []storing{references, streams}
}

func TestKillLosesNothing(t *testing.T) {
	levels := []int{1, 2}
	if *qos != 0 {
		levels = []int{*qos}
	}
	for _, qos := range levels {
		all := storings(byte(qos)) //nolint:gosec // 1 or 2
		for _, how := range all {
			t.Run(fmt.Sprintf("qos %d/%s", qos, how.name), func(t *testing.T) {
				b := brokertest.Start(t, how.options())
				c := load(byte(qos)) //nolint:gosec // 1 or 2
				c.Kills = (c.Kills + len(all) - 1) / len(all)
				c.History, c.Rewind = how.history, how.rewind
				c.HTTP = b.HTTP
				c.Address, c.Crash, c.Recover = b.Address, b.Crash, b.Restart
				Run(t, c).Check(t)
				if *command == "" {
					b.Verify()
				}
			})
		}
	}
}
