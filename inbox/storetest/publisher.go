package storetest

import (
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// publisher appends from one goroutine and notes what became of each message.
type publisher struct {
	tr   *trial
	sent int // belongs to the appending goroutine

	mu      sync.Mutex
	results []result // in the order of done
	checked int      // so many of them came in order
	signal  chan struct{}
}

// result is what done got for the n-th message.
type result struct {
	n       int
	receipt inbox.Receipt
	err     error
}

func (tr *trial) publisher() *publisher {
	p := &publisher{tr: tr, signal: make(chan struct{}, 1)}
	tr.publishers = append(tr.publishers, p)
	return p
}

func (p *publisher) append(e *inbox.Envelope) {
	n := p.sent
	p.sent++
	p.tr.store.Append(p.tr.ctx, e, func(r inbox.Receipt, err error) { p.note(result{n, r, err}) })
}

// appendMeanwhile has another goroutine append n messages, so many at once, and closes
// stored when done was called for all of them.
func (p *publisher) appendMeanwhile(n, atOnce int, message func(i int) *inbox.Envelope) (stored <-chan struct{}) {
	all := make(chan struct{})
	go func() {
		defer close(all)
		for i := range n {
			if p.append(message(i)); i%atOnce == atOnce-1 {
				p.wait()
			}
		}
		p.wait()
	}()
	return all
}

// note runs on a goroutine of the engine.
func (p *publisher) note(r result) {
	p.mu.Lock()
	p.results = append(p.results, r)
	p.mu.Unlock()
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// wait returns the results of everything that was appended. For use by the
// appending goroutine, or after it has ended.
func (p *publisher) wait() []result {
	p.tr.Helper()
	for {
		p.mu.Lock()
		results := p.results
		p.mu.Unlock()
		if len(results) >= p.sent {
			p.check()
			return results
		}
		select {
		case <-p.signal:
		case <-p.tr.ctx.Done():
			p.tr.Errorf("done was called for %d of %d messages within %v", len(results), p.sent, patience)
			return results
		}
	}
}

// stored waits, and returns the receipts of messages that all must be stored,
// beginning with message from.
func (p *publisher) stored(from int) []inbox.Receipt {
	p.tr.Helper()
	var receipts []inbox.Receipt
	for _, r := range p.wait()[from:] {
		if r.err != nil {
			p.tr.Errorf("append of message %d: %v", r.n, r.err)
		}
		receipts = append(receipts, r.receipt)
	}
	if p.tr.Failed() {
		p.tr.FailNow()
	}
	return receipts
}

// check fails unless done was called once for each message and in order.
func (p *publisher) check() {
	p.tr.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; p.checked < len(p.results); p.checked++ {
		if n := p.results[p.checked].n; n != p.checked {
			p.tr.Errorf("call %d of done was for message %d", p.checked, n)
			return
		}
	}
	if len(p.results) != p.sent {
		p.tr.Errorf("done was called %d times for %d messages", len(p.results), p.sent)
	}
}
