package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// GroupDrainResult is how the members of one group, returning at once, got what
// had waited for them.
type GroupDrainResult struct {
	Target  string `json:"target"`
	Way     Way    `json:"way"` // for copies, each member has an inbox with as many messages
	Members int    `json:"members"`
	Waiting int    `json:"messages_per_member"`
	Size    int    `json:"payload_bytes"`

	Runs   int       `json:"runs"`
	Rate   float64   `json:"messages_per_second"` // to all members together; median of the runs, as the following
	First  Quantiles `json:"first_message"`       // over members, from CONNECT on
	Faults Faults    `json:"faults"`              // of all runs
}

type drainRun struct {
	waiting int
	rate    float64
	first   Quantiles
	faults  Faults
}

func (o GroupOptions) drains(ctx context.Context, variants []variant, results *GroupResults) (faulty bool, err error) {
	if o.Returning == 0 {
		return false, nil
	}
	for _, size := range o.Sizes {
		runs := make([][]drainRun, len(variants))
		for n := range o.Runs {
			for i, v := range variants {
				o.Log.Info("measuring the return of a group", "target", v.Name, "way", v.way, "members", o.Returning, "size", size, "run", n+1, "of", o.Runs)
				run, err := o.drainRun(ctx, v, size)
				if err != nil {
					return faulty, fmt.Errorf("return of a group, %v: %w", v, err)
				}
				runs[i] = append(runs[i], run)
			}
		}
		for i, v := range variants {
			r := o.sumUpDrain(v, size, runs[i])
			faulty = faulty || v.ours && r.Faults.Any()
			results.Drains = append(results.Drains, r)
		}
	}
	return faulty, nil
}

func (o GroupOptions) drainRun(ctx context.Context, v variant, size int) (run drainRun, err error) {
	err = o.onBroker(ctx, v, func(b *broker, dir string) (err error) {
		f, topics := v.newMembers(b.address, o.Returning)
		if err := f.subscribe(ctx); err != nil {
			return fmt.Errorf("make members: %w", err)
		}
		defer func() { err = errors.Join(err, f.forget(ctx, b)) }()
		p, err := publish(ctx, b.address, f.prefix, fillShape.Publishers, load{
			topics: topics,
			size:   size,
			count:  max(o.Waiting/fillShape.Publishers, 1) * len(topics),
			window: fillShape.InFlight,
		})
		if err != nil {
			return fmt.Errorf("fill inboxes: %w", err)
		}
		if _, _, err := b.settle(ctx, dir); err != nil {
			return err
		}
		d, err := f.drain(ctx, perReceiver(p.acked, o.Returning), o.Patience)
		if err != nil {
			return err
		}
		run = drainRun{
			waiting: p.total / len(topics),
			rate:    float64(d.total) / d.took.Seconds(),
			first:   quantiles(d.firsts),
			faults:  d.faults,
		}
		return nil
	})
	return run, err
}

func (o GroupOptions) sumUpDrain(v variant, size int, runs []drainRun) GroupDrainResult {
	r := GroupDrainResult{
		Target: v.Name, Way: v.way, Members: o.Returning, Size: size, Runs: len(runs),
		Waiting: medianOf(runs, func(r drainRun) int { return r.waiting }),
		Rate:    medianOf(runs, func(r drainRun) float64 { return r.rate }),
		First:   medianQuantiles(runs, func(r drainRun) Quantiles { return r.first }),
	}
	for _, run := range runs {
		r.Faults.add(run.faults)
	}
	return r
}

// GroupReturnResult is how long a member of many groups, of which few have
// something for it, waits for that, beside a receiver with the same messages in
// one inbox.
type GroupReturnResult struct {
	Target   string `json:"target"`
	Way      Way    `json:"way"`
	Groups   int    `json:"groups"`
	News     int    `json:"groups_with_messages"`
	Messages int    `json:"messages"` // each time, in all
	Size     int    `json:"payload_bytes"`

	Returns int       `json:"returns"`      // of each receiver, in all runs
	Plain   Quantiles `json:"plain_inbox"`  // from CONNECT to the last message
	Member  Quantiles `json:"member"`       // likewise
	Ratio   float64   `json:"member_plain"` // of the medians
	Faults  Faults    `json:"faults"`
}

// The receivers of the part about many groups.
const (
	manyMember    = iota // is in all groups
	plainReceiver        // has one topic
	manyOther            // is in all groups and stays away, so that each has two members
	manyReceivers
)

