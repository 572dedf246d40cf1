package hooks_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// pumps is a store that tells how far the delivery to a receiver is.
type pumps struct {
	inbox.Store
	r inbox.Receiver

	mu   sync.Mutex    // guards what follows
	open int           // deliveries, as often as the pump comes for more
	idle bool          // it waits for more
	held chan struct{} // Read waits until it is closed; nil if it does not wait
	fail error         // what Read returns; nil if it reads
}

func (p *pumps) wrap(s inbox.Store) inbox.Store {
	p.Store = s
	return p
}

func (p *pumps) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	in, resumed, err := p.Store.Open(ctx, r, o)
	if err != nil || r != p.r {
		return in, resumed, err
	}
	return &pumped{in, p, o.State}, resumed, err
}

type pumped struct {
	inbox.Inbox
	pumps *pumps
	state func() inbox.State
}

func (in *pumped) Next(ctx context.Context, max, maxBytes int) ([]inbox.Entry, error) {
	in.pumps.set(len(in.state().Open), true)
	defer in.pumps.set(0, false)
	return in.Inbox.Next(ctx, max, maxBytes)
}

func (in *pumped) Read(ctx context.Context, at []inbox.Position) ([]inbox.Entry, error) {
	in.pumps.mu.Lock()
	held, err := in.pumps.held, in.pumps.fail
	in.pumps.mu.Unlock()
	if held != nil {
		<-held
	}
	if err != nil {
		return nil, err
	}
	return in.Inbox.Read(ctx, at)
}

// holdReads keeps Read waiting until release is called.
func (p *pumps) holdReads() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(chan struct{})
	p.held = held
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held = nil
		close(held)
	}
}

// failReads has Read return an error, or read again with nil.
func (p *pumps) failReads(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

func (p *pumps) set(open int, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.idle = open, idle
}

// await waits until so many deliveries are open, and all of them in the outbound buffer.
func (p *pumps) await(t testing.TB, open int) {
	t.Helper()
	mqtttest.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.idle && p.open == open
	}, fmt.Sprintf("%d deliveries are on their way", open))
}
