package badger_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

var (
	groupSeed  = flag.Uint64("seed", 0, "of the random history of groups; 0 draws one")
	groupSteps = flag.Int("steps", 300, "how long the random history of groups is")
)

// patience is a context that ends when a test has waited too long.
func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(background, badger.Patience)
}

// company is a store of groups, together with what it should be.
type company struct {
	*testing.T
	random  *rand.Rand
	store   *badger.Store
	options badger.Options
	fellows []*fellow
	ebbs    map[string]bool // filters that are left more often than subscribed to
	count   int             // of messages
	met     map[string]int  // what the history had, so that one sees that it had it

	inFlight sync.WaitGroup // messages appended

	mu      sync.Mutex // guards what follows
	history []string
	old     []*link // that are over, and may hear nothing more
}

// The filters overlap as much as they can.
var (
	groupFilters = []string{"g", "g/+", "g/#", "#", "+/a", "g/a"}
	groupTopics  = []string{"g", "g/a", "g/a", "g/b", "x/a"}
)

// Sessions of a company: those that end with their links, those that are often
// there, and those that are not.
const (
	briefFellows = 6
	closeFellows = 20
	rareFellows  = 10
)

// Whatever sessions do, each gets exactly its sequence, in order, with exactly
// what its subscriptions granted when the message was stored, whether streams
// begin or end, and over whatever restarts and crashes; and in the end nothing is
// left.
func TestGroupRandomly(t *testing.T) {
	seed := *groupSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to repeat: -seed %d -steps %d", seed, *groupSteps)
	c := &company{
		T: t, random: rand.New(rand.NewPCG(seed, 0)), options: badger.Options{Dir: t.TempDir(), StreamFrom: 8},
		ebbs: map[string]bool{}, met: map[string]int{},
	}
	for i := range briefFellows + closeFellows + rareFellows {
		c.fellows = append(c.fellows, &fellow{company: c, name: inbox.Receiver(fmt.Sprint("f", i)), lasting: i >= briefFellows, over: true})
	}
	c.open()
	defer c.finally()
	met := func() bool { return c.met["open stream"] > 0 && c.met["closed stream"] > 0 && c.met["past"] > 0 }
	for n := 0; n < *groupSteps || !met() && n < 10**groupSteps; n++ { // longer, if chance has left something out
		c.step()
	}
	c.settle()
	t.Logf("met: %v", c.met)
	for _, what := range []string{"open stream", "closed stream", "past"} {
		if c.met[what] == 0 {
			t.Errorf("no %s: the test would test nothing", what)
		}
	}
}

func (c *company) open() {
	c.Helper()
	o := c.options
	o.Reserve, o.Retention, o.Log = -1, -1, quiet()
	s, err := badger.OpenSweeping(o, 5*time.Millisecond)
	if err != nil {
		c.Fatal(err)
	}
	c.store = s
}

func (c *company) finally() {
	c.inFlight.Wait()
	if err := c.store.Close(); err != nil {
		c.Error(err)
	}
	if c.Failed() {
		last := c.history[max(len(c.history)-2000, 0):]
		c.Logf("the last %d of %d steps:\n%s", len(last), len(c.history), strings.Join(last, "\n"))
	}
}

func (c *company) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, fmt.Sprintf(format, args...))
}

// ended notes a link that is over.
func (c *company) ended(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.old = append(c.old, l)
}

func (c *company) step() {
	c.look()
	switch n := c.random.IntN(1000); {
	case n < 15:
		c.restart()
	case n < 27:
		c.crash()
	case n < 90:
		f := c.filter()
		c.ebbs[f] = !c.ebbs[f]
	case n < 400:
		c.publish(1 + c.random.IntN(8))
	case n < 430:
		c.quiesce() // of more at once, the fan-out may leave out what is live
		c.publish(20 + c.random.IntN(80))
		c.quiesce()
	default:
		c.act()
	}
}

func (c *company) filter() string { return groupFilters[c.random.IntN(len(groupFilters))] }

// act has a few sessions do something.
func (c *company) act() {
	var some []*fellow
	random := map[*fellow]*rand.Rand{}
	for range 1 + c.random.IntN(10) {
		f := c.fellows[c.random.IntN(len(c.fellows))]
		if c.random.IntN(4) > 0 { // and not one of the rare
			f = c.fellows[c.random.IntN(briefFellows+closeFellows)]
		}
		if random[f] == nil {
			random[f] = rand.New(rand.NewPCG(c.random.Uint64(), 0))
			some = append(some, f)
		}
	}
	c.together(some, func(f *fellow) { f.act(random[f]) })
}

