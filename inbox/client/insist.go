package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// final reports whether trying again would not help.
func final(err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Final()
	}
	return errors.Is(err, paho.ErrInvalidArguments) ||
		errors.Is(err, ErrExpired) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer)
}

// The pauses between two attempts. Each is twice as long as the one before, less up to a
// half of it, so that many clients do not come back at the same moment.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 15 * time.Second
)

// insist calls try until it succeeds or fails for good. It gives up when ctx ends or the
// connection is over, and returns the last error with that.
func insist(ctx context.Context, conn Publisher, log *slog.Logger, try func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := awaitConnection(ctx, conn); err != nil {
			return err
		}
		err := try()
		if err == nil || final(err) {
			return err
		}
		if ctx.Err() == nil {
			log.Warn("message could not be sent, it is tried again", "error", err)
		}
		if err := rest(ctx, conn, jitter(pause), err); err != nil {
			return err
		}
	}
}

// awaitConnection returns when there is a connection, as far as conn can tell.
func awaitConnection(ctx context.Context, conn Publisher) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-over(conn):
		return ErrConnectionOver
	default:
	}
	waits, ok := conn.(interface {
		AwaitConnection(ctx context.Context) error
	})
	if !ok {
		return nil
	}
	if err := waits.AwaitConnection(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", ErrConnectionOver, err)
	}
	return nil
}

// over returns what is closed when the connection will not come back; nil if conn cannot
// tell.
func over(conn Publisher) <-chan struct{} {
	if c, ok := conn.(interface{ Done() <-chan struct{} }); ok {
		return c.Done()
	}
	return nil
}

// rest waits after a failure, and returns it if there is nothing to wait for.
func rest(ctx context.Context, conn Publisher, pause time.Duration, failure error) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-over(conn):
		return fmt.Errorf("%w: %w", ErrConnectionOver, failure)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), failure)
	}
}

// jitter returns a duration between a half and the whole of d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
