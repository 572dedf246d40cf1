package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// load is what publishers send together.
type load struct {
	topics   []string
	size     int           // of a payload, in bytes
	count    int           // messages of each publisher; 0 for as many as there is time for
	duration time.Duration // 0 for no limit
	window   int           // messages of each publisher that may be unacknowledged
	first    int           // number of the first publisher: greater than 0 after another load on the same topics
}

// publisher sends messages to its topics in turn. It is used by one goroutine:
// it fills its window with one write, and then takes the acknowledgements that
// have come.
type publisher struct {
	*conn
	load
	index  int
	heads  [][]byte // per topic: how its frames begin; shared by all publishers
	filler []byte

	sent    int             // messages
	open    int             // sent and not acknowledged: the last ones
	sentAt  []time.Duration // of the last ones
	numbers []uint64        // per topic: how many are sent
	acked   []uint64        // per topic: how many are acknowledged
	samples []time.Duration // from before the write to after the read of the acknowledgement
}

func newPublisher(c *conn, index int, heads [][]byte, l load) *publisher {
	return &publisher{
		conn:    c,
		load:    l,
		index:   index,
		heads:   heads,
		filler:  newFiller(l.size),
		sentAt:  make([]time.Duration, l.window),
		numbers: make([]uint64, len(l.topics)),
		acked:   make([]uint64, len(l.topics)),
	}
}

// run sends until the load is done and everything is acknowledged.
func (p *publisher) run() error {
	start := time.Now()
	var out []byte
	for {
		now := time.Since(start)
		out = p.fill(out[:0], now)
		if len(out) > 0 {
			if _, err := p.Write(out); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
		if p.open == 0 {
			return nil
		}
		if err := p.takeAcks(start); err != nil {
			return err
		}
	}
}

// fill appends the frames that the window has room for.
func (p *publisher) fill(out []byte, now time.Duration) []byte {
	if p.duration > 0 && now >= p.duration {
		return out
	}
	for p.open < p.window && (p.count == 0 || p.sent < p.count) {
		topic, slot := p.sent%len(p.topics), p.sent%p.window
		out = appendPublish(out, p.heads[topic], uint16(slot+1), p.index, p.numbers[topic], p.filler)
		p.numbers[topic]++
		p.sentAt[slot] = now
		p.sent++
		p.open++
	}
	return out
}

// takeAcks waits for an acknowledgement and takes all that have come with it.
func (p *publisher) takeAcks(start time.Time) error {
	for more := true; more; more = isBuffered(p.r) {
		first, body, err := p.next()
		if err != nil {
			return fmt.Errorf("wait for acknowledgement of %d messages: %w", p.open, err)
		}
		oldest := p.sent - p.open
		slot := oldest % p.window
		if first != kindPuback || len(body) != 2 || p.open == 0 {
			return fmt.Errorf("wait for acknowledgement: %w", errMalformed)
		}
		if id := int(body[0])<<8 | int(body[1]); id != slot+1 { // [MQTT-4.6.0-2]
			return fmt.Errorf("broker acknowledged packet %d before packet %d", id, slot+1)
		}
		p.open--
		p.acked[oldest%len(p.topics)]++
		p.samples = append(p.samples, time.Since(start)-p.sentAt[slot])
	}
	return nil
}

// published is what publishers achieved together.
type published struct {
	acked   [][]uint64 // per topic and publisher
	total   int
	took    time.Duration
	samples []time.Duration
}

// publish runs the load with n publishers at once.
func publish(ctx context.Context, address, prefix string, n int, l load) (published, error) {
	heads := make([][]byte, len(l.topics))
	for i, topic := range l.topics {
		heads[i] = publishHead(topic, l.size)
	}
	publishers := make([]*publisher, n)
	err := inParallel(n, n, func(i int) error {
		c, err := dial(ctx, address, fmt.Sprintf("%s-p%d", prefix, i), true)
		if err == nil {
			publishers[i] = newPublisher(c, l.first+i, heads, l)
		}
		return err
	})
	defer func() {
		for _, p := range publishers {
			if p != nil {
				p.leave()
			}
		}
	}()
	if err != nil {
		return published{}, err
	}
	start := time.Now()
	err = inParallel(n, n, func(i int) error { return publishers[i].run() })
	result := published{took: time.Since(start), acked: make([][]uint64, len(l.topics))}
	for _, p := range publishers {
		for topic, acked := range p.acked {
			result.acked[topic] = append(result.acked[topic], acked)
			result.total += int(acked)
		}
		result.samples = append(result.samples, p.samples...)
	}
	return result, err
}

// inParallel calls f for 0 to n-1, at most limit at once, and returns the first
// error after all have ended. After an error no further ones are started.
func inParallel(n, limit int, f func(i int) error) error {
	var (
		group sync.WaitGroup
		slots = make(chan struct{}, max(limit, 1))
		mu    sync.Mutex
		first error // guarded by mu
	)
	failed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return first != nil
	}
	for i := 0; i < n && !failed(); i++ {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	group.Wait()
	return first
}
