package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"
)

// Shape is how publishers load a broker.
type Shape struct {
	Publishers int `json:"publishers"`
	InFlight   int `json:"in_flight"` // unacknowledged messages of each
}

func (s Shape) String() string { return fmt.Sprintf("%d×%d", s.Publishers, s.InFlight) }

// UnmarshalText reads "8x100".
func (s *Shape) UnmarshalText(text []byte) error {
	n, err := fmt.Sscanf(string(text), "%dx%d", &s.Publishers, &s.InFlight)
	if err != nil || n != 2 || s.Publishers < 1 || s.InFlight < 1 || s.InFlight > 65535 {
		return fmt.Errorf("%q is not a shape such as 8x100, publishers by messages in flight", text)
	}
	return nil
}

// AckOptions say what [Ack] measures: each combination of a shape and a number
// of receivers, against each target.
type AckOptions struct {
	Targets   []Target
	Shapes    []Shape
	Receivers []int
	Fanout    bool          // every message to every receiver, not each to one in turn
	Size      int           // of a payload, in bytes, at least 12
	Duration  time.Duration // of one run
	Count     int           // messages of one run, instead of Duration
	Runs      int           // the result is the median of so many
	Verify    bool          // let the receivers take everything afterwards, and check it
	Patience  time.Duration // how long a receiver waits for what is missing
	Dir       string        // where temporary data directories are made
	Log       *slog.Logger  // progress
}

// AckResult is how fast messages for absent receivers were acknowledged.
type AckResult struct {
	Target    string `json:"target"`
	Shape     Shape  `json:"shape"`
	Receivers int    `json:"receivers"`
	Fanout    bool   `json:"fanout"`
	Size      int    `json:"payload_bytes"`

	Runs     int       `json:"runs"`
	Messages int       `json:"messages"`            // acknowledged, in all runs
	Rate     float64   `json:"messages_per_second"` // median of the runs, as the following
	Ack      Quantiles `json:"ack"`
	// Syncs is how often the disk was synced per message; negative if unknown.
	Syncs    float64 `json:"syncs_per_message"`
	Verified bool    `json:"verified"`
	Faults   Faults  `json:"faults"` // of all runs
}

// ErrFaults means that a broker lost, repeated or misordered messages.
var ErrFaults = errors.New("messages were lost, repeated or misordered")

// Ack measures how fast messages for absent receivers are acknowledged. Every
// run has a broker of its own with an empty data directory, and the targets
// take turns, so that what slows the machine down slows them all. The results
// that there are come with the error.
func Ack(ctx context.Context, o AckOptions) ([]AckResult, error) {
	if err := checkSize(o.Size); err != nil {
		return nil, err
	}
	var results []AckResult
	faulty := false
	for _, receivers := range o.Receivers {
		for _, shape := range o.Shapes {
			runs := make([][]ackRun, len(o.Targets))
			for n := range o.Runs {
				for i, t := range o.Targets {
					o.Log.Info("measuring acknowledgements", "target", t.Name, "shape", shape, "receivers", receivers, "run", n+1, "of", o.Runs)
					run, err := o.run(ctx, t, shape, receivers)
					if err != nil {
						return results, fmt.Errorf("%s, %v, %d receivers: %w", t.Name, shape, receivers, err)
					}
					runs[i] = append(runs[i], run)
				}
			}
			for i, t := range o.Targets {
				r := o.sumUp(t, shape, receivers, runs[i])
				faulty = faulty || t.ours && r.Faults.Any()
				results = append(results, r)
			}
		}
	}
	if faulty {
		return results, ErrFaults
	}
	return results, nil
}

// ackRun is one run.
type ackRun struct {
	messages int
	rate     float64
	ack      Quantiles
	syncs    float64
	faults   Faults
}

func (o AckOptions) run(ctx context.Context, t Target, s Shape, receivers int) (run ackRun, err error) {
	err = withDir(o.Dir, func(dir string) error {
		if t.isDisk {
			run, err = o.runDisk(dir, s)
			return err
		}
		b, err := t.start(ctx, dir)
		if err != nil {
			return err
		}
		run, err = o.runBroker(ctx, b, s, receivers)
		return errors.Join(err, b.stop())
	})
	return run, err
}

