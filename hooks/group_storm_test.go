package hooks_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// ledger is what the members of a group have had, by payload.
type ledger struct {
	mu    sync.Mutex
	had   map[string]int
	goal  int
	stop  chan struct{} // closed when so many different messages were had
	ended bool
}

func newLedger() *ledger { return &ledger{had: map[string]int{}} }

func (l *ledger) note(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.had[payload]++
	l.endLocked()
}

func (l *ledger) endLocked() {
	if len(l.had) >= l.goal && !l.ended {
		l.ended = true
		close(l.stop)
	}
}

func (l *ledger) until(goal int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goal, l.stop, l.ended = goal, make(chan struct{}), false
	l.endLocked()
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.had)
}

func (l *ledger) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// roamer is a client that comes and goes, and leaves some of what it has got
// unacknowledged. It does QoS 2 as the protocol asks of it.
type roamer struct {
	options mqtttest.Options
	random  *rand.Rand
	ledger  *ledger
	begun   map[uint16]bool // QoS 2: had, and PUBREL has not come
}

// roam connects again and again until the ledger has what it waits for.
func (r *roamer) roam(addr string) error {
	for began := time.Now(); !r.ledger.stopped(); {
		if time.Since(began) > 6*mqtttest.Deadline {
			return fmt.Errorf("only %d of %d messages have come", r.ledger.count(), r.ledger.goal)
		}
		r.options.ReceiveMaximum = uint16(1 + r.random.IntN(40))
		c, err := mqtttest.Open(addr, r.options)
		if err != nil {
			return err
		}
		err = r.visit(c, r.random.IntN(300))
		if closed := c.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// visit takes so many messages, unless no more come for a moment.
func (r *roamer) visit(c *mqtttest.Conn, messages int) error {
	var open []packets.Packet
	for messages > 0 && !r.ledger.stopped() {
		pk, err := c.ReadWithin(20 * time.Millisecond)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			pk, err = packets.Packet{}, nil
			messages -= 50
		}
		if err != nil {
			return fmt.Errorf("%s reads: %w", r.options.ClientID, err)
		}
		switch pk.FixedHeader.Type {
		case packets.Publish:
			messages--
			if pk.FixedHeader.Qos == 2 && !r.begun[pk.PacketID] {
				r.begun[pk.PacketID] = true
				r.ledger.note(string(pk.Payload))
			}
			open = append(open, pk)
		case packets.Pubrel:
			delete(r.begun, pk.PacketID)
			if err := r.answer(c, packets.Pubcomp, pk.PacketID); err != nil {
				return err
			}
		}
		for len(open) > 0 && r.random.IntN(10) > 0 {
			i := r.random.IntN(len(open))
			kind := byte(packets.Puback)
			if open[i].FixedHeader.Qos == 2 {
				kind = packets.Pubrec
			} else {
				r.ledger.note(string(open[i].Payload))
			}
			if err := r.answer(c, kind, open[i].PacketID); err != nil {
				return err
			}
			open = append(open[:i], open[i+1:]...)
		}
	}
	return nil
}

func (r *roamer) answer(c *mqtttest.Conn, kind byte, id uint16) error {
	return c.Write(packets.Packet{FixedHeader: packets.FixedHeader{Type: kind}, PacketID: id})
}

// Ten thousand messages go through five members that come and go, and a broker
// that is restarted: at QoS 2 each is had once, at QoS 1 none is lost.
func TestGroupStorm(t *testing.T) {
	for qos := byte(1); qos <= 2; qos++ {
		t.Run(fmt.Sprint("QoS ", qos), func(t *testing.T) {
			t.Parallel()
			total := 10_000
			if testing.Short() {
				total = 2000
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			b := start(t, setting{})
			ledger := newLedger()
			var roamers []*roamer
			for i := range 5 {
				o := v5(fmt.Sprint("roamer-", i))
				if i == 4 {
					o = v3("roamer-4")
				}
				b.subscribed(o, share, qos)
				roamers = append(roamers, &roamer{
					options: o, ledger: ledger, random: rand.New(rand.NewPCG(seed, uint64(i))), begun: map[uint16]bool{},
				})
			}
			published := make(chan error, 1)
			for round := range 4 {
				ledger.until(total * (round + 1) / 4)
				go func() {
					published <- publishQoS(b.addr, qos, total*round/4+1, total*(round+1)/4)
				}()
				errs := make(chan error, len(roamers))
				for _, r := range roamers {
					go func() { errs <- r.roam(b.addr) }()
				}
				if err := <-published; err != nil {
					t.Fatal(err)
				}
				for range roamers {
					if err := <-errs; err != nil {
						t.Fatal(err)
					}
				}
				b.restart()
			}
			for _, n := range numbers(1, total) {
				if had := ledger.had[n]; had == 0 || qos == 2 && had > 1 {
					t.Errorf("message %s was had %d times", n, had)
				}
			}
			// Each finishes what it has begun, and then there is nothing left.
			ledger.until(total + 1)
			for _, r := range roamers {
				r.random = rand.New(everything{})
				r.options.ReceiveMaximum = 0
				c := b.conn(r.options)
				if err := r.visit(c, 2000); err != nil {
					t.Fatal(err)
				}
				if len(r.begun) > 0 {
					t.Errorf("%s: no PUBREL for %v", r.options.ClientID, r.begun)
				}
			}
			if qos == 2 && len(ledger.had) != total {
				t.Errorf("%d messages, want %d", len(ledger.had), total)
			}
			for n, had := range ledger.had {
				if qos == 2 && had > 1 {
					t.Errorf("message %s was had %d times in the end", n, had)
				}
			}
		})
	}
}

// everything is a source of large numbers: whatever may be done is done.
type everything struct{}

func (everything) Uint64() uint64 { return 1<<63 + 1<<62 }

// publishQoS publishes numbers to the group's topic.
func publishQoS(addr string, qos byte, first, last int) error {
	if qos == 1 {
		return publishNumbers(addr, "publisher", "a", first, last)
	}
	c, err := mqtttest.Open(addr, mqtttest.Options{ClientID: "publisher", Clean: true})
	if err != nil {
		return err
	}
	defer c.Close()
	const window = 100
	for sent, done := first, first; done <= last; {
		if sent <= last && sent-done < window {
			err := c.Write(packets.Packet{
				FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 2},
				TopicName:   "a",
				PacketID:    uint16(sent%60_000 + 1),
				Payload:     fmt.Append(nil, sent),
			})
			if err != nil {
				return err
			}
			sent++
			continue
		}
		pk, err := c.ReadWithin(mqtttest.Deadline)
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		switch pk.FixedHeader.Type {
		case packets.Pubrec:
			pk = packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrel}, PacketID: pk.PacketID}
			if err := c.Write(pk); err != nil {
				return err
			}
		case packets.Pubcomp:
			done++
		}
	}
	return nil
}
