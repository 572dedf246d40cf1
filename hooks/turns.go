package hooks

import (
	"context"
	"sync"
)

// turns lets one goroutine at a time have each key. A key costs nothing while
// nobody wants it.
type turns struct {
	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	token chan struct{} // holds one: taken by sending
	users int           // have it or wait for it; guarded by turns.mu
}

func newTurns() *turns { return &turns{queues: map[string]*queue{}} }

// take waits until the key is free and takes it.
func (t *turns) take(ctx context.Context, key string) error {
	t.mu.Lock()
	q := t.queues[key]
	if q == nil {
		q = &queue{token: make(chan struct{}, 1)}
		t.queues[key] = q
	}
	q.users++
	t.mu.Unlock()

	select {
	case q.token <- struct{}{}:
		return nil
	case <-ctx.Done():
		t.leave(key, q)
		return ctx.Err()
	}
}

// give frees a key that the caller has taken.
func (t *turns) give(key string) {
	t.mu.Lock()
	q := t.queues[key]
	t.mu.Unlock()
	<-q.token
	t.leave(key, q)
}

func (t *turns) leave(key string, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.users--
	if q.users == 0 {
		delete(t.queues, key)
	}
}
