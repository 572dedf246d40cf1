package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// ErrStopTimeout is returned by [Broker.Close] if something did not end in
// time; the store is then left open, to be recovered by the next start.
var ErrStopTimeout = errors.New("broker did not stop in time")

// Broker is an MQTT broker with inboxes. Its methods may be called concurrently.
type Broker struct {
	options   Options
	store     inbox.Store
	service   *pull.Service
	server    *mqtt.Server
	hook      *hooks.Hook
	endpoints []*endpoint
	api       *api
	http      []*httpListener
	failed    chan error // the first listener that failed

	mu      sync.Mutex // guards serving and closing
	serving bool
	closing bool

	stopped chan struct{} // closed when Close has finished
	stopErr error         // to be read after stopped
}

// storeFailure is what a store has that can fail for good, as one does whose
// commit was refused: what is in memory then differs from what is stored, so
// that nothing may be acknowledged any more.
type storeFailure interface {
	Failed() <-chan struct{} // closed at the failure
	Err() error
}

// New opens the store and binds every address. Nobody is served before Serve.
func New(o Options) (*Broker, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("broker options: %w", err)
	}
	o = o.withDefaults()
	store, err := openStore(o)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		options: o,
		store:   store,
		server:  newServer(o),
		failed:  make(chan error, 1),
		stopped: make(chan struct{}),
	}
	b.service = newService(store, o)
	b.api = newAPI(b)
	if err := b.attach(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func openStore(o Options) (inbox.Store, error) {
	if o.Store != nil {
		return o.Store, nil
	}
	return badger.Open(badger.Options{
		Dir: o.Dir, Retention: o.Retention, KeepQoS0: o.KeepQoS0,
		StreamFrom: o.StreamFrom, Push: o.Push, Pull: o.Pull, History: o.History, Rewind: o.Rewind, Log: o.Log,
	})
}

// newService returns what answers receivers who ask for their inboxes, and
// readers of history.
func newService(store inbox.Store, o Options) *pull.Service {
	options := pull.Options{Rewind: o.Rewind > 0, Log: o.Log}
	if o.Access != nil {
		options.Rules = readRules{o.Access}
	}
	return pull.New(store, options)
}

// newServer returns a mochi server that leaves to the hook what the hook does.
func newServer(o Options) *mqtt.Server {
	c := mqtt.NewDefaultServerCapabilities()
	c.MaximumMessageExpiryInterval = 0 // a message expires when its publisher said so, and retained ones stay
	c.MaximumClientWritesPending = 512 // allocated per client; QoS 1 and 2 do not go through it
	c.MaximumPacketSize = uint32(o.MaxPacketSize)
	c.MaximumSessionExpiryInterval = uint32(o.MaxSessionExpiry)
	c.ReceiveMaximum = 1024
	c.TopicAliasMaximum = 32                            // a client makes the server keep so many topics, of 64 KiB each
	c.Compatibilities.NoInheritedPropertiesOnAck = true // user properties of a PUBLISH do not belong in its PUBACK
	return mqtt.New(&mqtt.Options{
		Capabilities:             c,
		ClientNetWriteBufferSize: 1, // the hook's connection buffers; mochi's buffer can keep a packet back
		ClientNetReadBufferSize:  16 << 10,
		Logger:                   mochiLog(o.Log),
		SysTopicResendInterval:   1,
	})
}

// attach adds the hooks and the listeners.
func (b *Broker) attach() error {
	access := &accessHook{access: b.options.Access}
	hook, err := hooks.New(b.store, hooks.Options{
		Window:          b.options.Window,
		ConnectTimeout:  b.options.ConnectTimeout,
		SessionExpiryV3: b.options.SessionExpiry,
		KeepQoS0:        b.options.KeepQoS0,
		Metadata:        b.options.Metadata,
		ModeOf:          modeOf(b.options.PullUsers),
		MaxKeepAlive:    uint16(b.options.MaxKeepAlive / time.Second),
		Pull:            b.service,
		MayPublish:      func(cl *mqtt.Client, topic string) bool { return access.OnACLCheck(cl, topic, true) },
		Log:             b.options.Log,
	})
	if err != nil {
		return fmt.Errorf("make inbox hook: %w", err)
	}
	b.hook = hook
	if err := hook.Attach(b.server); err != nil {
		return fmt.Errorf("attach inbox hook: %w", err)
	}
	if err := b.server.AddHook(access, nil); err != nil {
		return fmt.Errorf("add access hook: %w", err)
	}
	if err := b.server.AddHook(&sysHook{server: b.server, store: b.store}, nil); err != nil {
		return fmt.Errorf("add $SYS hook: %w", err)
	}
	return b.listen()
}

// modeOf returns the function that hooks ask for the mode of a user, nil if it is
// nobody's.
func modeOf(pullUsers []string) func(user string) inbox.Mode {
	if len(pullUsers) == 0 {
		return nil
	}
	pulls := make(map[string]bool, len(pullUsers))
	for _, user := range pullUsers {
		pulls[user] = true
	}
	return func(user string) inbox.Mode {
		if pulls[user] {
			return inbox.ModePull
		}
		return inbox.ModeKept
	}
}

// listen binds every address and gives the listeners to the mochi server.
func (b *Broker) listen() error {
	for _, address := range b.options.TCP {
		l, err := listenTCP(address)
		if err := b.add("tcp", l, err); err != nil {
			return err
		}
	}
	for _, address := range b.options.WebSocket {
		l, err := listenTCP(address)
		if err == nil {
			l = listenWebSocket(l, b.options.Origins, b.options.ConnectTimeout)
		}
		if err := b.add("ws", l, err); err != nil {
			return err
		}
	}
	for _, path := range b.options.Unix {
		l, err := listenUnix(path)
		if err := b.add("unix", l, err); err != nil {
			return err
		}
	}
	for _, address := range b.options.HTTP {
		l, err := listenTCP(address)
		if err != nil {
			return err
		}
		b.http = append(b.http, newHTTPListener(l, b.api, b.options))
	}
	return nil
}

// add takes over a listener, unless binding it failed.
func (b *Broker) add(protocol string, l net.Listener, err error) error {
	if err != nil {
		return err
	}
	id := fmt.Sprintf("%s-%d", protocol, len(b.endpoints)+1)
	e := newEndpoint(id, protocol, l, b.options.Log, b.failing(protocol, l))
	b.endpoints = append(b.endpoints, e)
	if err := b.server.AddListener(b.hook.Listener(e)); err != nil {
		return fmt.Errorf("add listener %s %s: %w", protocol, l.Addr(), err)
	}
	return nil
}

// failing returns what to call when a listener can no longer do its work.
func (b *Broker) failing(protocol string, l net.Listener) func(error) {
	return func(err error) {
		select {
		case b.failed <- fmt.Errorf("listener %s %s failed: %w", protocol, l.Addr(), err):
		default: // one is enough to end
		}
	}
}

// Addresses returns what the broker listens on, in the order TCP, WebSocket,
// unix sockets, HTTP of the options: "host:port" with the real port, or the path.
func (b *Broker) Addresses() []string {
	addresses := make([]string, 0, len(b.endpoints)+len(b.http))
	for _, e := range b.endpoints {
		addresses = append(addresses, e.Address())
	}
	for _, h := range b.http {
		addresses = append(addresses, h.listener.Addr().String())
	}
	return addresses
}

// Serve lets clients in, and returns when ctx ends, when Close is called, or
// when the store or a listener fails. The broker is closed when it returns. The
// error is nil if it was asked to end and did so cleanly. It may be called once.
func (b *Broker) Serve(ctx context.Context) error {
	if err := b.start(); err != nil {
		return err
	}

	var storeFailed <-chan struct{} // nil, which never fires, for a store that cannot fail
	failing, ok := b.store.(storeFailure)
	if ok {
		storeFailed = failing.Failed()
	}
	select {
	case <-ctx.Done():
		return b.Close()
	case <-b.stopped:
		return b.stopErr
	case err := <-b.failed:
		return errors.Join(err, b.Close())
	case <-storeFailed:
		return errors.Join(fmt.Errorf("the store failed, nothing can be acknowledged any more: %w", failing.Err()), b.Close())
	}
}

// start starts the server and with it the listeners.
func (b *Broker) start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.serving || b.closing {
		return errors.New("broker: Serve after Serve or Close")
	}
	b.serving = true
	for _, e := range b.endpoints {
		e.serving.Add(1)
		b.options.Log.Info("listening", "protocol", e.protocol, "address", e.Address())
	}
	for _, h := range b.http {
		h.start(b.failing("http", h.listener))
		b.options.Log.Info("listening", "protocol", "http", "address", h.listener.Addr().String())
	}
	return b.server.Serve() // cannot fail: it has no listeners or hooks to load
}

