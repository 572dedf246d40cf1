package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"
)

// fillShape is how inboxes are filled before a measurement.
var fillShape = Shape{Publishers: 8, InFlight: 100}

// ReplayOptions say what [Replay] measures, against each target.
type ReplayOptions struct {
	Targets   []Target
	Receivers []int         // numbers of receivers that come back at once
	Messages  int           // that wait, for all receivers together
	Sessions  int           // for the start of a broker; 0 leaves that out
	Size      int           // of a payload, in bytes, at least 12
	Patience  time.Duration // how long a receiver waits for what is missing
	Settle    time.Duration // how long messages have waited when memory is read
	Dir       string        // where temporary data directories are made
	Log       *slog.Logger  // progress
}

// ReplayResult is how receivers got what had waited for them.
type ReplayResult struct {
	Target    string `json:"target"`
	Receivers int    `json:"receivers"`
	Messages  int    `json:"messages"` // waiting, in all
	Size      int    `json:"payload_bytes"`

	FillRate float64   `json:"fill_messages_per_second"`
	Waiting  Memory    `json:"memory_waiting"` // of the broker, before anyone came back
	After    Memory    `json:"memory_drained"`
	First    Quantiles `json:"first_message"` // over receivers, from CONNECT on
	Rate     float64   `json:"messages_per_second"`
	Pages    Pages     `json:"pages"`
	Faults   Faults    `json:"faults"`
}

// Pages is how long one receiver waited for each 200 messages.
type Pages struct {
	Quantiles
	Start time.Duration `json:"start_ns"` // median of the first ten
	End   time.Duration `json:"end_ns"`   // median of the last ten
}

func newPages(gaps []time.Duration) Pages {
	n := min(len(gaps), 10)
	p := Pages{Start: median(gaps[:n]), End: median(gaps[len(gaps)-n:])}
	p.Quantiles = quantiles(gaps) // sorts them
	return p
}

// StartResult is how long a broker with full inboxes takes to accept a client.
type StartResult struct {
	Target    string        `json:"target"`
	Sessions  int           `json:"sessions"`
	Messages  int           `json:"messages"`
	Size      int           `json:"payload_bytes"`
	AfterKill time.Duration `json:"after_kill_ns"` // the broker had been killed just after the last message
	AfterStop time.Duration `json:"after_stop_ns"` // it had been told to stop
	Memory    Memory        `json:"memory"`        // after the last start
}

// Replay fills inboxes and measures how receivers that come back empty them,
// and how a broker starts with them.
func Replay(ctx context.Context, o ReplayOptions) ([]ReplayResult, []StartResult, error) {
	if err := checkSize(o.Size); err != nil {
		return nil, nil, err
	}
	var replays []ReplayResult
	var starts []StartResult
	faulty := false
	for _, receivers := range o.Receivers {
		for _, t := range o.Targets {
			if t.isDisk {
				continue // a file has no receivers
			}
			o.Log.Info("measuring replay", "target", t.Name, "receivers", receivers, "messages", o.Messages)
			r, err := o.replay(ctx, t, receivers)
			if err != nil {
				return replays, starts, fmt.Errorf("replay, %s, %d receivers: %w", t.Name, receivers, err)
			}
			faulty = faulty || t.ours && r.Faults.Any()
			replays = append(replays, r)
		}
	}
	for _, t := range o.Targets {
		if o.Sessions == 0 || t.command == nil {
			continue
		}
		o.Log.Info("measuring start", "target", t.Name, "sessions", o.Sessions, "messages", o.Messages)
		r, err := o.start(ctx, t)
		if err != nil {
			return replays, starts, fmt.Errorf("start, %s: %w", t.Name, err)
		}
		starts = append(starts, r)
	}
	if faulty {
		return replays, starts, ErrFaults
	}
	return replays, starts, nil
}

func (o ReplayOptions) replay(ctx context.Context, t Target, receivers int) (r ReplayResult, err error) {
	r = ReplayResult{Target: t.Name, Receivers: receivers, Size: o.Size}
	err = withDir(o.Dir, func(dir string) error {
		b, err := t.start(ctx, dir)
		if err != nil {
			return err
		}
		return errors.Join(o.replayFrom(ctx, b, &r), b.stop())
	})
	return r, err
}

func (o ReplayOptions) replayFrom(ctx context.Context, b *broker, r *ReplayResult) (err error) {
	f, p, err := o.fill(ctx, b, r.Receivers)
	defer func() { err = errors.Join(err, f.forget(ctx, b)) }()
	if err != nil {
		return err
	}
	r.Messages = p.total
	r.FillRate = float64(p.total) / p.took.Seconds()
	if err := wait(ctx, o.Settle); err != nil {
		return err
	}
	if r.Waiting, err = b.memory(ctx); err != nil {
		return err
	}
	d, err := f.drain(ctx, perReceiver(p.acked, r.Receivers), o.Patience)
	if err != nil {
		return err
	}
	r.First, r.Pages, r.Faults = quantiles(d.firsts), newPages(d.gaps), d.faults
	r.Rate = float64(d.total) / d.took.Seconds()
	r.After, err = b.memory(ctx)
	return err
}

// wait returns after d, or with the context.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fill makes sessions and spreads the messages over them.
func (o ReplayOptions) fill(ctx context.Context, b *broker, receivers int) (fleet, published, error) {
	prefix := newPrefix()
	f, topics := newFleet(b.address, prefix, receivers, false)
	if err := f.subscribe(ctx); err != nil {
		return f, published{}, fmt.Errorf("make receivers: %w", err)
	}
	p, err := publish(ctx, b.address, prefix, fillShape.Publishers, load{
		topics: topics,
		size:   o.Size,
		count:  max(o.Messages/fillShape.Publishers, 1),
		window: fillShape.InFlight,
	})
	if err != nil {
		return f, p, fmt.Errorf("fill inboxes: %w", err)
	}
	return f, p, nil
}

func (o ReplayOptions) start(ctx context.Context, t Target) (r StartResult, err error) {
	r = StartResult{Target: t.Name, Sessions: o.Sessions, Size: o.Size}
	err = withDir(o.Dir, func(dir string) error {
		dir = filepath.Join(dir, "data")
		b, err := t.start(ctx, dir)
		if err != nil {
			return err
		}
		_, p, err := o.fill(ctx, b, o.Sessions)
		if err != nil {
			return errors.Join(err, b.stop())
		}
		r.Messages = p.total
		b.kill()
		if b, err = t.start(ctx, dir); err != nil {
			return err
		}
		r.AfterKill = b.ready
		if err := b.stop(); err != nil {
			return err
		}
		if b, err = t.start(ctx, dir); err != nil {
			return err
		}
		r.AfterStop = b.ready
		r.Memory, err = b.memory(ctx)
		return errors.Join(err, b.stop())
	})
	return r, err
}
