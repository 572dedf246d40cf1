package hooks

import (
	"context"
	"errors"
	"strings"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// maxLevels is the most levels that a topic or a filter may have. The MQTT
// library takes time in the square of them, with its index locked.
const maxLevels = 200

// OnPublish gives messages of QoS 1 and 2, and some of QoS 0, to the store, after
// the MQTT library has checked them and the publisher's right to publish, and takes
// what is asked of an inbox. It turns them into messages that the library has nothing left to do for: no
// acknowledgement, no delivery, nothing kept.
func (h *Hook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	l := linkOf(cl)
	switch {
	case l != nil && isInbox(pk.TopicName):
		l.requests.ask(&pk)
	case isInbox(pk.TopicName):
		return pk, packets.ErrRejectPacket // the program has no inbox of its own
	case pk.FixedHeader.Qos > 0 && l != nil:
		h.publish(l, &pk)
	case pk.FixedHeader.Qos > 0:
		h.publishInline(cl, &pk)
	case l != nil && !validTopic(pk.TopicName), strings.Count(pk.TopicName, "/") >= maxLevels:
		return pk, packets.ErrRejectPacket // with nobody to tell
	case h.storesPlain(l, &pk):
		h.publishPlain(l, cl, &pk)
	default:
		if l != nil {
			h.restores.wait(l.ctx, pk.TopicName)
		}
		return pk, nil
	}
	pk.FixedHeader.Qos, pk.PacketID, pk.Ignore = 0, 0, true
	return pk, nil
}

// publish stores a message of a client and has it acknowledged on the client's
// link, and on no other: a packet id means nothing there. Runs on the
// connection's read goroutine.
func (h *Hook) publish(l *link, pk *packets.Packet) {
	kind, id := ackOf(pk), pk.PacketID
	if !validTopic(pk.TopicName) {
		l.refuseTopic(kind, id, pk.TopicName)
		return
	}
	if !l.out.admit(kind, id, int(h.server.Options.Capabilities.ReceiveMaximum)) {
		_ = l.fail(packets.ErrReceiveMaximum)
		return
	}

	e := envelopeOf(l.client, pk, l.in.seen)
	done := func(receipt inbox.Receipt, err error) { h.settle(l, kind, id, e, receipt, err) }
	if kind == packets.Pubrec {
		l.session.inbox.Publish(l.ctx, id, e, done) // once, however often it comes [MQTT-4.3.3-10]
	} else {
		h.store.Append(l.ctx, e, done)
	}
}

// ackOf returns the packet type that answers a message of QoS 1 or 2.
func ackOf(pk *packets.Packet) byte {
	if pk.FixedHeader.Qos == 2 {
		return packets.Pubrec
	}
	return packets.Puback
}

// settle tells the publisher what became of a message. Runs on a goroutine of
// the store, no lock held.
func (h *Hook) settle(l *link, kind byte, id uint16, e *inbox.Envelope, receipt inbox.Receipt, err error) {
	h.note(e, err)
	v := judge(receipt, err, l.v5)
	if v.cut {
		l.end(v.code)
	}
	var named inbox.MessageID
	if l.namesAcks && err == nil && e.MessageID() != "" {
		named = receipt.ID
	}
	l.out.settle(kind, id, v.code.Code, named)
}

// storesPlain reports whether a message of QoS 0 goes through the store, which
// costs it a commit, rather than being delivered by the MQTT library at once. l is
// nil if the program itself publishes it.
func (h *Hook) storesPlain(l *link, pk *packets.Packet) bool {
	switch {
	case isSystem(pk.TopicName):
		return false
	case h.options.KeepQoS0, pk.FixedHeader.Retain:
		return true // the store keeps it
	case h.misindexed.Load() > 0:
		return true // the library would not find everyone
	case l == nil:
		return h.plainStored.Load() || h.restores.matching(pk.TopicName) != nil // nobody of the program's is made to wait
	case leavesOut(pk, l.in.seen):
		return true
	}
	return l.noLocal || // which the library takes for all subscriptions of a client or none
		l.plainStored // an earlier one must not be overtaken [MQTT-4.6.0-6]
}

// leavesOut reports whether the MQTT library would leave out a property of a
// message: to it one that is empty or 0 is absent [MQTT-3.3.2-16].
func leavesOut(pk *packets.Packet, seen propertySet) bool {
	p := &pk.Properties
	return p.CorrelationData != nil && len(p.CorrelationData) == 0 ||
		p.MessageExpiryInterval == 0 && seen.has(packets.PropMessageExpiryInterval)
}

// publishPlain stores a message of QoS 0, with nobody to acknowledge it to.
func (h *Hook) publishPlain(l *link, cl *mqtt.Client, pk *packets.Packet) {
	ctx, seen := context.Background(), propertySet(0)
	if l != nil {
		ctx, seen = l.ctx, l.in.seen
		l.plainStored = true
	} else {
		h.plainStored.Store(true)
	}
	e := envelopeOf(cl, pk, seen)
	h.store.Append(ctx, e, func(_ inbox.Receipt, err error) { h.note(e, err) })
}

// publishInline stores a message of QoS 1 or 2 that the program itself publishes,
// with nobody to acknowledge it to. The store's errors are logged.
func (h *Hook) publishInline(cl *mqtt.Client, pk *packets.Packet) {
	e := envelopeOf(cl, pk, 0)
	h.store.Append(context.Background(), e, func(_ inbox.Receipt, err error) { h.note(e, err) })
}

// note logs the error of a message that is not stored, if it is not a matter
// between the store and this publisher. Runs on a goroutine of the store.
func (h *Hook) note(e *inbox.Envelope, err error) {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, inbox.ErrClosed), errors.Is(err, inbox.ErrFenced):
	default:
		h.counts.refused.Add(1)
		h.log.Warn("message not stored", "client", e.Client, "topic", e.Topic, "error", err)
	}
}

