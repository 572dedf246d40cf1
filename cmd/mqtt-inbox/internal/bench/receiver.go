package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// pageSize is how many messages count as one page when gaps are measured. It
// is the default page of this broker; others may use none.
const pageSize = 200

// fleet is a group of receivers, each with a session that outlives its link.
type fleet struct {
	address string
	prefix  string
	filters [][]string // per receiver
}

// atOnce bounds how many receivers prepare themselves at the same time.
const atOnce = 64

// subscribe makes the sessions and leaves again.
func (f fleet) subscribe(ctx context.Context) error {
	return inParallel(len(f.filters), atOnce, func(i int) error {
		c, err := f.dial(ctx, i, false)
		if err != nil {
			return err
		}
		defer c.leave()
		for _, filter := range f.filters[i] {
			if err := c.subscribe(filter, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// forget ends the sessions, on a broker that goes on after us.
func (f fleet) forget(ctx context.Context, b *broker) error {
	if b.cmd != nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // also if we were told to end
	return inParallel(len(f.filters), atOnce, func(i int) error {
		c, err := f.dial(ctx, i, true)
		if err != nil {
			return err
		}
		c.leave()
		return nil
	})
}

func (f fleet) dial(ctx context.Context, i int, clean bool) (*conn, error) {
	return dial(ctx, f.address, fmt.Sprintf("%s-r%d", f.prefix, i), clean)
}

// drained is what receivers got together.
type drained struct {
	total  int
	took   time.Duration   // until the last one had everything
	firsts []time.Duration // per receiver: from its CONNECT to its first message
	gaps   []time.Duration // of the first receiver: per page, in order
	faults Faults
}

// drain lets all receivers come back at once; see drainSome.
func (f fleet) drain(ctx context.Context, acked [][]uint64, patience time.Duration) (drained, error) {
	who := make([]int, len(f.filters))
	for i := range who {
		who[i] = i
	}
	return f.drainSome(ctx, who, acked, patience)
}

// drainSome lets the numbered receivers come back at once and take what waits for
// them. Acked is how much that must be: per receiver, per publisher. They give up when
// nothing has come to any of them for the time of patience; one alone may have to
// wait longer while the others are served.
func (f fleet) drainSome(ctx context.Context, who []int, acked [][]uint64, patience time.Duration) (drained, error) {
	receivers := make([]*receiver, len(who))
	progress := new(atomic.Int64)
	start := time.Now()
	err := inParallel(len(receivers), len(receivers), func(i int) error {
		receivers[i] = &receiver{checker: newChecker(), acked: acked[i], patience: patience, progress: progress}
		return receivers[i].run(ctx, f, who[i])
	})
	if err != nil {
		return drained{}, err
	}
	d := drained{gaps: receivers[0].gaps}
	for _, r := range receivers {
		d.total += r.total
		d.took = max(d.took, r.last.Sub(start))
		if r.total > 0 {
			d.firsts = append(d.firsts, r.first)
		}
		d.faults.add(r.result(r.acked))
	}
	return d, nil
}

// receiver takes and acknowledges what waits for it. It is used by one
// goroutine: it reads all that has come, and acknowledges it with one write.
type receiver struct {
	*checker
	acked    []uint64 // per publisher: what must come
	patience time.Duration
	progress *atomic.Int64 // grows whenever something comes to any receiver of the fleet

	total int
	first time.Duration // from CONNECT to the first message
	last  time.Time     // when everything had come, or the last full page
	gaps  []time.Duration
}

func (r *receiver) run(ctx context.Context, f fleet, i int) error {
	start := time.Now()
	r.last = start
	c, err := f.dial(ctx, i, false)
	if err != nil {
		return err
	}
	defer c.leave()
	if !c.resumed {
		return fmt.Errorf("receiver %d: the broker has lost the session", i)
	}
	c.idle = r.patience
	err = r.takeAll(ctx, c, start)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		return nil // what has not come is counted as lost
	}
	return err
}

// takeAll reads until everything has come, and then once more round the broker,
// so that what comes too often is seen too.
func (r *receiver) takeAll(ctx context.Context, c *conn, start time.Time) error {
	expected := 0
	for _, n := range r.acked {
		expected += int(n)
	}
	var acks []byte
	pageStart := start
	for asked := false; ; {
		if !asked && r.total >= expected && r.complete(r.acked) {
			asked = true
			r.last = time.Now()
			acks = append(acks, kindPingreq, 0)
		}
		if len(acks) > 0 && !isBuffered(c.r) {
			r.progress.Add(1)
			if _, err := c.Write(acks); err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
			acks = acks[:0]
		}
		first, body, err := r.next(ctx, c)
		switch {
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		case first == kindPingresp:
			return nil
		case first&0xF0 != kindPublish:
			return fmt.Errorf("receive: %w", errMalformed)
		}
		d, err := parsePublish(first, body)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if d.qos == 1 {
			acks = append(acks, kindPuback, 2, byte(d.packetID>>8), byte(d.packetID))
		}
		r.take(d.publisher, d.number)
		if r.total++; r.total == 1 {
			r.first = time.Since(start)
		}
		if r.total%pageSize == 0 {
			r.last = time.Now()
			r.gaps = append(r.gaps, r.last.Sub(pageStart))
			pageStart = r.last
		}
	}
}

// next reads a packet. It fails when nothing has come to anyone for the time of
// patience.
func (r *receiver) next(ctx context.Context, c *conn) (byte, []byte, error) {
	for {
		before := r.progress.Load()
		first, body, err := c.next()
		if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil || r.progress.Load() == before {
			return first, body, err
		}
	}
}