// together has sessions do something at the same time.
func (c *company) together(some []*fellow, do func(*fellow)) {
	var wg sync.WaitGroup
	for _, f := range some {
		wg.Go(func() { do(f) })
	}
	wg.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

func (c *company) publish(n int) {
	for range n {
		c.count++
		e := &inbox.Envelope{
			Time: time.Now().UnixMilli(), Topic: groupTopics[c.random.IntN(len(groupTopics))],
			QoS: byte(c.random.IntN(3)), Retain: c.random.IntN(3) == 0,
			Payload: fmt.Append(nil, "m", c.count), Client: "publisher",
		}
		if c.random.IntN(3) == 0 {
			e.Client = string(c.fellows[c.random.IntN(len(c.fellows))].name)
		}
		c.append(e)
	}
	if c.random.IntN(2) == 0 { // otherwise what comes next may be in the same group
		c.inFlight.Wait()
	}
}

func (c *company) append(e *inbox.Envelope) {
	c.note("publish %s to %q by %s, qos %d, retain %v", e.Payload, e.Topic, e.Client, e.QoS, e.Retain)
	for _, f := range c.fellows {
		f.give(e)
	}
	c.inFlight.Add(1)
	c.store.Append(background, e, func(_ inbox.Receipt, err error) {
		if err != nil {
			c.Errorf("append %s: %v", e.Payload, err)
		}
		c.inFlight.Done()
	})
}

// quiesce waits until everything is stored and has been heard.
func (c *company) quiesce() {
	c.inFlight.Wait()
	c.together(c.fellows, func(f *fellow) {
		if f.link != nil {
			f.hear()
		}
	})
}

// down ends the store, and all links with it.
func (c *company) down() {
	if err := c.store.Close(); err != nil {
		c.Fatal(err)
	}
	for _, f := range c.fellows {
		if f.link != nil {
			c.ended(f.link)
		}
		f.gone()
	}
}

// restart closes the store and opens it with other options.
func (c *company) restart() {
	c.quiesce()
	c.down()
	c.met["restart"]++
	c.options.StreamFrom = []int{-1, 4, 8, 8, 12}[c.random.IntN(5)]
	c.options.Push, c.options.Pull = nil, nil
	switch c.random.IntN(4) {
	case 0:
		c.options.Push = []string{c.filter()}
	case 1:
		c.options.Pull = []string{c.filter(), c.filter()}
	}
	c.note("restart: streams from %d, push %q, pull %q", c.options.StreamFrom, c.options.Push, c.options.Pull)
	c.open()
}

// crash goes on with what was on disk while the store was open.
func (c *company) crash() {
	c.quiesce()
	dir := c.TempDir()
	copyRunning(c.T, c.store, c.options.Dir, dir)
	c.down()
	if err := os.RemoveAll(c.options.Dir); err != nil {
		c.Fatal(err)
	}
	c.met["crash"]++
	c.note("crash")
	c.options.Dir = dir
	c.open()
}

// look notes what the store has, and has those read who are far behind: of more
// changes than the store remembers for each, the model knows nothing.
func (c *company) look() {
	const far = badger.MostSegments / 2
	now := c.store.Groups()
	c.met["open stream"] += now.Open
	c.met["closed stream"] += now.Closed
	var behind []*fellow
	for _, f := range c.fellows {
		n := now.Pasts[f.name]
		c.met["past"] += n
		if n > far {
			behind = append(behind, f)
		}
	}
	if len(behind) == 0 {
		return
	}
	c.met["caught up"] += len(behind)
	c.together(behind, (*fellow).finish)
	c.await(func() bool {
		pasts := c.store.Groups().Pasts
		for _, f := range behind {
			if pasts[f.name] > far {
				return false
			}
		}
		return true
	}, "what is finished is forgotten")
}

func (c *company) await(holds func() bool, what string) {
	c.Helper()
	wait, cancel := patience()
	defer cancel()
	for !holds() {
		if wait.Err() != nil {
			c.Fatalf("not in time: %s", what)
		}
		publish(c.T, c.store, &inbox.Envelope{Topic: "$nobody/reads/this"}) // passes time
	}
}

// settle has everybody read everything, and compares what is left on disk.
func (c *company) settle() {
	c.crash()
	c.restart()
	var all []*fellow
	for _, f := range c.fellows {
		if !f.over {
			all = append(all, f)
		}
	}
	c.together(all, func(f *fellow) {
		f.connect(false)
		f.subscribeTo(inbox.Subscription{Filter: "$last", QoS: 1, RetainHandling: 2})
	})
	// Nothing comes before what was stored last, but what should.
	c.append(&inbox.Envelope{Topic: "$last", QoS: 1, Payload: []byte("last")})
	c.together(all, (*fellow).finish)
	for _, l := range c.old {
		if l.mu.Lock(); len(l.live) > 0 {
			c.Errorf("a link that was over heard %d more, first %s", len(l.live), l.live[0].Envelope.Payload)
		}
		l.mu.Unlock()
	}
	eventually(c.T, c.store, map[string]int{"i": 0, "m": 0, "c": 0, "p": 0})
	c.together(all, func(f *fellow) {
		if err := f.link.Close(background, inbox.Ending{Expiry: inbox.ExpiryAtOnce}); err != nil {
			f.fail("closes: %v", err)
		}
	})
	leave(c.T, connect(c.T, c.store, "gate", inbox.ExpiryNever), inbox.ExpiryAtOnce) // of the crashes
	eventually(c.T, c.store, map[string]int{"S": 0, "u": 0, "k": 0, "i": 0, "m": 0, "c": 0, "p": 0})
}
