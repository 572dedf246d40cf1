package hooks

import (
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The store has the will of a client from before CONNACK until the client has
// taken its leave, and publishes it otherwise: after its delay or at the end of
// the session, over crashes too. The MQTT library never sees it, because it
// knows neither the will's properties nor sessions, and would deliver it past
// the store and the access rules.

// judgeWill returns why a client may not have its will, or CodeSuccess: whoever
// may not publish to the topic may not have it done later. It is asked once,
// after the client has proved who it is; rules that change after that do not
// touch the will of a connection that exists.
func (h *Hook) judgeWill(l *link) packets.Code {
	c, capabilities := &l.connect, h.server.Options.Capabilities
	switch {
	case !c.WillFlag:
		return packets.CodeSuccess
	case !validTopic(c.WillTopic):
		return packets.ErrTopicNameInvalid
	case c.WillRetain && capabilities.RetainAvailable == 0:
		return packets.ErrRetainNotSupported // [MQTT-3.2.2-13]
	case c.WillQos > capabilities.MaximumQos:
		return packets.ErrQosNotSupported // [MQTT-3.2.2-12]
	case h.options.MayPublish != nil && !h.options.MayPublish(l.client, c.WillTopic):
		return packets.ErrNotAuthorized
	}
	return packets.CodeSuccess
}

// willOf returns the will of a client, nil if it has none. seen are its properties.
func willOf(cl *mqtt.Client, c *packets.ConnectParams, seen propertySet) *inbox.Will {
	if !c.WillFlag {
		return nil
	}
	e := &inbox.Envelope{
		Time:    time.Now().UnixMilli(),
		Topic:   c.WillTopic,
		Payload: c.WillPayload,
		QoS:     c.WillQos,
		Retain:  c.WillRetain,
		Client:  cl.ID,
		User:    string(cl.Properties.Username),
	}
	setProperties(e, &c.WillProperties, seen, time.UnixMilli(0)) // its expiry is an interval until it is published
	return &inbox.Will{Envelope: e, Delay: c.WillProperties.WillDelayInterval}
}
