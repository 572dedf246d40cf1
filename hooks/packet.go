package hooks

import (
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// OnPacketRead looks at every packet of a client before the MQTT library acts on
// it: it meets the client, and puts right what the library gets wrong.
func (h *Hook) OnPacketRead(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	l := linkOf(cl)
	if l == nil {
		return pk, nil
	}
	switch pk.FixedHeader.Type {
	case packets.Connect:
		if l.client == nil {
			return h.readConnect(l, cl, pk), nil
		}
	case packets.Publish:
		return h.readPublish(l, pk)
	}
	return pk, nil
}

// readPublish refuses what the server has said it does not take, and replaces a
// topic alias by the topic, so that everyone who looks at the packet, the access
// rules first, sees the topic.
func (h *Hook) readPublish(l *link, pk packets.Packet) (packets.Packet, error) {
	capabilities := h.server.Options.Capabilities
	switch {
	case pk.FixedHeader.Qos > capabilities.MaximumQos:
		l.end(packets.ErrQosNotSupported) // [MQTT-3.2.2-11]
		return pk, packets.ErrRejectPacket
	case pk.FixedHeader.Retain && capabilities.RetainAvailable == 0 && l.v5:
		l.end(packets.ErrRetainNotSupported) // [MQTT-3.2.2-14]
		return pk, packets.ErrRejectPacket
	}
	pk.FixedHeader.Retain = pk.FixedHeader.Retain && capabilities.RetainAvailable != 0

	alias := pk.Properties.TopicAlias
	if !pk.Properties.TopicAliasFlag || alias == 0 || alias > capabilities.TopicAliasMaximum {
		return pk, nil // without one, or for the library to refuse
	}
	pk.TopicName = l.client.State.TopicAliases.Inbound.Set(alias, pk.TopicName)
	if pk.TopicName == "" {
		l.end(packets.ErrProtocolViolationNoTopic) // an alias that was never set
		return pk, packets.ErrRejectPacket
	}
	pk.Properties.TopicAlias, pk.Properties.TopicAliasFlag = 0, false
	return pk, nil
}

// OnPacketProcessed comes after the MQTT library has acted on a packet.
func (h *Hook) OnPacketProcessed(cl *mqtt.Client, pk packets.Packet, err error) {
	l := linkOf(cl)
	if l == nil {
		return
	}
	if pk.FixedHeader.Type == packets.Subscribe {
		l.out.release() // whatever became of it
	}
	if err != nil {
		return
	}
	switch pk.FixedHeader.Type {
	case packets.Disconnect:
		l.goodbye = true // of any reason but 0 there is an error [MQTT-3.14.4-3]
	case packets.Publish:
		// The library passes over in silence a message to a topic of the
		// server's own, of which its publisher would never hear again.
		if pk.FixedHeader.Qos > 0 && !mqtt.IsValidFilter(pk.TopicName, true) {
			l.refuseTopic(ackOf(&pk), pk.PacketID, pk.TopicName)
		}
	}
}

// roomBesideReason is more than the packets have beside their reason strings that
// may have one: CONNACK, DISCONNECT and acknowledgements.
const roomBesideReason = 200

// OnPacketEncode corrects what the MQTT library says of what it does not know.
func (h *Hook) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	l := linkOf(cl)
	if l == nil {
		return pk
	}
	switch pk.FixedHeader.Type {
	case packets.Connack:
		h.completeConnack(l, &pk)
	case packets.Publish:
		pk.Mods.DisallowProblemInfo = false // a message's properties are not the server's [MQTT-3.1.2-29]
	case packets.Suback:
		pk.Properties.User = nil // which the library takes from the SUBSCRIBE
		if l.subscribing.reason != "" {
			pk.Properties.ReasonString = l.subscribing.reason
		}
	case packets.Unsuback:
		pk.Properties.User = nil
		if l.v5 && len(l.subscribing.unsuback) == len(pk.ReasonCodes) {
			pk.ReasonCodes = l.subscribing.unsuback
		}
	case packets.Puback, packets.Pubrec:
		// The library refuses a message with the properties that it had.
		pk.Properties = packets.Properties{ReasonString: pk.Properties.ReasonString}
	}
	// The library would not send the packet at all if the reason made it too large
	// for the client [MQTT-3.2.2-19].
	if most := int(pk.Mods.MaxSize); most > 0 && len(pk.Properties.ReasonString) > most-roomBesideReason {
		pk.Properties.ReasonString = ""
	}
	return pk
}
