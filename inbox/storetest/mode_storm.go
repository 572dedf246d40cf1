package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// storming is a receiver that comes and goes in both modes, and is taken over, while others
// publish. It finishes some of what it gets, acknowledges some by asking, and some of what
// it never gets.
type storming struct {
	*client
	random *rand.Rand

	mu   sync.Mutex
	step int            // of finishing
	done map[string]int // what is finished, durably, and in which step
	open []inbox.Entry  // on its way
}

// modeChangesWhileOthersPublish: what is finished never comes again, and the rest is unread.
func modeChangesWhileOthersPublish(tr *trial) {
	tr.reader("c")
	all := numbers("m", size(1200, 400))
	other := tr.publisher()
	stored := other.appendMeanwhile(len(all), 3, func(i int) *inbox.Envelope { return message("a", 1, all[i]) })
	s := &storming{random: newRandom(tr), done: map[string]int{}}
	for range size(60, 20) {
		s.visit(tr)
	}
	<-stored
	other.stored(0)
	var want []string
	for _, payload := range all {
		if _, done := s.done[payload]; !done {
			want = append(want, payload)
		}
	}
	tr.unread("c", want...)
	tr.restart()
	tr.unread("c", want...)
}

// visit is one connection.
func (s *storming) visit(tr *trial) {
	tr.Helper()
	o := inbox.OpenOptions{Expiry: lasting, Mode: []inbox.Mode{inbox.ModePush, inbox.ModePull}[s.random.IntN(2)]}
	if s.random.IntN(6) == 0 {
		o.From = &inbox.Bound{}
	}
	s.client = tr.connectWith("c", o)
	s.open = s.read(open(s.client)...)
	ctx, leave := context.WithCancel(tr.ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for s.get(ctx) {
		}
	})
	for range s.random.IntN(5) {
		s.finishSome()
		if s.random.IntN(4) == 0 {
			s.acknowledgeSome()
		}
	}
	leave()
	reading.Wait()
	if s.random.IntN(3) > 0 {
		s.close(lasting)
	} // else it is taken over
}

// get reads a page, and reports whether there may be more. Runs beside the rest.
func (s *storming) get(ctx context.Context) bool {
	s.mu.Lock()
	before := s.step
	s.mu.Unlock()
	page, err := s.nextBy(ctx, 5, 1<<20)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			s.tr.Errorf("next: %v", err)
		}
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range page {
		if step, done := s.done[string(e.Envelope.Payload)]; done && step <= before {
			s.tr.Errorf("%s comes again", e.Envelope.Payload)
		}
	}
	s.open = append(s.open, page...)
	return true
}

// some returns some of what is on its way, or what there was for so long.
func (s *storming) some() (some []inbox.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	everything := s.random.IntN(3) == 0
	rest := s.open[:0:0]
	for _, e := range s.open {
		if everything || s.random.IntN(2) == 0 {
			some = append(some, e)
		} else {
			rest = append(rest, e)
		}
	}
	s.open = rest
	return some
}

// finishSome finishes some of what is on its way, and stores that.
func (s *storming) finishSome() {
	s.tr.Helper()
	some := s.some()
	s.finish(some...)
	s.save()
	s.note(some)
}

// acknowledgeSome acknowledges some of what is unread, on its way or not.
func (s *storming) acknowledgeSome() {
	s.tr.Helper()
	page := s.tr.page(s.tr.inboxOf("c"), inbox.Query{Max: 3, NewestFirst: s.random.IntN(2) == 0})
	if len(page.Entries) > 0 {
		s.tr.acknowledge("c", byIDs(page.Entries...))
		s.note(page.Entries)
	}
}

func (s *storming) note(finished []inbox.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step++
	for _, e := range finished {
		s.done[string(e.Envelope.Payload)] = s.step
	}
}
