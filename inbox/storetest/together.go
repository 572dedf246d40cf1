package storetest

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Gathering is an engine that makes one commit of many operations, and can be told which:
// what it does in the background it does only when it is told.
type Gathering interface {
	inbox.Store

	// Hold has held closed when everything is committed and answered that is queued by
	// now. What is queued later is one commit, which waits for release.
	Hold() (held <-chan struct{}, release func())

	Queued() int // operations that are queued
	Tidy()       // does what is to be done in the background
}

// RunTogether tests an engine with operations that share a commit, in any order: those of
// several receivers, of one and those who take its inbox from it, and steps of
// operations that take more than one commit. Open is that of [RunKept].
func RunTogether(t *testing.T, open func(t *testing.T, dir string, k Keeping) Gathering) {
	for _, c := range []struct {
		name    string
		keeping Keeping
	}{
		{"unread", unreadOnly}, {"history", everything}, {"kept", both},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := start(t, func(t *testing.T, dir string) inbox.Store { return open(t, dir, c.keeping) })
			tr.keeping = c.keeping
			randomTogether(tr)
		})
	}
}

// gathering queues operations that are to share commits.
type gathering struct {
	*library
	engine   Gathering
	release  func()
	running  atomic.Int32 // operations that are under way
	queued   int          // others, that are queued for the next commit
	trailing int          // others, that will be queued for the one after

	all      []*guest
	names    map[string]*told // by publisher and name
	untold   []*told          // whose ids are not known yet
	wills    int
	next     []func()     // of those that are under way, when their next steps are queued
	ends     []func()     // compare what was answered, in the order of queueing
	stale    []*client    // who are no owners any more
	numbered []*told      // what was published by the test's own goroutine, likewise
	tidying  *atomic.Bool // the latest is over; nil before the first
	erasing  string       // sender who is being erased
}

func randomTogether(tr *trial) {
	g := &gathering{library: &library{trial: tr, random: newRandom(tr)}, names: map[string]*told{}}
	for _, r := range []inbox.Receiver{"ann's phone", "bob's phone", "eve's web"} {
		g.add(r, lasting)
	}
	for _, r := range []inbox.Receiver{"a page", "another page"} {
		g.add(r, inbox.ExpiryAtOnce)
	}
	g.resume()
	defer func() {
		if g.release != nil {
			g.release()
		}
		if tr.Failed() {
			last := g.steps[max(len(g.steps)-150, 0):]
			tr.Logf("the last %d of %d steps:\n%s", len(last), len(g.steps), strings.Join(last, "\n"))
		}
	}()
	runs := size(25, 10)
	begin, n := time.Now(), 0
	for ; n < runs && time.Since(begin) < time.Second/2; n++ { // a slow machine does less
		g.together()
		for range g.random.IntN(6) {
			g.alone(g.all[g.random.IntN(3)]) // whose sessions last: what others have is nowhere once it is read
		}
	}
	g.Logf("%d runs of %d", n, runs)
	g.restart()
	for _, m := range g.models {
		g.check(m)
	}
	g.checkHistory()
}

func (g *gathering) add(r inbox.Receiver, expiry inbox.Expiry) {
	m := &readerModel{receiver: r}
	g.models = append(g.models, m)
	g.all = append(g.all, &guest{readerModel: m, expiry: expiry, recorded: map[uint16]bool{}})
}

// resume has everybody connected, with a subscription at least; and those whose session
// lasts have no will.
func (g *gathering) resume() {
	g.engine = g.store.(Gathering)
	for _, m := range g.all {
		if m.client == nil || m.will != nil && m.lasts() {
			g.note("%s comes, and has no will", m.receiver)
			c := g.connect(m.receiver, m.expiry)
			if m.mode = c.Mode(); c.resumed != m.exists {
				g.Fatalf("%s has come, resumed %v", m.receiver, c.resumed)
			}
			m.arrive(c)
			m.exists, m.will = true, nil
		}
		if len(m.subs) == 0 {
			g.subscribe(m.readerModel)
		}
	}
}

