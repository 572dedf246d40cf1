package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// GroupPublishResult is what publishing to a group of absent members took.
type GroupPublishResult struct {
	Target  string `json:"target"`
	Way     Way    `json:"way"`
	Members int    `json:"members"`
	Size    int    `json:"payload_bytes"`
	Shape   Shape  `json:"shape"`

	// Messages to the group of one run. A copy for one member is a part of one:
	// below 1 the time was over before the first had gone to all.
	Messages   float64       `json:"messages"` // median of the runs, as the following
	Rate       float64       `json:"messages_per_second"`
	PerMessage time.Duration `json:"time_per_message_ns"`
	Ack        Quantiles     `json:"ack"` // of the packets that were sent: of copies, each
	// Disk is by how much the broker's files grew for each message; negative if unknown.
	Disk     float64 `json:"disk_bytes_per_message"`
	Runs     int     `json:"runs"`
	Verified bool    `json:"verified"`
	Faults   Faults  `json:"faults"` // of all runs, at the members that were asked; all sizes and shapes together
}

// groupLoad is one row of the publishing part.
type groupLoad struct {
	size  int
	shape Shape
}

// groupRun is one run of it.
type groupRun struct {
	messages float64
	rate     float64
	ack      Quantiles
	disk     float64
	faults   Faults
}

// publishes measures publishing: one broker for each run, variant and number of
// members, for making the members takes longest.
func (o GroupOptions) publishes(ctx context.Context, variants []variant, results *GroupResults) (faulty bool, err error) {
	var loads []groupLoad
	for _, size := range o.Sizes {
		for _, shape := range o.Shapes {
			loads = append(loads, groupLoad{size, shape})
		}
	}
	for _, members := range o.Members {
		runs := make([][][]groupRun, len(variants)) // per variant and load
		for i := range runs {
			runs[i] = make([][]groupRun, len(loads))
		}
		for n := range o.Runs {
			for i, v := range variants {
				o.Log.Info("measuring publishing to a group", "target", v.Name, "way", v.way, "members", members, "run", n+1, "of", o.Runs)
				row, err := o.publishRun(ctx, v, members, loads)
				if err != nil {
					return faulty, fmt.Errorf("publish to a group, %v, %d members: %w", v, members, err)
				}
				for j, run := range row {
					runs[i][j] = append(runs[i][j], run)
				}
			}
		}
		for j, l := range loads {
			for i, v := range variants {
				r := o.sumUpPublish(v, members, l, runs[i][j])
				faulty = faulty || v.ours && r.Faults.Any()
				results.Publishes = append(results.Publishes, r)
			}
		}
	}
	return faulty, nil
}

// publishRun measures the loads one after the other on one broker, and returns a
// run of each.
func (o GroupOptions) publishRun(ctx context.Context, v variant, members int, loads []groupLoad) (runs []groupRun, err error) {
	err = o.onBroker(ctx, v, func(b *broker, dir string) (err error) {
		f, topics, err := v.newPadded(ctx, b.address, members)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.forget(ctx, b)) }()
		asked := firstMiddleLast(members)
		var due [][]uint64
		runs, due, err = o.publishLoads(ctx, f, b, dir, topics, loads, asked)
		if err != nil || !o.Verify {
			return err
		}
		d, err := f.drainSome(ctx, asked, due, o.Patience)
		if err != nil {
			return fmt.Errorf("check what was stored: %w", err)
		}
		for i := range runs {
			runs[i].faults = d.faults
		}
		return nil
	})
	return runs, err
}

// publishLoads also returns how much the members that will be asked must have:
// per member, per publisher.
func (o GroupOptions) publishLoads(ctx context.Context, f fleet, b *broker, dir string, topics []string, loads []groupLoad, asked []int) (runs []groupRun, due [][]uint64, err error) {
	before, isKnown, err := b.settle(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	due = make([][]uint64, len(asked))
	publishers := 0
	for _, l := range loads {
		run, p, err := o.publishLoad(ctx, f, topics, l, publishers)
		if err != nil {
			return nil, nil, fmt.Errorf("%d bytes, %v: %w", l.size, l.shape, err)
		}
		after, _, err := b.settle(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		if isKnown {
			run.disk = max(float64(after-before), 0) / run.messages
		}
		before = after
		runs = append(runs, run)
		publishers += l.shape.Publishers
		for i, member := range asked {
			due[i] = append(due[i], p.acked[member%len(topics)]...)
		}
	}
	return runs, due, nil
}

// newPadded makes members, and sees to it that what this leaves to clean up is not
// taken from the growth that is measured.
func (v variant) newPadded(ctx context.Context, address string, members int) (fleet, []string, error) {
	f, topics := v.newMembers(address, members)
	padding := f.prefix + "/padding"
	f.filters = append(f.filters, []string{padding})
	if err := f.subscribe(ctx); err != nil {
		return f, topics, fmt.Errorf("make members: %w", err)
	}
	if members < manyMembers {
		return f, topics, nil
	}
	return f, topics, pad(ctx, f, padding)
}

// manyMembers is from how many on making them leaves enough to clean up (about 80
// bytes each) to be seen.
const manyMembers = 1000

// pad publishes 32 MiB to a receiver that is not asked: more than a store holds
// back before it cleans up.
func pad(ctx context.Context, f fleet, topic string) error {
	const size, count = 4096, 8192
	_, err := publish(ctx, f.address, f.prefix, fillShape.Publishers, load{
		topics: []string{topic},
		size:   size,
		count:  count / fillShape.Publishers,
		window: fillShape.InFlight,
	})
	if err != nil {
		return fmt.Errorf("publish padding: %w", err)
	}
	return nil
}

// publishLoad measures one load; first is the number of its first publisher.
func (o GroupOptions) publishLoad(ctx context.Context, f fleet, topics []string, l groupLoad, first int) (groupRun, published, error) {
	pl := load{topics: topics, size: l.size, window: l.shape.InFlight, duration: o.Duration, first: first}
	if o.Count > 0 {
		pl.duration, pl.count = 0, max(o.Count/l.shape.Publishers, 1)*len(topics)
	}
	p, err := publish(ctx, f.address, f.prefix, l.shape.Publishers, pl)
	if err != nil {
		return groupRun{}, p, err
	}
	messages := float64(p.total) / float64(len(topics))
	return groupRun{messages: messages, rate: messages / p.took.Seconds(), ack: quantiles(p.samples), disk: -1}, p, nil
}

// firstMiddleLast returns the members that are asked what they have.
func firstMiddleLast(members int) []int { return slices.Compact([]int{0, members / 2, members - 1}) }

func (o GroupOptions) sumUpPublish(v variant, members int, l groupLoad, runs []groupRun) GroupPublishResult {
	r := GroupPublishResult{
		Target: v.Name, Way: v.way, Members: members, Size: l.size, Shape: l.shape,
		Runs: len(runs), Verified: o.Verify,
		Messages: medianOf(runs, func(r groupRun) float64 { return r.messages }),
		Rate:     medianOf(runs, func(r groupRun) float64 { return r.rate }),
		Disk:     medianOf(runs, func(r groupRun) float64 { return r.disk }),
		Ack:      medianQuantiles(runs, func(r groupRun) Quantiles { return r.ack }),
	}
	if r.Rate > 0 {
		r.PerMessage = time.Duration(float64(time.Second) / r.Rate)
	}
	for _, run := range runs {
		r.Faults.add(run.faults)
	}
	return r
}
