package hooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
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
	log     *slog.Logger
	server  *mqtt.Server
	links   sync.WaitGroup // connections that have not ended
	turns   *turns         // one connection at a time for each client id, from session to CONNACK
	counts  counts

	mu     sync.Mutex              // guards the following
	owners map[string]*link        // by client id: the connection that has the session, until it has ended
	wills  map[string]*delayedWill // by client id
	timers sync.WaitGroup          // wills that wait or are being published after it
}

// counts is what happened since the start.
type counts struct {
	expired, oversize, liveDropped, refused atomic.Uint64
}

// Counts is how many messages went other ways than to their receiver, since the
// start.
type Counts struct {
	Expired     uint64 // not sent: their expiry interval had passed
	Oversize    uint64 // not sent: larger than the receiver takes
	LiveDropped uint64 // granted QoS 0, and the receiver's connection was full
	Refused     uint64 // the publisher was told that they are not stored
}

// New returns a hook that keeps inboxes in a store. The store stays the
// caller's, to close after [Hook.Wait].
func New(store inbox.Store, o Options) (*Hook, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("new hook: %w", err)
	}
	return &Hook{
		options: o,
		store:   store,
		log:     o.Log,
		turns:   newTurns(),
		owners:  map[string]*link{},
		wills:   map[string]*delayedWill{},
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
// Close, and nothing of the hook runs any more. Wills that still wait for their
// delay are not published.
func (h *Hook) Wait() {
	h.links.Wait()
	h.dropWills()
}

// Counts returns how many messages went other ways than to their receiver.
func (h *Hook) Counts() Counts {
	return Counts{
		Expired:     h.counts.expired.Load(),
		Oversize:    h.counts.oversize.Load(),
		LiveDropped: h.counts.liveDropped.Load(),
		Refused:     h.counts.refused.Load(),
	}
}

// Disconnect ends the connection of a client, if it has one, and reports whether
// it had. It never waits, as mqtt.Server's method of that name may do for a client that does
// not read.
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
		mqtt.OnPublish, mqtt.OnWill:
		return true
	}
	return false
}

// OnConnect meets a client, before it has proved who it is.
func (h *Hook) OnConnect(cl *mqtt.Client, pk packets.Packet) error {
	l := linkOf(cl)
	if l == nil {
		h.log.Error("connection refused", "remote", cl.Net.Remote, "listener", cl.Net.Listener, "error", errNotLinked)
		return errors.Join(errNotLinked, h.server.SendConnack(cl, packets.ErrServerUnavailable, false, nil))
	}
	l.client = cl
	l.connect = pk.Connect
	l.v5 = pk.ProtocolVersion == 5
	l.out.speak(l.v5)

	// The library would leave out a topic that it has sent before, also where the
	// client never got that packet.
	cl.Properties.Props.TopicAliasMaximum = 0
	return nil
}

// OnSessionEstablish opens the client's session, once it has proved who it is
// and before CONNACK. What goes wrong is told by CONNACK.
func (h *Hook) OnSessionEstablish(cl *mqtt.Client, pk packets.Packet) {
	l := linkOf(cl)
	if l == nil {
		return
	}
	l.in.idle = time.Duration(cl.State.Keepalive) * time.Second * 3 / 2
	if err := h.open(l, &pk); err != nil {
		h.log.Warn("session not opened", "client", cl.ID, "remote", cl.Net.Remote, "error", err)
	}
}

// OnPacketEncode corrects what the MQTT library says about sessions, which it
// does not know.
func (h *Hook) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	l := linkOf(cl)
	if l == nil {
		return pk
	}
	switch pk.FixedHeader.Type {
	case packets.Connack:
		if pk.ReasonCode == packets.CodeSuccess.Code {
			h.completeConnack(l, &pk)
		}
	case packets.Unsuback:
		if l.v5 && len(l.subscribing.unsuback) == len(pk.ReasonCodes) {
			pk.ReasonCodes = l.subscribing.unsuback
		}
	case packets.Puback, packets.Pubrec:
		// The library refuses a message with the properties that it had.
		pk.Properties = packets.Properties{ReasonString: pk.Properties.ReasonString}
	}
	return pk
}

// completeConnack says whether there was a session, and what the server takes.
func (h *Hook) completeConnack(l *link, pk *packets.Packet) {
	if l.session == nil {
		pk.ReasonCode = packets.ErrServerUnavailable.Code
		if !l.v5 {
			pk.ReasonCode = packets.Err3ServerUnavailable.Code
		}
		pk.SessionPresent = false // [MQTT-3.2.2-6]
		return
	}
	pk.SessionPresent = l.session.resumed // [MQTT-3.2.2-2] [MQTT-3.2.2-3]
	capabilities := h.server.Options.Capabilities
	pk.Properties.MaximumPacketSize = capabilities.MaximumPacketSize
	pk.Properties.TopicAliasMaximum = capabilities.TopicAliasMaximum
	pk.Properties.SharedSubAvailable = 0
	pk.Properties.SharedSubAvailableFlag = true
}

