package badger

import (
	"context"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// turns lets one caller at a time do something for a receiver.
type turns struct {
	mu   sync.Mutex
	next map[inbox.Receiver]chan struct{} // holds one: the turn. Somebody has it, or waits
	want map[inbox.Receiver]int           // how many that are
}

func newTurns() *turns {
	return &turns{next: map[inbox.Receiver]chan struct{}{}, want: map[inbox.Receiver]int{}}
}

// take waits for the turn of a receiver, and returns how to give it back.
func (t *turns) take(ctx context.Context, r inbox.Receiver) (done func(), err error) {
	t.mu.Lock()
	next := t.next[r]
	if next == nil {
		next = make(chan struct{}, 1)
		next <- struct{}{}
		t.next[r] = next
	}
	t.want[r]++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.want[r]--; t.want[r] == 0 {
			delete(t.want, r)
			delete(t.next, r)
		}
	}
	select {
	case <-next:
		return func() { next <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
