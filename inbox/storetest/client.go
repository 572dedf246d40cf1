package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// client owns one inbox, and keeps the delivery state as a connection does.
type client struct {
	inbox.Inbox
	tr       *trial
	receiver inbox.Receiver
	resumed  bool
	live     chan inbox.Entry

	mu    sync.Mutex
	state inbox.State
}

// markers is where the topics of the suite's own messages begin.
const markers = "$marker/"

// liveRoom is how many live messages a client can hold unseen.
const liveRoom = 4096

func (tr *trial) connect(r inbox.Receiver, expiry inbox.Expiry) *client {
	tr.Helper()
	return tr.connectWith(r, inbox.OpenOptions{Expiry: expiry})
}

func (tr *trial) connectFresh(r inbox.Receiver, expiry inbox.Expiry) *client {
	tr.Helper()
	return tr.connectWith(r, inbox.OpenOptions{Expiry: expiry, Fresh: true})
}

func (tr *trial) connectWith(r inbox.Receiver, o inbox.OpenOptions) *client {
	tr.Helper()
	c, err := tr.tryConnect(r, o)
	if err != nil {
		tr.Fatalf("opening the inbox of %.40q: %v", r, err)
	}
	return c
}

// tryConnect may be called by any goroutine.
func (tr *trial) tryConnect(r inbox.Receiver, o inbox.OpenOptions) (*client, error) {
	c := &client{tr: tr, receiver: r, live: make(chan inbox.Entry, liveRoom)}
	o.State = c.current
	o.Live = c.hear
	in, resumed, err := tr.store.Open(tr.ctx, r, o)
	if err != nil {
		return nil, err
	}
	c.Inbox, c.resumed = in, resumed
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = in.State().Clone()
	return c, nil
}

// current runs on a goroutine of the engine.
func (c *client) current() inbox.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Clone()
}

// hear runs on a goroutine of the engine.
func (c *client) hear(e inbox.Entry) {
	select {
	case c.live <- e:
	default:
		c.tr.Errorf("more than %d live messages for %.40q", liveRoom, c.receiver)
	}
}

// heard returns the next n live messages.
func (c *client) heard(n int) []inbox.Entry {
	c.tr.Helper()
	var got []inbox.Entry
	for len(got) < n {
		select {
		case e := <-c.live:
			got = append(got, e)
		case <-c.tr.ctx.Done():
			c.tr.Fatalf("%d of %d live messages came: %v", len(got), n, payloads(got))
		}
	}
	return got
}

func (c *client) subscribe(filter string, qos byte) {
	c.tr.Helper()
	c.add(inbox.Subscription{Filter: filter, QoS: qos})
}

func (c *client) add(subs ...inbox.Subscription) []bool {
	c.tr.Helper()
	existed, err := c.Subscribe(c.tr.ctx, subs...)
	if err != nil {
		c.tr.Fatalf("%.40q subscribes: %v", c.receiver, err)
	}
	return existed
}

func (c *client) unsubscribe(filters ...string) []bool {
	c.tr.Helper()
	existed, err := c.Unsubscribe(c.tr.ctx, filters...)
	if err != nil {
		c.tr.Fatalf("%.40q unsubscribes: %v", c.receiver, err)
	}
	return existed
}

// next reads one page and counts it as sent and open.
func (c *client) next(max, maxBytes int) ([]inbox.Entry, error) {
	return c.nextBy(c.tr.ctx, max, maxBytes)
}