func (o GroupOptions) returns(ctx context.Context, variants []variant, results *GroupResults) (faulty bool, err error) {
	if o.Groups == 0 {
		return false, nil
	}
	for _, size := range o.Sizes {
		samples := make([]returnSamples, len(variants))
		for n := range o.Runs {
			for i, v := range variants {
				if v.way == Copies {
					continue // the plain inbox is measured in each way
				}
				o.Log.Info("measuring a member of many groups", "target", v.Name, "way", v.way, "groups", o.Groups, "size", size, "run", n+1, "of", o.Runs)
				if err := o.returnRun(ctx, v, size, &samples[i]); err != nil {
					return faulty, fmt.Errorf("a member of many groups, %v: %w", v, err)
				}
			}
		}
		for i, v := range variants {
			if v.way == Copies {
				continue
			}
			r := o.sumUpReturn(v, size, samples[i])
			faulty = faulty || v.ours && r.Faults.Any()
			results.Returns = append(results.Returns, r)
		}
	}
	return faulty, nil
}

// returnSamples are from CONNECT to the last message.
type returnSamples struct {
	member, plain []time.Duration
	faults        Faults
}

func (o GroupOptions) returnRun(ctx context.Context, v variant, size int, s *returnSamples) error {
	return o.onBroker(ctx, v, func(b *broker, dir string) (err error) {
		f, groups, plain := o.newMany(b.address)
		if err := f.subscribe(ctx); err != nil {
			return fmt.Errorf("make members: %w", err)
		}
		defer func() { err = errors.Join(err, f.forget(ctx, b)) }()
		if _, _, err := b.settle(ctx, dir); err != nil {
			return err
		}
		for round := range o.Returns {
			due, err := o.publishNews(ctx, f, groups, plain, size, round)
			if err != nil {
				return err
			}
			// Who comes first changes, for the second finds the broker awake.
			order := []int{manyMember, plainReceiver}
			if round%2 == 1 {
				order = []int{plainReceiver, manyMember}
			}
			for _, receiver := range order {
				d, err := f.drainSome(ctx, []int{receiver}, [][]uint64{due}, o.Patience)
				if err != nil {
					return err
				}
				s.add(receiver, d)
			}
		}
		return nil
	})
}

func (s *returnSamples) add(receiver int, d drained) {
	s.faults.add(d.faults)
	if receiver == manyMember {
		s.member = append(s.member, d.took)
		return
	}
	s.plain = append(s.plain, d.took)
}

// newMany returns the receivers, the topics of the groups and that of the plain
// inbox.
func (o GroupOptions) newMany(address string) (f fleet, groups []string, plain string) {
	f = fleet{address: address, prefix: newPrefix(), filters: make([][]string, manyReceivers)}
	for i := range o.Groups {
		groups = append(groups, fmt.Sprintf("%s/group/%d", f.prefix, i))
	}
	plain = f.prefix + "/plain"
	f.filters[manyMember], f.filters[plainReceiver], f.filters[manyOther] = groups, []string{plain}, groups
	return f, groups, plain
}

// publishNews publishes to a few groups, other ones each time, and the same to
// the plain inbox. It returns how much each receiver must get: each group has a
// publisher of its own, by whose number its messages are known.
func (o GroupOptions) publishNews(ctx context.Context, f fleet, groups []string, plain string, size, round int) (due []uint64, err error) {
	for i := range o.News {
		group := groups[(round+i*len(groups)/o.News)%len(groups)]
		for _, topic := range []string{group, plain} {
			p, err := publish(ctx, f.address, f.prefix, 1, load{topics: []string{topic}, size: size, count: o.Few, window: o.Few, first: i})
			if err != nil {
				return nil, fmt.Errorf("publish: %w", err)
			}
			if topic == group {
				due = append(due, p.acked[0]...)
			}
		}
	}
	return due, nil
}

func (o GroupOptions) sumUpReturn(v variant, size int, s returnSamples) GroupReturnResult {
	r := GroupReturnResult{
		Target: v.Name, Way: v.way, Groups: o.Groups, News: o.News, Messages: o.News * o.Few, Size: size,
		Returns: len(s.member), Plain: quantiles(s.plain), Member: quantiles(s.member), Faults: s.faults,
	}
	if r.Plain.P50 > 0 {
		r.Ratio = float64(r.Member.P50) / float64(r.Plain.P50)
	}
	return r
}
