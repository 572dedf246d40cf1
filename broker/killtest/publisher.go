package killtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// publisher sends bursts of messages and keeps a window of them in flight.
type publisher struct {
	flights
	options mqtttest.Options

	// insists tells that what was not acknowledged is sent again on the next
	// link. At QoS 1 every other publisher gives it up, so that the receivers may
	// have had it or not, but not twice.
	insists bool
}

func newPublisher(r *run, index int) *publisher {
	draw := rand.New(rand.NewPCG(r.Seed, uint64(index)+1)) //nolint:gosec // to repeat it
	return &publisher{
		flights: flights{run: r, publisher: index, padding: strings.Repeat("x", 16+draw.IntN(500))},
		options: mqtttest.Options{
			ClientID: publisherID(index), Version: 4 + byte(index/2%2), //nolint:gosec // 4 or 5
			SessionExpiry: sessionExpiry, KeepAlive: keepAlive,
		},
		insists: r.QoS == 2 || index%2 == 0,
	}
}

func publisherID(index int) string { return fmt.Sprintf("publisher-%d", index) }

// live is the publisher's goroutine: one link after the other until everything
// is sent and acknowledged.
func (p *publisher) live() {
	for p.run.life.Err() == nil {
		c, ok := p.run.open(p.options)
		if !ok {
			return
		}
		err := p.talk(c)
		_ = c.Close() // what it may say, err has said
		if err == nil {
			return
		}
	}
}

// talk publishes over one link. It returns nil when nothing is left to do.
func (p *publisher) talk(c *conn) error {
	if !p.insists {
		p.forget()
	} else if err := p.sendAgain(c); err != nil {
		return err
	}
	window := p.run.Window
	if limit := int(c.Connack.Properties.ReceiveMaximum); limit > 0 {
		window = min(window, limit) // [MQTT-3.3.4-7]
	}
	for {
		if err := p.burst(c, window); err != nil {
			return err
		}
		if len(p.list) == 0 {
			return nil // the sending has ended
		}
		if err := p.collect(c); err != nil {
			return err
		}
		pause(p.run.publish, p.run.breath())
	}
}

// burst fills the window with one write.
func (p *publisher) burst(c *conn, window int) error {
	for len(p.list) < window {
		sent, err := p.send(c, p.nextID())
		if err != nil {
			return err
		}
		if !sent {
			break
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	p.run.trigger.passed(flush)
	return nil
}

// collect takes the next acknowledgement and all that came with it.
func (p *publisher) collect(c *conn) error {
	began := time.Now()
	for {
		pk, err := c.ReadWithin(mqtttest.Deadline)
		if err != nil {
			if time.Since(began) >= mqtttest.Deadline {
				p.run.ledger.Violate("p%d: no acknowledgement in %s", p.publisher, mqtttest.Deadline)
			}
			return err
		}
		switch pk.FixedHeader.Type {
		case packets.Puback, packets.Pubrec, packets.Pubcomp:
			err = p.answer(c, pk)
		default:
			err = p.run.unasked(p.options.ClientID, c, pk)
		}
		if err != nil {
			return err
		}
		if !c.Pending() {
			return c.Flush()
		}
	}
}
