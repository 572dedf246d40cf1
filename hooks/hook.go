package hooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

var (
	errNotAttached = errors.New("hook is not attached to a server")
	errNotLinked   = errors.New("connection did not come through a listener of the hook: wrap each listener with (*hooks.Hook).Listener before adding it")
)

// Hook gives a mochi server inboxes. Make one with [New].
type Hook struct {
	mqtt.HookBase
	options Options
	store   inbox.Store
	pull    *pull.Service
	log     *slog.Logger
	server  *mqtt.Server
	links   sync.WaitGroup // connections that have not ended
	turns   *turns         // one connection at a time for each client id, from session to CONNACK
	counts  counts
	large   places // of answers to requests

	restores    restores     // sessions whose subscriptions are on their way to the MQTT library's index
	misindexed  atomic.Int64 // subscriptions of connected clients that the MQTT library's index gets wrong
	plainStored atomic.Bool  // messages of QoS 0 that the program publishes go through the store

	dispatchers sync.WaitGroup // of groups; added to on read goroutines

	ctx       context.Context    // ends with the hook
	cancel    context.CancelFunc // for the subscriptions of the program
	locals    sync.WaitGroup     // their goroutines
	lastLocal atomic.Int64       // numbers them

	watchers *watchers // connections that are told what is acknowledged by another way

	mu      sync.Mutex        // guards the following
	owners  map[string]*link  // by client id: the connection that has the session, until it has ended
	groups  map[string]*group // by filter: the shared subscriptions of clients that are connected
	inlines map[inline]*local
}

// counts is what happened since the start.
type counts struct {
	expired, oversize, liveDropped, refused, unanswered atomic.Uint64
}

// Counts is how many messages went other ways than to their receiver, since the
// start. Those that never reached the store, since the server or its access rules
// refused them, are not among them.
type Counts struct {
	Expired     uint64 // not sent: their expiry interval had passed
	Oversize    uint64 // not sent: larger than the receiver takes
	LiveDropped uint64 // granted QoS 0, and the receiver's connection was full
	Refused     uint64 // the store failed to take them, or did not say whether it has them
	Unanswered  uint64 // answers to requests: larger than the client takes, or to too many at a time
}

// New returns a hook that keeps inboxes in a store. The store stays the
// caller's, to close after [Hook.Wait].
func New(store inbox.Store, o Options) (*Hook, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("new hook: %w", err)
	}
	if o.Pull == nil {
		o.Pull = pull.New(store, pull.Options{Log: o.Log})
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Hook{
		options:  o,
		store:    store,
		pull:     o.Pull,
		log:      o.Log,
		turns:    newTurns(),
		large:    make(places, mostLarge),
		watchers: newWatchers(),
		owners:   map[string]*link{},
		groups:   map[string]*group{},
		ctx:      ctx,
		cancel:   cancel,
		inlines:  map[inline]*local{},
	}, nil
}

// Attach adds the hook to a server, once, before the server serves. It sets two
// of the server's options: ClientNetWriteBufferSize to 1, so that packets come
// whole and at once, and Capabilities.MaximumMessageExpiryInterval to 0, since
// any other value makes the server add an expiry to messages that have none.
//
// Capabilities.ReceiveMaximum must not be 0. Set MaximumPacketSize, which is
// unlimited by default. Add the hook after those that may change or reject a
// published message.
func (h *Hook) Attach(server *mqtt.Server) error {
	if server.Options.Capabilities.ReceiveMaximum == 0 {
		return errors.New("attach: server capability ReceiveMaximum is 0, which refuses every publisher")
	}
	server.Options.ClientNetWriteBufferSize = 1
	server.Options.Capabilities.MaximumMessageExpiryInterval = 0
	h.server = server
	if err := server.AddHook(h, nil); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return nil
}

// Wait returns when no connection is left, which is so at once after the server's
// Close, and nothing of the hook runs any more. It ends the program's own
// subscriptions.
func (h *Hook) Wait() {
	h.links.Wait()
	h.dispatchers.Wait()
	h.cancel()
	h.locals.Wait()
}

// Counts returns how many messages went other ways than to their receiver.
func (h *Hook) Counts() Counts {
	return Counts{
		Expired:     h.counts.expired.Load(),
		Oversize:    h.counts.oversize.Load(),
		LiveDropped: h.counts.liveDropped.Load(),
		Refused:     h.counts.refused.Load(),
		Unanswered:  h.counts.unanswered.Load(),
	}
}

// Service returns what answers requests, for programs that offer the same in
// another way.
func (h *Hook) Service() *pull.Service { return h.pull }

// Disconnect ends the connection of a client, if it has one, and reports whether
// it had. It never waits, as mqtt.Server's method of that name may do for a
// client that does not read.
func (h *Hook) Disconnect(client string, code packets.Code) bool {
	h.mu.Lock()
	l := h.owners[client]
	h.mu.Unlock()
	if l != nil {
		l.end(code)
	}
	return l != nil
}

// ID implements mqtt.Hook.
func (h *Hook) ID() string { return "inbox" }

// Stop implements mqtt.Hook.
func (h *Hook) Stop() error {
	h.Wait()
	return nil
}

// Provides implements mqtt.Hook.
func (h *Hook) Provides(b byte) bool {
	switch b {
	case mqtt.OnConnect, mqtt.OnSessionEstablish, mqtt.OnSessionEstablished,
		mqtt.OnPacketRead, mqtt.OnPacketEncode, mqtt.OnPacketProcessed,
		mqtt.OnSubscribe, mqtt.OnSubscribed, mqtt.OnUnsubscribe, mqtt.OnUnsubscribed,
		mqtt.OnPublish, mqtt.OnACLCheck:
		return true
	}
	return false
}
