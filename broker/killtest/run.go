package killtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// The lengths of one run.
const (
	roundMin      = 100 * time.Millisecond // of the random times at which the broker ends
	roundMax      = 1500 * time.Millisecond
	eventDeadline = 3 * time.Second  // after which the broker ends without the event
	drainDeadline = 60 * time.Second // for the receivers to get what is left, and drainEach more for each kill
	drainEach     = 2 * time.Second
	redial        = 10 * time.Millisecond
)

// Sessions outlive every run, and links are silent for less than this; both in
// seconds.
const (
	sessionExpiry = 24 * 3600
	keepAlive     = 600
)

// Config says what is run against which broker.
type Config struct {
	Seed  uint64 // of everything drawn; times still differ from run to run
	Kills int
	QoS   byte // 1 or 2

	Asks    bool // the broker answers what is asked by $inbox/
	History bool // and keeps everything in history,
	Rewind  bool // and what was acknowledged

	// HTTP is where the broker answers operators, host:port; empty for nowhere.
	HTTP string

	Publishers int           // beside the receiver that publishes too
	Window     int           // messages in flight of each
	Pause      time.Duration // of each publisher between two bursts

	Address string

	// Crash ends the broker at once. Any goroutine calls it, one at a time.
	Crash func()
	// Recover brings it back on the same data and address. The test's goroutine
	// calls it after Crash, and when it returns the broker answers.
	Recover func()
}

// run is one run under way.
type run struct {
	Config
	ledger    *Ledger
	trigger   trigger
	kill      atomic.Int64 // the number of the next one
	loud      atomic.Bool  // it is about to come: until then publishers send less
	clients   sync.WaitGroup
	publish   context.Context // ends with the sending
	habits    context.Context // ends when the receivers are to take what is left
	life      context.Context // ends when everybody must go
	drawn     *rand.Rand      // of the test's goroutine
	witnesses []witness
}

// Run loads the broker at c.Address, ends it c.Kills times, drains every
// receiver and returns the report.
func Run(t testing.TB, c Config) Report {
	t.Helper()
	r := &run{Config: c, ledger: NewLedger(c.QoS, c.Publishers+1), drawn: rand.New(rand.NewPCG(c.Seed, 0))} //nolint:gosec // to repeat it
	t.Logf("seed %d, %d kills, qos %d", c.Seed, c.Kills, c.QoS)

	life, leave := context.WithCancel(context.Background())
	defer r.clients.Wait()
	defer leave()
	habits, drain := context.WithCancel(life)
	publish, quiet := context.WithCancel(life)
	r.life, r.habits, r.publish = life, habits, publish
	defer drain()
	defer quiet()

	r.witnesses = []witness{&wills{run: r}, &retained{run: r}, &expiring{run: r}, &subscriptions{run: r}, &shared{run: r}}
	if c.Asks {
		r.witnesses = append(r.witnesses, &asking{run: r}, &past{run: r})
	}
	if c.HTTP != "" {
		r.witnesses = append(r.witnesses, &erased{run: r})
	}
	if c.History {
		r.witnesses = append(r.witnesses, &archive{run: r})
	}
	r.startReceivers(t)
	var publishers sync.WaitGroup
	defer publishers.Wait()
	defer leave()
	for i := range c.Publishers {
		publishers.Go(newPublisher(r, i).live)
	}
	for round := range c.Kills {
		r.killOnce(t, round)
	}
	pause(life, roundMax) // without an end, so that links last and receivers return

	r.ledger.Close()
	quiet()
	r.await(t, publishers.Wait, "the publishers are acknowledged")
	for _, w := range r.witnesses {
		w.finally(t)
	}
	mqtttest.Eventually(t, func() bool { return r.ledger.Settled(c.Publishers) }, "the echo is acknowledged")
	drain()
	r.await(t, r.clients.Wait, "the receivers have taken what is left")
	return r.ledger.Report()
}

// startReceivers starts the receivers that are there from the start, and
// returns when all have subscribed.
func (r *run) startReceivers(t testing.TB) {
	t.Helper()
	var all []*receiver
	for _, h := range residents(r.Publishers) {
		x := newReceiver(r, h)
		all = append(all, x)
		r.clients.Go(x.live)
	}
	for _, x := range all {
		select {
		case <-x.subscribed:
		case <-time.After(mqtttest.Deadline):
			t.Fatalf("%s could not subscribe", x.id)
		}
	}
}

// quieter is how much longer publishers pause while witnesses are at work. On a machine
// that has much else to do these take long, and what is sent meanwhile must be received by
// everybody in the end.
const quieter = 4

// breath is how long a publisher pauses now.
func (r *run) breath() time.Duration {
	if r.loud.Load() {
		return r.Pause
	}
	return r.Pause * quieter
}

// killOnce waits for the moment of this round, with one receiver more, ends the
// broker and brings it back.
func (r *run) killOnce(t testing.TB, round int) {
	t.Helper()
	for _, w := range r.witnesses {
		w.before(t, round)
	}
	kind, n := choose(r.drawn, r.QoS, r.Asks)
	wait := eventDeadline
	if kind == random {
		wait = roundMin + time.Duration(r.drawn.Int64N(int64(roundMax-roundMin)))
	}
	r.loud.Store(true)
	fired := r.trigger.arm(kind, n, func() {
		r.kill.Add(1)
		r.Crash()
		r.ledger.Killed(time.Now())
	})
	r.clients.Go(newReceiver(r, latecomer(round)).live)
	select {
	case <-fired:
		t.Logf("kill %d: %s, %d times", round+1, kind, n)
	case <-time.After(wait):
		t.Logf("kill %d: after %s", round+1, wait)
		r.trigger.now()
	}
	r.loud.Store(false)
	r.Recover()
	for _, w := range r.witnesses {
		w.after(t, round)
	}
}

// await waits for a group of clients, and fails the test with the report if
// they do not come to an end.
func (r *run) await(t testing.TB, wait func(), what string) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(r.drainDeadline() + mqtttest.Deadline):
		report := r.ledger.Report()
		t.Fatalf("not in time: %s; %s\n%s", what, report, strings.Join(report.Named, "\n"))
	}
}

// drainDeadline is how long receivers may take to get what is left.
func (r *run) drainDeadline() time.Duration {
	return drainDeadline + time.Duration(r.Kills)*drainEach
}

// errTold says that the broker has ended a link with DISCONNECT.
var errTold = errors.New("the broker says goodbye")

// unasked deals with a packet that a client does not expect. A DISCONNECT of a
// broker that stops is right, and one of a broker that ends with its disk;
// everything else is not.
func (r *run) unasked(client string, c *conn, pk packets.Packet) error {
	if pk.FixedHeader.Type == packets.Disconnect && (pk.ReasonCode == packets.ErrServerShuttingDown.Code || c.kill < r.kill.Load()) {
		return errTold
	}
	r.ledger.Violate("%s: got %s", client, mqtttest.Describe(pk))
	return nil
}

// pause waits, unless the context ends before.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// conn is a link to the broker as it was before or after one kill.
type conn struct {
	*mqtttest.Conn
	kill int64
}

// open connects again and again until the broker answers or the run is over.
func (r *run) open(o mqtttest.Options) (*conn, bool) {
	for r.life.Err() == nil {
		kill := r.kill.Load()
		c, err := mqtttest.Open(r.Address, o)
		if err == nil {
			return &conn{c, kill}, true
		}
		pause(r.life, redial)
	}
	return nil, false
}