// refuse tells a publisher that a message is not taken. Before MQTT 5 the only
// way is to end the connection.
func (l *link) refuse(kind byte, id uint16, code packets.Code) {
	if v := refuse(code, l.v5); v.cut {
		l.end(v.code)
	} else {
		l.out.ack(kind, id, v.code.Code)
	}
}

// refuseTopic tells a publisher that its topic is not one for clients. Before
// MQTT 5 a message to a topic of the server's own is acknowledged all the same:
// it has no receivers who could miss it, and its publisher would send it again on
// each connection [MQTT-3.3.5-2].
func (l *link) refuseTopic(kind byte, id uint16, topic string) {
	if !l.v5 && strings.HasPrefix(topic, "$") {
		l.out.ack(kind, id, packets.CodeSuccess.Code)
		return
	}
	l.refuse(kind, id, packets.ErrTopicNameInvalid)
}

// isSystem reports whether a topic or a filter is of the server's own values,
// which the MQTT library publishes and retains.
func isSystem(name string) bool { return strings.HasPrefix(name, mqtt.SysPrefix) }

// validTopic reports whether clients may publish to a topic. Those that begin
// with $ are the server's own.
func validTopic(topic string) bool {
	return topic != "" && topic[0] != '$' && strings.Count(topic, "/") < maxLevels
}

// envelopeOf returns what is kept of a PUBLISH packet. The envelope shares the
// packet's memory, which belongs to nobody else. seen are the properties that its
// frame had, if there was one.
func envelopeOf(cl *mqtt.Client, pk *packets.Packet, seen propertySet) *inbox.Envelope {
	now := time.Now()
	e := &inbox.Envelope{
		Time:    now.UnixMilli(),
		Topic:   pk.TopicName,
		Payload: pk.Payload,
		QoS:     pk.FixedHeader.Qos,
		Retain:  pk.FixedHeader.Retain,
		Client:  cl.ID,
		User:    string(cl.Properties.Username),
	}
	setProperties(e, &pk.Properties, seen, now)
	return e
}

// setProperties copies the MQTT 5 properties that go to every receiver
// unchanged, and makes the expiry interval a point in time.
func setProperties(e *inbox.Envelope, p *packets.Properties, seen propertySet, now time.Time) {
	e.ContentType = p.ContentType
	e.ResponseTopic = p.ResponseTopic
	e.CorrelationData = p.CorrelationData
	if p.MessageExpiryInterval > 0 || seen.has(packets.PropMessageExpiryInterval) {
		e.Expiry = expiryOf(p.MessageExpiryInterval, now)
	}
	if p.PayloadFormatFlag {
		e.PayloadFormat = inbox.FormatBytes + inbox.PayloadFormat(p.PayloadFormat&1)
	}
	if len(p.User) > 0 {
		e.UserProperties = make([]inbox.UserProperty, len(p.User))
		for i, u := range p.User {
			e.UserProperties[i] = inbox.UserProperty{Key: u.Key, Value: u.Val}
		}
	}
}

// packetOf returns a message in the MQTT library's form.
func packetOf(e *inbox.Envelope, qos byte) packets.Packet {
	pk := packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Publish, Qos: qos, Retain: e.Retain},
		ProtocolVersion: 5,
		TopicName:       e.Topic,
		Payload:         e.Payload,
		Origin:          e.Client,
		Created:         e.Time / 1000,
		Properties: packets.Properties{
			ContentType:     e.ContentType,
			ResponseTopic:   e.ResponseTopic,
			CorrelationData: e.CorrelationData,
		},
	}
	if e.Expiry > 0 {
		pk.Expiry = e.Expiry / 1000
	}
	if e.PayloadFormat != inbox.FormatAbsent {
		pk.Properties.PayloadFormatFlag = true
		pk.Properties.PayloadFormat = byte(e.PayloadFormat - inbox.FormatBytes)
	}
	for _, u := range e.UserProperties {
		pk.Properties.User = append(pk.Properties.User, packets.UserProperty{Key: u.Key, Val: u.Value})
	}
	return pk
}
