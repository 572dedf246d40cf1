package killtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// group is the account of the shared subscription.
const group = "group"

// shared is three clients that share the whole load between them, and come and
// go. Each message reaches one of them, and one alone at QoS 2.
type shared struct {
	*run
	over context.Context // ends the members
	end  context.CancelFunc
}

func (s *shared) before(t testing.TB, round int) {
	if round > 0 {
		return
	}
	s.over, s.end = context.WithCancel(s.life)
	for i := range 3 {
		m := &sharer{
			run: s.run, over: s.over, unfinished: map[uint16]Message{},
			drawn:   rand.New(rand.NewPCG(s.Seed, uint64(1000+i))), //nolint:gosec // to repeat it
			options: mqtttest.Options{ClientID: fmt.Sprintf("%s-%d", group, i), Version: 4 + byte(i%2), SessionExpiry: sessionExpiry, KeepAlive: keepAlive},
		}
		c := mqtttest.Dial(t, s.Address, m.options)
		c.Subscribe("$share/"+group+"/load/#", s.QoS)
		c.Disconnect()
		s.clients.Go(m.live)
	}
	for p := range s.Publishers {
		s.ledger.Subscribed(group, p)
	}
}

func (s *shared) after(testing.TB, int) {}

// finally waits until the members have everything; what they have not, the report
// says.
func (s *shared) finally(testing.TB) {
	defer s.end()
	tick := time.NewTicker(redial)
	defer tick.Stop()
	for began := time.Now(); s.ledger.Lacks(group) && time.Since(began) < s.drainDeadline(); {
		<-tick.C
	}
}

// sharer is one member.
type sharer struct {
	run        *run
	over       context.Context
	drawn      *rand.Rand
	options    mqtttest.Options
	unfinished map[uint16]Message // QoS 2: received and not yet released
}

// live is the member's goroutine: link after link until the run is over.
func (x *sharer) live() {
	for x.over.Err() == nil {
		x.options.ReceiveMaximum = uint16(1 + x.drawn.IntN(100)) //nolint:gosec // small
		c, ok := x.run.open(x.options)
		if !ok {
			return
		}
		x.share(c, x.drawn.IntN(5000))
		_ = c.Close() // some of what was received stays unacknowledged
	}
}

// share takes so many messages, unless the link ends before.
func (x *sharer) share(c *conn, messages int) {
	var open []packets.Packet
	for messages > 0 && x.over.Err() == nil {
		pk, err := c.ReadWithin(quietTime)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			pk, err = packets.Packet{}, nil
		}
		if err != nil {
			return
		}
		switch pk.FixedHeader.Type {
		case packets.Publish:
			messages--
			open = append(open, pk)
		case packets.Pubrel:
			delete(x.unfinished, pk.PacketID)
			err = c.Buffer(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubcomp}, PacketID: pk.PacketID})
		case 0: // nothing has come
		default:
			err = x.run.unasked(x.options.ClientID, c, pk)
		}
		for len(open) > 0 && err == nil && x.drawn.IntN(20) > 0 {
			err = x.take(c, open[0])
			open = open[1:]
		}
		if err == nil && !c.Pending() {
			err = c.Flush()
		}
		if err != nil {
			return
		}
	}
}

// take acknowledges a message, and accounts for it unless it was seen before.
func (x *sharer) take(c *conn, pk packets.Packet) error {
	m, err := parse(pk.Payload)
	if err != nil || pk.FixedHeader.Qos != x.run.QoS {
		x.run.ledger.Violate("%s: got %s: %v", x.options.ClientID, mqtttest.Describe(pk), err)
		return nil
	}
	kind := byte(packets.Puback)
	if pk.FixedHeader.Qos == 2 {
		kind = packets.Pubrec
	}
	known, seen := x.unfinished[pk.PacketID]
	switch {
	case seen && known != m:
		x.run.ledger.Violate("%s: packet id %d of %s was given to %s", x.options.ClientID, pk.PacketID, known, m)
	case !seen:
		x.run.ledger.Shared(group, m)
	}
	if kind == packets.Pubrec {
		x.unfinished[pk.PacketID] = m
	}
	return c.Buffer(packets.Packet{FixedHeader: packets.FixedHeader{Type: kind}, PacketID: pk.PacketID})
}