func (c *client) nextBy(ctx context.Context, max, maxBytes int) ([]inbox.Entry, error) {
	page, err := c.Next(ctx, max, maxBytes)
	if err == nil && (len(page) == 0 || len(page) > max) {
		err = fmt.Errorf("page of %d entries where 1 to %d were asked for", len(page), max)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range page {
		c.state.Sent = e.Position
		c.state.LastID = c.state.LastID%inbox.MaxWindow + 1
		c.state.Open = append(c.state.Open, inbox.Delivery{Position: e.Position, PacketID: c.state.LastID, QoS: e.QoS})
	}
	return page, err
}

// take reads n entries.
func (c *client) take(n int) []inbox.Entry {
	c.tr.Helper()
	var got []inbox.Entry
	for len(got) < n {
		page, err := c.next(min(n-len(got), 200), 1<<20)
		if err != nil {
			c.tr.Fatalf("%.40q reads entry %d of %d: %v", c.receiver, len(got), n, err)
		}
		got = append(got, page...)
	}
	ascending(c.tr, fmt.Sprintf("inbox of %.40q", c.receiver), got)
	return got
}

// takeUntil reads n entries, or those that there are before a time.
func (c *client) takeUntil(end time.Time, n int) (got []inbox.Entry) {
	ctx, cancel := context.WithDeadline(c.tr.ctx, end)
	defer cancel()
	for len(got) < n {
		page, err := c.nextBy(ctx, n-len(got), 1<<20)
		if err != nil {
			return got
		}
		got = append(got, page...)
	}
	return got
}

// expect reads exactly these payloads, and leaves what is behind them.
func (c *client) expect(want ...string) []inbox.Entry {
	c.tr.Helper()
	got := c.take(len(want))
	same(c.tr, fmt.Sprintf("inbox of %.40q", c.receiver), payloads(got), want)
	return got
}

// Subscriptions leaves out those of the suite itself.
func (c *client) Subscriptions(ctx context.Context) ([]inbox.Subscription, error) {
	subs, err := c.Inbox.Subscriptions(ctx)
	return slices.DeleteFunc(subs, func(s inbox.Subscription) bool { return strings.HasPrefix(s.Filter, markers) }), err
}

// rest reads everything there is, while nobody publishes. A message of its own
// marks the end; those of earlier times are left out.
func (c *client) rest() []inbox.Entry {
	c.tr.Helper()
	c.tr.markers++
	marker := fmt.Sprintf("marker-%d", c.tr.markers)
	topic := markers + marker
	c.subscribe(topic, 1)
	c.tr.publish(topic, marker)

	var got []inbox.Entry
	for {
		page, err := c.next(200, 1<<20)
		if err != nil {
			c.tr.Fatalf("%.40q reads entry %d: %v", c.receiver, len(got), err)
		}
		got = append(got, page...)
		if last := got[len(got)-1]; string(last.Envelope.Payload) == marker {
			c.finish(last)
			ascending(c.tr, fmt.Sprintf("inbox of %.40q", c.receiver), got)
			return slices.DeleteFunc(got, func(e inbox.Entry) bool {
				return strings.HasPrefix(e.Envelope.Topic, markers)
			})
		}
	}
}

// only fails unless these payloads are all there is.
func (c *client) only(want ...string) []inbox.Entry {
	c.tr.Helper()
	got := c.rest()
	same(c.tr, fmt.Sprintf("inbox of %.40q", c.receiver), payloads(got), want)
	return got
}

// finish acknowledges entries.
func (c *client) finish(entries ...inbox.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(map[inbox.Position]bool, len(entries))
	for _, e := range entries {
		done[e.Position] = true
	}
	c.state.Open = slices.DeleteFunc(c.state.Open, func(d inbox.Delivery) bool { return done[d.Position] })
}

// trySave saves with done and waits for it.
func (c *client) trySave() error {
	saved := make(chan error, 2)
	c.Save(func(err error) { saved <- err })
	select {
	case err := <-saved:
		return err
	case <-c.tr.ctx.Done():
		return errors.New("done of Save was not called")
	}
}

func (c *client) save() {
	c.tr.Helper()
	if err := c.trySave(); err != nil {
		c.tr.Fatalf("%.40q saves: %v", c.receiver, err)
	}
}

// close leaves without a goodbye.
func (c *client) close(expiry inbox.Expiry) {
	c.tr.Helper()
	c.leave(inbox.Ending{Expiry: expiry})
}

func (c *client) leave(end inbox.Ending) {
	c.tr.Helper()
	if err := c.Close(c.tr.ctx, end); err != nil {
		c.tr.Fatalf("%.40q closes: %v", c.receiver, err)
	}
}

// read returns the entries at these positions.
func (c *client) read(at ...inbox.Position) []inbox.Entry {
	c.tr.Helper()
	got, err := c.Read(c.tr.ctx, at)
	if err != nil {
		c.tr.Fatalf("%.40q reads %d positions: %v", c.receiver, len(at), err)
	}
	return got
}

// sameState compares states; nil and empty are the same.
func sameState(tr *trial, got, want inbox.State) {
	tr.Helper()
	if got.Sent != want.Sent || got.LastID != want.LastID {
		tr.Fatalf("state: sent %d, last id %d, want sent %d, last id %d", got.Sent, got.LastID, want.Sent, want.LastID)
	}
	same(tr, "open deliveries", got.Open, want.Open)
	same(tr, "releasing ids", got.Releasing, want.Releasing)
	same(tr, "resting ids", got.Resting, want.Resting)
}