func (g *gathering) restart() {
	g.resume() // leaves no wills of sessions that last
	for _, m := range g.all {
		if !m.lasts() {
			m.client.leave(inbox.Ending{Goodbye: true})
			m.leave()
			m.end()
			m.will = nil
		}
	}
	g.library.restart()
	g.resume()
}

// alone does one thing that shares no commit.
func (g *gathering) alone(m *guest) {
	switch chance := g.random.IntN(100); {
	case chance < 40:
		g.read(m.readerModel)
	case chance < 55:
		g.finish(m.readerModel)
	case chance < 65:
		g.save(m.readerModel)
	case chance < 75:
		g.walk(m.readerModel)
	case chance < 85:
		g.acknowledge(m.readerModel)
	case chance < 90:
		g.subscribe(m.readerModel)
	case chance < 97:
		g.checkHistory()
	default:
		g.restart()
	}
}

// together queues operations for some commits, and compares what has come of them.
func (g *gathering) together() {
	g.note("together")
	for _, m := range g.models {
		g.learn(m)
	}
	from := g.main.sent
	g.hold()
	for rounds := 1 + g.random.IntN(4); rounds > 0 || g.running.Load() > 0; rounds-- {
		for n := g.random.IntN(12); rounds > 0 && n > 0; n-- {
			g.queue()
		}
		g.note("commit")
		g.hold()
	}
	g.release()
	g.release = nil
	for i, r := range g.main.stored(from) {
		t := g.numbered[i]
		again := t.id != inbox.MessageID{}
		if t.id = r.ID; r.Duplicate != again || again && r.ID != t.envelope.ID {
			g.Fatalf("%s is stored, %+v, want a repeat: %v", t.envelope.Payload, r, again)
		}
		t.envelope.ID = r.ID
	}
	for _, end := range g.ends {
		end()
	}
	g.identify()
	g.ends, g.stale, g.numbered, g.erasing = nil, nil, nil, ""
	for _, m := range g.all {
		m.opening, m.asking, m.startsAgain = 0, false, false
	}
	g.resume()
	for _, m := range g.models {
		g.check(m)
	}
}

// hold has everything committed that is queued, and keeps what comes.
func (g *gathering) hold() {
	held, release := g.engine.Hold()
	if g.release != nil {
		g.release()
	}
	<-held
	g.release, g.queued, g.trailing = release, g.trailing, 0
	g.settle()
	for _, m := range g.all {
		m.undo = nil
	}
	for _, next := range g.next {
		next()
	}
	g.next = nil
}

// settle waits until every operation that is under way is queued, for its next step if it
// takes several.
func (g *gathering) settle() {
	for g.engine.Queued() != g.queued+int(g.running.Load()) {
		if g.ctx.Err() != nil {
			g.Fatalf("%d operations are queued, want %d and %d that are under way", g.engine.Queued(), g.queued, g.running.Load())
		}
		runtime.Gosched()
	}
}

// begin begins an operation, and returns when it is queued. What it returns is given to end
// in the end, in the order of queueing.
func (g *gathering) begin(do func() error, end func(error)) {
	result := make(chan error, 1)
	g.running.Add(1)
	go func() {
		result <- do()
		g.running.Add(-1)
	}()
	g.settle()
	g.ends = append(g.ends, func() { end(<-result) })
}

// identify finds out the ids of messages that nobody was told: those of wills.
func (g *gathering) identify() {
	if len(g.untold) == 0 {
		return
	}
	byPayload := map[string]inbox.Entry{}
	for _, e := range g.trial.walk(g.history, inbox.Query{}) {
		byPayload[string(e.Envelope.Payload)] = e
	}
	for _, t := range g.untold {
		e, ok := byPayload[string(t.envelope.Payload)]
		if !ok {
			g.Fatalf("will %s was not published", t.envelope.Payload)
		}
		t.id, t.envelope.ID, t.envelope.Time = e.Envelope.ID, e.Envelope.ID, e.Envelope.Time
	}
	g.untold = nil
}