func (o AckOptions) runBroker(ctx context.Context, b *broker, s Shape, receivers int) (run ackRun, err error) {
	prefix := newPrefix()
	f, topics := newFleet(b.address, prefix, receivers, o.Fanout)
	if err := f.subscribe(ctx); err != nil {
		return run, fmt.Errorf("make receivers: %w", err)
	}
	defer func() { err = errors.Join(err, f.forget(ctx, b)) }()
	before, counted := uint64(0), false
	if b.counts {
		before, counted = b.counter(ctx, topicCommits)
	}
	l := load{topics: topics, size: o.Size, window: s.InFlight, duration: o.Duration}
	if o.Count > 0 {
		l.duration, l.count = 0, max(o.Count/s.Publishers, 1)
	}
	p, err := publish(ctx, b.address, prefix, s.Publishers, l)
	if err != nil {
		return run, err
	}
	run = ackRun{messages: p.total, rate: float64(p.total) / p.took.Seconds(), ack: quantiles(p.samples), syncs: -1}
	if counted {
		if after, ok := b.counter(ctx, topicCommits); ok {
			run.syncs = float64(after-before) / float64(p.total)
		}
	}
	if o.Verify {
		d, err := f.drain(ctx, perReceiver(p.acked, receivers), o.Patience)
		if err != nil {
			return run, fmt.Errorf("check what was stored: %w", err)
		}
		run.faults = d.faults
	}
	return run, nil
}

// newPrefix begins the names of one measurement: a broker that runs already may
// have seen others.
func newPrefix() string { return "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36) }

// topicCommits is where this broker counts what it has synced.
const topicCommits = "$SYS/broker/inbox/commits"

// newFleet returns receivers and the topics that reach them: one topic each, or
// one for all.
func newFleet(address, prefix string, receivers int, fanout bool) (fleet, []string) {
	f := fleet{address: address, prefix: prefix}
	if fanout {
		topic := prefix + "/all"
		for range receivers {
			f.filters = append(f.filters, []string{topic})
		}
		return f, []string{topic}
	}
	topics := make([]string, receivers)
	for i := range topics {
		topics[i] = fmt.Sprintf("%s/%d", prefix, i)
		f.filters = append(f.filters, topics[i:i+1])
	}
	return f, topics
}

// perReceiver turns what was acknowledged per topic into what each receiver
// must get.
func perReceiver(perTopic [][]uint64, receivers int) [][]uint64 {
	out := make([][]uint64, receivers)
	for i := range out {
		out[i] = perTopic[i%len(perTopic)]
	}
	return out
}

// runDisk appends as many bytes as the messages would have, and syncs as often
// as a store must that has all messages in flight at hand: it is what the disk
// allows.
func (o AckOptions) runDisk(dir string, s Shape) (ackRun, error) {
	file, err := os.Create(dir + "/raw")
	if err != nil {
		return ackRun{}, err
	}
	defer file.Close()
	waiting := s.Publishers * s.InFlight
	var group []byte
	head, filler := publishHead("bench/receiver", o.Size), newFiller(o.Size)
	for i := range waiting {
		group = appendPublish(group, head, uint16(i), 0, uint64(i), filler)
	}
	var samples []time.Duration
	start := time.Now()
	for len(samples) == 0 || o.diskGoesOn(len(samples)*waiting, time.Since(start)) {
		began := time.Now()
		if _, err := file.Write(group); err != nil {
			return ackRun{}, fmt.Errorf("append: %w", err)
		}
		if err := syncData(file); err != nil {
			return ackRun{}, fmt.Errorf("sync: %w", err)
		}
		samples = append(samples, time.Since(began))
	}
	messages := len(samples) * waiting
	return ackRun{
		messages: messages,
		rate:     float64(messages) / time.Since(start).Seconds(),
		ack:      quantiles(samples),
		syncs:    1 / float64(waiting),
	}, nil
}

func (o AckOptions) diskGoesOn(messages int, took time.Duration) bool {
	if o.Count > 0 {
		return messages < o.Count
	}
	return took < o.Duration
}

func (o AckOptions) sumUp(t Target, s Shape, receivers int, runs []ackRun) AckResult {
	r := AckResult{
		Target: t.Name, Shape: s, Receivers: receivers, Fanout: o.Fanout, Size: o.Size,
		Runs: len(runs), Verified: o.Verify && !t.isDisk,
		Rate:  medianOf(runs, func(r ackRun) float64 { return r.rate }),
		Syncs: medianOf(runs, func(r ackRun) float64 { return r.syncs }),
		Ack:   medianQuantiles(runs, func(r ackRun) Quantiles { return r.ack }),
	}
	for _, run := range runs {
		r.Messages += run.messages
		r.Faults.add(run.faults)
	}
	return r
}
