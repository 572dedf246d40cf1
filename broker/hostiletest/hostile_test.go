package hostiletest

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

var (
	seed     = flag.Uint64("seed", 0, "of the noise; 0 draws one")
	links    = flag.Int("links", 1000, "how many links noise is sent on")
	connects = flag.Int("connects", 2000, "how often the same id connects and disconnects")
)

func TestMain(m *testing.M) {
	brokertest.Main(m, func() error { return leaktest.Find() })
}

func TestHostile(t *testing.T) {
	p := admit(t)
	for _, act := range []struct {
		name string
		do   func(*testing.T, *patient)
	}{
		{"noise", noise},
		{"links that say nothing", silence},
		{"half-open links", halfOpen},
		{"absurd lengths", absurdLengths},
		{"a second CONNECT", secondConnect},
		{"client ids at the limits", oddNames},
		{"topics at the limits", hugeTopics},
		{"a flood of subscriptions", subscriptionFlood},
		{"readers that do not read", slowReaders},
		{"a stuck client is taken over (033)", stuckClient},
		{"two clients with one id (032)", takeoverWar},
		{"same id again and again", sameID},
	} {
		ok := t.Run(act.name, func(t *testing.T) {
			act.do(t, p)
			p.checkup(t)
		})
		if !ok && t.Failed() && !p.alive() {
			t.Fatal("the broker has ended")
		}
	}
	p.release(t)
}

// source returns where everything random comes from.
func source(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d", s)
	return rand.New(rand.NewPCG(s, 0)) //nolint:gosec // to repeat it
}
