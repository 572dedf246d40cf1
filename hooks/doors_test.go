package hooks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// One receiver comes and goes in every mode, takes by delivery and by pull, and
// acknowledges by both, at random and over restarts: what it has acknowledged never
// comes again, what it has not is counted, and in the end it has had everything.
func TestTwoDoorsAtRandom(t *testing.T) {
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			d := &doors{t: t, random: rand.New(rand.NewPCG(seed, 0)), read: map[string]bool{}} //nolint:gosec // any will do
			d.b = start(t, setting{Options: hooks.Options{Window: 8, PageMessages: 5}})
			d.b.subscribed(v5("phone"), "a/#", 2)
			for range 60 {
				d.step()
			}
			d.end()
		})
	}
}

// doors is the receiver, and what must be true of it.
type doors struct {
	t      *testing.T
	random *rand.Rand
	b      *broker
	phone  *mqtttest.Client // nil while it is away

	published int
	read      map[string]bool  // by payload
	open      []packets.Packet // delivered on this connection and not acknowledged
	last      int              // the last message that was delivered for the first time on this connection
}

func (d *doors) step() {
	d.t.Helper()
	switch n := d.random.IntN(12); {
	case n < 3:
		d.publish(1 + d.random.IntN(8))
	case d.phone == nil:
		d.connect()
	case n < 5:
		d.receive()
		d.acknowledge()
	case n < 7:
		d.pull()
	case n < 8:
		d.readAllOf()
	case n < 10:
		d.receive()
	default:
		d.leave(n == 10)
	}
}

func (d *doors) publish(n int) {
	d.t.Helper()
	first := d.published
	d.published += n
	d.b.fill(n, func(i int) *inbox.Envelope {
		return &inbox.Envelope{
			Topic: fmt.Sprint("a/", d.random.IntN(3)), Payload: []byte(strconv.Itoa(first + i)),
			QoS: byte(1 + d.random.IntN(2)), Client: fmt.Sprint("sender", d.random.IntN(3)),
		}
	})
}

func (d *doors) connect() {
	o := manual(v5("phone"))
	switch d.random.IntN(3) {
	case 0:
		o = saying(o, "inbox-mode", "pull")
	case 1:
		o = saying(o, "inbox-mode", "push")
	}
	if d.random.IntN(4) == 0 {
		d.b.restart()
	}
	d.dial(o)
}

func (d *doors) dial(o mqtttest.Options) {
	d.phone, d.open, d.last = d.b.dial(o), nil, -1
}

// leave takes leave, or breaks the link, once what was acknowledged has been taken.
func (d *doors) leave(goodbye bool) {
	d.phone.Ping()
	if goodbye {
		d.phone.Disconnect()
	} else {
		d.phone.Cut()
	}
	d.b.awaitAway(d.phone.ID)
	d.phone = nil
}

// receive takes what has been delivered.
func (d *doors) receive() {
	d.t.Helper()
	d.phone.Ping()
	d.takeCome()
}

// takeCome takes what has come: after an answer, everything that was sent before it.
func (d *doors) takeCome() {
	d.t.Helper()
	for pk, ok := d.phone.Next(0); ok; pk, ok = d.phone.Next(0) {
		switch pk.FixedHeader.Type {
		case packets.Publish:
			d.delivered(pk)
		case packets.Pubrel: // of an earlier connection, or acknowledged by now
			d.phone.Complete(pk.PacketID)
		default:
			d.t.Fatalf("got %s", mqtttest.Describe(pk))
		}
	}
}

func (d *doors) delivered(pk packets.Packet) {
	d.t.Helper()
	n, err := strconv.Atoi(string(pk.Payload))
	if err != nil {
		d.t.Fatalf("got %s", mqtttest.Describe(pk))
	}
	if d.read[string(pk.Payload)] {
		d.t.Errorf("%d is read and is delivered", n)
	}
	if !pk.FixedHeader.Dup {
		if n <= d.last {
			d.t.Errorf("%d is delivered behind %d", n, d.last)
		}
		d.last = n
	}
	d.open = append(d.open, pk)
}

