package hooks

import (
	"context"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// OnWill gives wills of QoS 1 and 2 to the store, like any other message, and
// leaves the MQTT library an empty one, which matches nothing. Wills of QoS 0 are
// the library's.
func (h *Hook) OnWill(cl *mqtt.Client, will mqtt.Will) (mqtt.Will, error) {
	l := linkOf(cl)
	if l == nil || will.Qos == 0 {
		return will, nil
	}
	h.publishWill(l, &will)
	cl.Properties.Will = mqtt.Will{} // also ends the delay, which the library would keep for the empty one
	return mqtt.Will{}, nil
}

// publishWill stores the will of a connection that has ended. Runs on its read
// goroutine, for which a new connection of the same client may be waiting.
func (h *Hook) publishWill(l *link, will *mqtt.Will) {
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
	if !validTopic(e.Topic) {
		h.note(e, packets.ErrTopicNameInvalid)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handover)
	defer cancel()
	h.take(ctx, e, func(_ inbox.Receipt, err error) { h.note(e, err) })
}
