package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// Run sends what waits and what is added, until ctx ends, conn is over or the outbox is
// closed. What fails is tried again, with growing pauses, and nothing overtakes it. One
// Run at a time: for a connection that does not come back by itself, call it for each
// new one. Errors: the context's, ErrConnectionOver, ErrClosed, ErrRunning, or ErrNewer.
func (b *Outbox) Run(ctx context.Context, conn Publisher) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := b.start(cancel); err != nil {
		return fmt.Errorf("send what waits: %w", err)
	}
	defer b.stop()
	for {
		err := b.sendOldest(ctx, conn)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if err != nil {
			return fmt.Errorf("send what waits: %w", err)
		}
	}
}

func (b *Outbox) start(cancel context.CancelCauseFunc) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return ErrClosed
	}
	if b.cancel != nil {
		return ErrRunning
	}
	b.cancel = cancel
	b.users.Add(1)
	return nil
}

func (b *Outbox) stop() {
	b.mu.Lock()
	b.cancel = nil
	b.mu.Unlock()
	b.users.Done()
}

// sendOldest waits until there is a message, and sends the first until that is done with.
func (b *Outbox) sendOldest(ctx context.Context, conn Publisher) error {
	w, err := b.oldest(ctx, conn)
	if err != nil {
		return err
	}
	var p *paho.Publish
	var receipt Receipt
	err = insist(ctx, conn, b.o.Log, func() error {
		p, err = readWaiting(b.path(w), time.Now())
		if p != nil {
			receipt.Name = p.Properties.User.Get(PropertyName)
		}
		if err != nil {
			return err
		}
		receipt.ID, err = publish(ctx, conn, p)
		return err
	})
	switch {
	case err == nil:
		b.done(w, receipt, nil)
	case errors.Is(err, ErrNewer) || !final(err):
		return err
	case errors.Is(err, ErrDamaged):
		b.lose(w, Lost{Err: err})
	default:
		b.lose(w, Lost{Name: receipt.Name, Message: p, Err: err})
	}
	return nil
}

// oldest waits until there is a message, and returns the first.
func (b *Outbox) oldest(ctx context.Context, conn Publisher) (*waiting, error) {
	for {
		b.mu.Lock()
		if len(b.waiting) > 0 {
			w := b.waiting[0]
			b.mu.Unlock()
			return w, nil
		}
		b.mu.Unlock()
		select {
		case <-b.wake:
		case <-over(conn):
			return nil, ErrConnectionOver
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// readWaiting reads a message as it is to be sent now. Errors that are final: ErrDamaged,
// ErrNewer, and ErrExpired, with the message.
func readWaiting(path string, now time.Time) (*paho.Publish, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the outbox's own file
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: somebody has removed it", ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	p, added, err := decodeWaiting(data)
	if err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	if expiry := p.Properties.MessageExpiry; expiry != nil {
		waited := max(now.Sub(added), 0) // the clock may have been set back
		if waited > time.Duration(*expiry)*time.Second {
			return p, ErrExpired
		}
		left := *expiry - uint32(waited/time.Second)
		p.Properties.MessageExpiry = &left
	}
	return p, nil
}

// lose takes a message out of the outbox that will not be acknowledged.
func (b *Outbox) lose(w *waiting, lost Lost) {
	if errors.Is(lost.Err, ErrDamaged) {
		aside, err := setAside(b.path(w))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.o.Log.Error("damaged message stays where it is", "path", b.path(w), "error", err)
		}
		lost.File = aside
	}
	b.o.Log.Error("message leaves the outbox unsent", "name", lost.Name, "file", lost.File, "error", lost.Err)
	if b.o.Lost != nil {
		b.o.Lost(lost)
	}
	b.done(w, Receipt{Name: lost.Name}, lost.Err)
}

// done removes a message, which is the first, and tells who waits for it. The removal
// is synced with what is added next, or by Close. Should it be lost, the message is sent
// again, under the same name.
func (b *Outbox) done(w *waiting, receipt Receipt, err error) {
	if err := os.Remove(b.path(w)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.o.Log.Error("message that is done with stays in the outbox until the next start", "path", b.path(w), "error", err)
	}
	b.mu.Lock()
	b.waiting[0] = nil
	b.waiting = b.waiting[1:]
	b.mu.Unlock()
	b.forget(w)
	if w.told != nil {
		w.told <- outcome{receipt, err}
	}
}

// Close ends Run and waits for it and for messages that are being added. What waits stays
// in the directory. It must not be called by [OutboxOptions.Lost].
func (b *Outbox) Close() error {
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return nil
	}
	b.ended = true
	if b.cancel != nil {
		b.cancel(ErrClosed)
	}
	b.mu.Unlock()
	close(b.closed)
	b.users.Wait()
	return errors.Join(syncDir(b.dir), b.lock.release())
}
