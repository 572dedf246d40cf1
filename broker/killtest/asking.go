package killtest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// asking has pullers come and go while the broker is killed, and in the end take what is
// left: one that reads everything, and one that clears.
type asking struct {
	*run
	end     context.CancelFunc // of their visits; then they take what is left
	pullers sync.WaitGroup
}

func (s *asking) before(t testing.TB, round int) {
	if round > 0 {
		return
	}
	over, end := context.WithCancel(s.life)
	s.end = end
	drawn := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(s.Seed, n)) } //nolint:gosec // to repeat it
	s.start(over, t, &puller{run: s.run, id: "puller", drawn: drawn(2000)})
	s.start(over, t, &puller{run: s.run, id: "clearer", drawn: drawn(3000), clears: true})
}

// start has a puller subscribe, and come and go until its visits are over.
func (s *asking) start(over context.Context, t testing.TB, x *puller) {
	t.Helper()
	x.unfinished = map[uint16]string{}
	c := mqtttest.Dial(t, s.Address, x.options("pull"))
	c.Subscribe("load/#", s.QoS)
	c.Disconnect()
	for p := range s.Publishers + 1 {
		s.ledger.Subscribed(x.id, p)
	}
	s.pullers.Add(1)
	s.clients.Go(func() {
		defer s.pullers.Done()
		x.live(over)
		x.drain()
	})
}

func (*asking) after(testing.TB, int) {}

// finally waits until the receivers have everything; what they have not, the report says.
func (s *asking) finally(testing.TB) {
	s.end()
	s.pullers.Wait()
}