// Close ends the broker in reverse order of its start, and returns when all of
// it has ended or StopTimeout is over. Later calls wait for the first.
func (b *Broker) Close() error {
	b.mu.Lock()
	first, served := !b.closing, b.serving
	b.closing = true
	b.mu.Unlock()
	if first {
		start := time.Now()
		b.stopErr = b.stop(start)
		close(b.stopped)
		if served && b.stopErr == nil {
			b.options.Log.Info("stopped", "took", time.Since(start).Round(time.Millisecond))
		}
	}
	<-b.stopped
	return b.stopErr
}

func (b *Broker) stop(start time.Time) error {
	left := func() time.Duration { return b.options.StopTimeout - time.Since(start) }

	// The listeners take nobody new. What was asked over HTTP is answered.
	if !finishes(left(), func() { b.stopHTTP(min(httpGrace, left()/2)) }) {
		return fmt.Errorf("%w: requests over HTTP are still under way", ErrStopTimeout)
	}
	// The clients are told [MQTT-4.13.1-1] and cut off if they do not go, and their
	// sessions are given back to the store.
	if !finishes(left(), b.stopServer) {
		return fmt.Errorf("%w: connections are still open", ErrStopTimeout)
	}
	// Then the store, which first writes what was handed over to it.
	var err error
	if !finishes(left(), func() { err = b.store.Close() }) {
		return fmt.Errorf("%w: the store is still writing", ErrStopTimeout)
	}
	if err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// stopHTTP returns when all requests have ended: those that have begun may take
// as long as grace says, and then are cut off.
func (b *Broker) stopHTTP(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var stopping sync.WaitGroup
	for _, h := range b.http {
		stopping.Go(func() { h.stop(ctx) })
	}
	stopping.Wait()
	b.api.wait()
}

// stopServer returns when the server and the hook have ended.
func (b *Broker) stopServer() {
	_ = b.server.Close() // always nil
	if b.hook != nil {
		b.hook.Wait()
	}
	for _, e := range b.endpoints {
		e.serving.Wait()
	}
}

// finishes reports whether f, which goes on in any case, returns within d.
func finishes(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
