package hooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// localPlain is how many messages of QoS 0 wait for one handler.
const localPlain = 256

// local is a subscription of the program itself: a session without a client,
// which ends with the process. So the program gets what it subscribes to as a
// client does: when it is stored, and in that order.
type local struct {
	hook   *Hook
	handle func(inbox.Entry)
	inbox  inbox.Inbox
	plain  chan inbox.Entry // of QoS 0
	ctx    context.Context  // ends with the subscription
	cancel context.CancelFunc

	turn sync.Mutex // held while handle is called

	mu   sync.Mutex // guards the following
	sent inbox.Position
}

// Subscribe has handle called with every message whose topic matches a filter
// and that is published from now on, by whomever and at every QoS, once it is
// stored. Those of QoS 1 and 2 come in the order of storing; what is retained comes
// first, with Grant.Retain set.
//
// Cost of a message at QoS 1 or 2: a lock, a page's share of a call of the store,
// and what it costs to store it.
//
// handle is called by one goroutine at a time and holds up nobody else: what
// comes meanwhile waits in the store, and beyond a few messages of QoS 0 is
// dropped. It must not change the envelope, nor call Wait.
//
// The subscription ends when stop is called, which does not wait for a last call
// of handle, or with [Hook.Wait], which does. While there is one, the messages of
// QoS 0 of all clients go through the store.
func (h *Hook) Subscribe(ctx context.Context, filter string, handle func(inbox.Entry)) (stop func(), err error) {
	if _, _, shared := inbox.Shared(filter); shared || checkFilter(filter) != packets.CodeSuccess {
		return nil, fmt.Errorf("subscribe to %q: %w", filter, packets.ErrTopicFilterInvalid)
	}
	h.misindexed.Add(1) // the library's index does not have it
	s, err := h.openLocal(ctx, filter, handle)
	if err != nil {
		h.misindexed.Add(-1)
		return nil, fmt.Errorf("subscribe to %q: %w", filter, err)
	}
	return sync.OnceFunc(func() {
		h.misindexed.Add(-1)
		s.cancel()
	}), nil
}

// openLocal begins a subscription of the program.
func (h *Hook) openLocal(ctx context.Context, filter string, handle func(inbox.Entry)) (*local, error) {
	s := &local{hook: h, handle: handle, plain: make(chan inbox.Entry, localPlain)}
	// No client has this name: there is a NUL in it [MQTT-1.5.4-2].
	name := inbox.Receiver(fmt.Sprintf("local\x00%d", h.lastLocal.Add(1)))
	var err error
	s.inbox, _, err = h.store.Open(ctx, name, inbox.OpenOptions{Fresh: true, State: s.state, Live: s.live})
	if err != nil {
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	if _, err := s.inbox.Subscribe(ctx, inbox.Subscription{Filter: filter, QoS: 2}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.ctx, s.cancel = context.WithCancel(h.ctx)
	h.locals.Go(s.run)
	h.locals.Go(s.runPlain)
	return s, nil
}

// run calls the handler with what is kept in the inbox. It is a goroutine of the
// subscription.
func (s *local) run() {
	for {
		entries, err := s.inbox.Next(s.ctx, s.hook.options.PageMessages, s.hook.options.PageBytes)
		if err != nil {
			if s.ctx.Err() == nil && !errors.Is(err, inbox.ErrClosed) {
				s.hook.log.Error("subscription of the program ended", "error", err)
			}
			break
		}
		for _, e := range entries {
			s.call(e)
			s.mu.Lock()
			s.sent = e.Position
			s.mu.Unlock()
		}
		s.inbox.Save(nil)
	}
	s.cancel()
	if err := s.close(); err != nil && !errors.Is(err, inbox.ErrClosed) {
		s.hook.log.Error("subscription of the program not given back", "error", err)
	}
}

// runPlain calls the handler with what is not kept. It is a goroutine of the
// subscription.
func (s *local) runPlain() {
	for {
		select {
		case e := <-s.plain:
			s.call(e)
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *local) call(e inbox.Entry) {
	s.turn.Lock()
	defer s.turn.Unlock()
	switch {
	case s.ctx.Err() != nil:
	case e.Envelope.Expired(time.Now()):
		s.hook.counts.expired.Add(1)
	default:
		s.handle(e)
	}
}

// live takes a message of QoS 0. Runs on a goroutine of the store and never
// waits.
func (s *local) live(e inbox.Entry) {
	select {
	case s.plain <- e:
	default:
		s.hook.counts.liveDropped.Add(1)
	}
}

// state is what the store saves. Runs on a goroutine of the store.
func (s *local) state() inbox.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inbox.State{Sent: s.sent}
}

func (s *local) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), handover)
	defer cancel()
	return s.inbox.Close(ctx, inbox.Ending{})
}
