package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// GroupLiveResult is what publishing to a group of connected members took.
type GroupLiveResult struct {
	Target  string `json:"target"`
	Way     Way    `json:"way"`
	Members int    `json:"members"`
	Size    int    `json:"payload_bytes"`
	Shape   Shape  `json:"shape"`

	Runs       int       `json:"runs"`
	Deliveries int       `json:"deliveries"`            // of one run; median of the runs, as the following
	Rate       float64   `json:"deliveries_per_second"` // until everyone had everything
	Ack        Quantiles `json:"ack"`                   // of the publishers, meanwhile
	// CPU is what the broker's process took for each delivery; negative if unknown.
	CPU    time.Duration `json:"broker_cpu_per_delivery_ns"`
	Faults Faults        `json:"faults"` // of all runs
}

type liveRun struct {
	deliveries int
	rate       float64
	ack        Quantiles
	cpu        time.Duration
	faults     Faults
}

func (o GroupOptions) lives(ctx context.Context, variants []variant, results *GroupResults) (faulty bool, err error) {
	if o.Live == 0 {
		return false, nil
	}
	for _, size := range o.Sizes {
		for _, shape := range o.Shapes {
			runs := make([][]liveRun, len(variants))
			for n := range o.Runs {
				for i, v := range variants {
					o.Log.Info("measuring a group that is there", "target", v.Name, "way", v.way, "members", o.Live, "size", size, "shape", shape, "run", n+1, "of", o.Runs)
					run, err := o.liveRun(ctx, v, size, shape)
					if err != nil {
						return faulty, fmt.Errorf("a group that is there, %v: %w", v, err)
					}
					runs[i] = append(runs[i], run)
				}
			}
			for i, v := range variants {
				r := o.sumUpLive(v, size, shape, runs[i])
				faulty = faulty || v.ours && r.Faults.Any()
				results.Lives = append(results.Lives, r)
			}
		}
	}
	return faulty, nil
}

func (o GroupOptions) liveRun(ctx context.Context, v variant, size int, shape Shape) (run liveRun, err error) {
	err = o.onBroker(ctx, v, func(b *broker, _ string) (err error) {
		f, topics := v.newMembers(b.address, o.Live)
		defer func() { err = errors.Join(err, f.forget(ctx, b)) }()
		each := max(o.LiveCount/shape.Publishers, 1) // of each publisher to each topic
		due := make([]uint64, shape.Publishers)
		for i := range due {
			due[i] = uint64(each)
		}
		var p published
		var before time.Duration
		known := false
		d, err := f.stay(ctx, due, o.Patience, func() (err error) {
			before, known = b.cpu()
			p, err = publish(ctx, b.address, f.prefix, shape.Publishers, load{topics: topics, size: size, count: each * len(topics), window: shape.InFlight})
			return err
		})
		if err != nil {
			return err
		}
		run = liveRun{deliveries: d.total, rate: float64(d.total) / d.took.Seconds(), ack: quantiles(p.samples), cpu: -1, faults: d.faults}
		if after, ok := b.cpu(); ok && known && d.total > 0 {
			run.cpu = (after - before) / time.Duration(d.total)
		}
		return nil
	})
	return run, err
}

// stay has all receivers connect and subscribe, calls publish when they are there,
// and has them take what is due: to each, so much of each publisher.
func (f fleet) stay(ctx context.Context, due []uint64, patience time.Duration, publish func() error) (drained, error) {
	receivers := make([]*receiver, len(f.filters))
	progress := new(atomic.Int64)
	var ready sync.WaitGroup
	ready.Add(len(receivers))
	begin, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- inParallel(len(receivers), len(receivers), func(i int) error {
			receivers[i] = &receiver{checker: newChecker(), acked: due, patience: patience, progress: progress}
			c, err := f.join(ctx, i)
			ready.Done()
			if err != nil {
				return err
			}
			defer c.leave()
			<-begin
			c.idle = patience
			receivers[i].last = time.Now()
			err = receivers[i].takeAll(ctx, c, receivers[i].last)
			if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
				return nil // what has not come is counted as lost
			}
			return err
		})
	}()
	ready.Wait()
	close(begin)
	start := time.Now()
	if err := errors.Join(publish(), <-done); err != nil {
		return drained{}, err
	}
	var d drained
	for _, r := range receivers {
		d.total += r.total
		d.took = max(d.took, r.last.Sub(start))
		d.faults.add(r.result(due))
	}
	return d, nil
}

// join connects a receiver and subscribes.
func (f fleet) join(ctx context.Context, i int) (*conn, error) {
	c, err := f.dial(ctx, i, false)
	if err != nil {
		return nil, err
	}
	for _, filter := range f.filters[i] {
		if err := c.subscribe(filter, 1); err != nil {
			c.leave()
			return nil, err
		}
	}
	return c, nil
}

// cpu returns the time that the broker's process has computed, to 10 ms, if that
// is known.
func (b *broker) cpu() (time.Duration, bool) {
	if b.cmd == nil {
		return 0, false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(b.cmd.Process.Pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// What follows the name, which may hold anything: state, and 11 numbers before
	// the ticks in user mode and those in the kernel.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0, false
	}
	const tick = 10 * time.Millisecond // on every Linux
	var sum time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, false
		}
		sum += time.Duration(n) * tick
	}
	return sum, true
}

func (o GroupOptions) sumUpLive(v variant, size int, shape Shape, runs []liveRun) GroupLiveResult {
	r := GroupLiveResult{
		Target: v.Name, Way: v.way, Members: o.Live, Size: size, Shape: shape, Runs: len(runs),
		Deliveries: medianOf(runs, func(r liveRun) int { return r.deliveries }),
		Rate:       medianOf(runs, func(r liveRun) float64 { return r.rate }),
		CPU:        medianOf(runs, func(r liveRun) time.Duration { return r.cpu }),
		Ack:        medianQuantiles(runs, func(r liveRun) Quantiles { return r.ack }),
	}
	for _, run := range runs {
		r.Faults.add(run.faults)
	}
	return r
}
