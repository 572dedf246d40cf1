package hooks

import (
	"context"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// delayedWill is a will that waits, in memory, for its delay to pass or its
// session to end.
type delayedWill struct {
	envelope *inbox.Envelope
	timer    *time.Timer
}

// OnWill takes the will of a connection that has broken, and leaves the MQTT
// library an empty one, which matches nothing: the library knows neither the
// will's properties nor sessions, and would deliver it past the store.
func (h *Hook) OnWill(cl *mqtt.Client, will mqtt.Will) (mqtt.Will, error) {
	l := linkOf(cl)
	if l == nil {
		return will, nil
	}
	cl.Properties.Will = mqtt.Will{}
	h.leaveWill(l, &will)
	return mqtt.Will{}, nil
}

// lastWill is OnWill for a connection on which the MQTT library has panicked.
func (h *Hook) lastWill(l *link) {
	if l.session == nil || atomic.LoadUint32(&l.client.Properties.Will.Flag) == 0 {
		return
	}
	h.leaveWill(l, &l.client.Properties.Will)
}

// leaveWill publishes a will, or has it wait: for its delay, but not longer
// than the session lasts [MQTT-3.1.2-8]. Runs on the connection's read goroutine.
func (h *Hook) leaveWill(l *link, will *mqtt.Will) {
	now := time.Now()
	e := &inbox.Envelope{
		Time:    now.UnixMilli(),
		Topic:   will.TopicName,
		Payload: will.Payload,
		QoS:     will.Qos,
		Retain:  will.Retain,
		Client:  l.client.ID,
		User:    string(l.client.Properties.Username),
	}
	setProperties(e, &l.connect.WillProperties, now)

	delay := min(inbox.Expiry(l.connect.WillProperties.WillDelayInterval), h.expiry(l))
	if delay == 0 {
		h.publishWill(e)
		return
	}
	id := l.client.ID
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &delayedWill{envelope: e}
	h.timers.Add(1)
	w.timer = time.AfterFunc(time.Duration(delay)*time.Second, func() {
		defer h.timers.Done()
		if h.takeWill(id, w) {
			h.publishWill(e)
		}
	})
	h.wills[id] = w
}

// settleWill ends the wait of a client's will when the client is back: it is
// published if the session has ended [MQTT-3.1.2-8], and else not at all
// [MQTT-3.1.3-9].
func (h *Hook) settleWill(id string, resumed bool) {
	h.mu.Lock()
	w := h.wills[id]
	h.mu.Unlock()
	if w == nil || !h.takeWill(id, w) {
		return
	}
	if w.timer.Stop() {
		h.timers.Done()
	}
	if !resumed {
		h.publishWill(w.envelope)
	}
}

// takeWill reports whether the caller is the one to decide about a will.
func (h *Hook) takeWill(id string, w *delayedWill) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wills[id] != w {
		return false
	}
	delete(h.wills, id)
	return true
}

// dropWills forgets the wills that wait, and returns when none is being
// published.
func (h *Hook) dropWills() {
	h.mu.Lock()
	for id, w := range h.wills {
		delete(h.wills, id)
		if w.timer.Stop() {
			h.timers.Done()
		}
	}
	h.mu.Unlock()
	h.timers.Wait()
}

// publishWill gives a will to the store, like any other message. Its expiry
// counts from here. A new connection of the client may be waiting for it.
func (h *Hook) publishWill(e *inbox.Envelope) {
	left := e.Time
	e.Time = time.Now().UnixMilli()
	if e.Expiry > 0 {
		e.Expiry += e.Time - left
	}
	if !validTopic(e.Topic) {
		h.note(e, packets.ErrTopicNameInvalid)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handover)
	defer cancel()
	h.store.Append(ctx, e, func(_ inbox.Receipt, err error) { h.note(e, err) })
}