// acknowledge acknowledges some of what was delivered.
func (d *doors) acknowledge() {
	d.t.Helper()
	kept := d.open[:0]
	for _, pk := range d.open {
		if d.random.IntN(3) == 0 {
			kept = append(kept, pk)
			continue
		}
		d.phone.Ack(pk)
		if pk.FixedHeader.Qos == 2 {
			d.phone.NextOf(packets.Pubrel)
			d.phone.Complete(pk.PacketID)
		}
		d.read[string(pk.Payload)] = true
	}
	d.open = kept
	unread(d.t, d.phone, int64(d.published-len(d.read)))
}

// pull walks over some pages, and acknowledges them by that or by their ids.
func (d *doors) pull() {
	d.t.Helper()
	r := pull.PullRequest{Limit: 1 + d.random.IntN(6)}
	if d.random.IntN(2) == 0 {
		r.Order = pull.NewestFirst
	}
	switch d.random.IntN(3) {
	case 0:
		r.Sender = fmt.Sprint("sender", d.random.IntN(3))
	case 1:
		r.Topic = fmt.Sprint("a/", d.random.IntN(3))
	}
	var before []pull.Message
	for range 1 + d.random.IntN(3) {
		page, ok := d.ask(r)
		if !ok {
			return
		}
		for _, m := range before {
			d.read[m.Payload] = true
		}
		for _, m := range page.Messages {
			if d.read[m.Payload] {
				d.t.Errorf("%s is read and is pulled again by %+v", m.Payload, r)
			}
		}
		if before = page.Messages; len(before) == 0 {
			return
		}
		if r.Order == pull.NewestFirst {
			r.Before = page.Next
		} else {
			r.After = page.Next
		}
	}
	var ids []string
	for _, m := range before {
		if d.random.IntN(2) == 0 {
			ids = append(ids, m.ID)
		}
	}
	var ack pull.AckAnswer
	if len(ids) == 0 || tryAsk(d.t, d.phone, "ack", pull.AckRequest{IDs: ids}, &ack) != nil {
		return
	}
	d.takeCome()
	for _, m := range before {
		if slices.Contains(ids, m.ID) {
			d.read[m.Payload] = true
		}
	}
}

// ask reports false if there were too many requests.
func (d *doors) ask(r pull.PullRequest) (page pull.MessagesAnswer, ok bool) {
	d.t.Helper()
	failed := tryAsk(d.t, d.phone, "pull", r, &page)
	d.takeCome()
	if failed != nil && failed.Code != pull.CodeBusy {
		d.t.Fatalf("pull %+v: %v", r, failed)
	}
	return page, failed == nil
}

// readAllOf acknowledges everything of one sender: what it has been given of that is
// read then.
func (d *doors) readAllOf() {
	d.t.Helper()
	r := pull.PullRequest{Sender: fmt.Sprint("sender", d.random.IntN(3)), Limit: 1000}
	page, ok := d.ask(r)
	var ack pull.AckAnswer
	if !ok || tryAsk(d.t, d.phone, "ack", pull.AckRequest{Sender: r.Sender}, &ack) != nil {
		return
	}
	if ack.Acknowledged != len(page.Messages) {
		d.t.Errorf("%d of %s are acknowledged, %d were unread", ack.Acknowledged, r.Sender, len(page.Messages))
	}
	d.takeCome()
	for _, m := range page.Messages {
		d.read[m.Payload] = true
	}
}

// end has everything that is unread delivered.
func (d *doors) end() {
	d.t.Helper()
	if d.phone != nil {
		d.leave(true)
	}
	d.dial(manual(saying(v5("phone"), "inbox-mode", "push")))
	mqtttest.Eventually(d.t, func() bool {
		d.receive()
		for _, pk := range d.open {
			d.phone.Ack(pk)
			if pk.FixedHeader.Qos == 2 {
				d.phone.NextOf(packets.Pubrel)
				d.phone.Complete(pk.PacketID)
			}
			d.read[string(pk.Payload)] = true
		}
		d.open = nil
		return len(d.read) == d.published
	}, "everything has come")
	unread(d.t, d.phone, 0)
	d.phone.Ping()
	d.phone.Silent(0)
}