// OnSessionEstablished starts the delivery, after CONNACK.
func (h *Hook) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	l := linkOf(cl)
	if l == nil {
		return
	}
	defer h.giveTurn(l)
	if l.session == nil {
		cl.Properties.Will = mqtt.Will{} // the client was refused
		l.Close()
		return
	}
	if l.session.resumed {
		subs, err := l.session.inbox.Subscriptions(l.ctx)
		if err != nil {
			h.log.Error("subscriptions not read", "client", cl.ID, "error", err)
			l.end(packets.ErrUnspecifiedError)
			return
		}
		h.index(cl, subs)
	}
	l.session.pumped = make(chan struct{})
	go l.session.pump()
}

// OnPacketRead replaces a topic alias by the topic, so that everyone who looks at
// the packet, the access rules first, sees the topic.
func (h *Hook) OnPacketRead(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	alias := pk.Properties.TopicAlias
	if pk.FixedHeader.Type != packets.Publish || !pk.Properties.TopicAliasFlag {
		return pk, nil
	}
	l := linkOf(cl)
	if l == nil || alias == 0 || alias > h.server.Options.Capabilities.TopicAliasMaximum {
		return pk, nil // for the library to refuse
	}
	pk.TopicName = cl.State.TopicAliases.Inbound.Set(alias, pk.TopicName)
	if pk.TopicName == "" {
		l.end(packets.ErrProtocolViolationNoTopic) // an alias that was never set
		return pk, packets.ErrRejectPacket
	}
	pk.Properties.TopicAlias, pk.Properties.TopicAliasFlag = 0, false
	return pk, nil
}

// open gets the session for a connection: no other connection of this client
// has it any more, and none gets it before CONNACK. Runs on the read goroutine.
func (h *Hook) open(l *link, pk *packets.Packet) error {
	ctx, cancel := context.WithTimeout(l.ctx, handover)
	defer cancel()
	if err := h.turns.take(ctx, l.client.ID); err != nil {
		return fmt.Errorf("wait for other connections of the client: %w", err)
	}
	l.turn = true

	h.mu.Lock()
	older := h.owners[l.client.ID]
	h.mu.Unlock()
	if older != nil {
		older.end(packets.ErrSessionTakenOver) // [MQTT-3.1.4-3]
		select {
		case <-older.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the earlier connection to end: %w", ctx.Err())
		}
	}

	h.mu.Lock()
	h.owners[l.client.ID] = l
	h.mu.Unlock()
	s, err := openSession(ctx, l, pk.Connect.Clean, pk.Properties.ReceiveMaximum)
	if err != nil {
		return err
	}
	h.settleWill(l.client.ID, s.resumed)
	l.session = s
	return nil
}

// finish ends everything of a connection that the MQTT library has left: the
// session is given back, the library's traces of the client are removed, and the
// flusher has ended. Runs on the read goroutine, as its last act.
func (h *Hook) finish(l *link) {
	close(l.read)
	l.Close()
	if l.session != nil {
		l.session.close(inbox.Ending{Expiry: h.expiry(l)})
	}
	if l.client != nil {
		h.removeTraces(l.client)
		h.mu.Lock()
		if h.owners[l.client.ID] == l {
			delete(h.owners, l.client.ID)
		}
		h.mu.Unlock()
		h.giveTurn(l)
	}
	close(l.done)
	<-l.flushed
}

// removeTraces makes the MQTT library forget a client whose connection has
// ended: it would keep it as long as its session, with subscriptions and a
// buffer.
func (h *Hook) removeTraces(cl *mqtt.Client) {
	for filter := range cl.State.Subscriptions.GetAll() {
		h.unindex(cl, filter)
	}
	// Nobody else can be in its place yet: a new connection waits for this one.
	if known, ok := h.server.Clients.Get(cl.ID); ok && known == cl {
		h.server.Clients.Delete(cl.ID)
	}
}

func (h *Hook) giveTurn(l *link) {
	if l.turn {
		l.turn = false
		h.turns.give(l.client.ID)
	}
}

// expiry is how long the session of a connection outlives it, as the client has
// last said, within what the server allows.
func (h *Hook) expiry(l *link) inbox.Expiry {
	cl := l.client
	switch {
	case l.v5:
		return inbox.Expiry(min(cl.Properties.Props.SessionExpiryInterval, h.server.Options.Capabilities.MaximumSessionExpiryInterval))
	case cl.Properties.Clean:
		return inbox.ExpiryAtOnce // [MQTT-3.1.2-6]
	}
	return h.options.SessionExpiryV3
}
