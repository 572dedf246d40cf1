package badger

import (
	"context"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// run has the committer run apply, and returns its result when its group is
// durable. A context that ends ends only the wait: what was queued still happens.
func run[T any](ctx context.Context, s *Store, what string, apply func(*commitGroup) (T, error)) (T, error) {
	return runBy(ctx, what, apply, func(op operation) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.queue.put(ctx, op)
	})
}

// runBy is run with a way to queue.
func runBy[T any](ctx context.Context, what string, apply func(*commitGroup) (T, error), queue func(operation) error) (T, error) {
	type result struct {
		value T
		err   error
	}
	var r result // the committer's, until it is sent
	done := make(chan result, 1)
	err := queue(operation{
		apply: func(g *commitGroup) { r.value, r.err = apply(g) },
		applied: func(err error) {
			if err != nil {
				r.err = err
			}
			done <- r
		},
	})
	var none T
	if err != nil {
		return none, fmt.Errorf("%s: %w", what, err)
	}
	select {
	case r := <-done:
		if r.err != nil {
			return none, fmt.Errorf("%s: %w", what, r.err)
		}
		return r.value, nil
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

// do is run for what has no result.
func (s *Store) do(ctx context.Context, what string, apply func(*commitGroup) error) error {
	_, err := run(ctx, s, what, func(g *commitGroup) (struct{}, error) { return struct{}{}, apply(g) })
	return err
}

// later has the committer run apply and calls done when its group is durable.
// It is queued at once, however full the queue: it is for what a connection does
// once, or once for each message that it was sent.
func (s *Store) later(apply func(*commitGroup) error, done func(error)) {
	var refused error
	queued := s.queue.force(operation{
		apply: func(g *commitGroup) { refused = apply(g) },
		applied: func(err error) {
			if err == nil {
				err = refused
			}
			done(err)
		},
	})
	if !queued {
		<-s.committed // whatever came before has been answered
		done(inbox.ErrClosed)
	}
}
