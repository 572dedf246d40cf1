package hooks

import (
	"errors"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// readConnect meets a client. It takes away from the MQTT library what the
// library would refuse or get wrong: an empty password, which the protocol
// allows, and the will, which the store has.
func (h *Hook) readConnect(l *link, cl *mqtt.Client, pk packets.Packet) packets.Packet {
	l.client = cl
	l.v5 = pk.ProtocolVersion == 5
	l.out.speak(l.v5)
	l.out.alias(pk.Properties.TopicAliasMaximum, pk.Properties.MaximumPacketSize)
	l.connect = pk.Connect
	l.metadata = l.v5 && wantsMetadata(pk.Properties.User, h.options.Metadata)
	if l.v5 {
		var wrong string
		if l.wishes, wrong = readWishes(pk.Properties.User); wrong != "" {
			l.refused = refuseWish(wrong)
		}
	}
	l.namesAcks = l.v5 && (!pk.Properties.RequestProblemInfoFlag || pk.Properties.RequestProblemInfo != 0) && // [MQTT-3.1.2-29]
		(pk.Properties.MaximumPacketSize == 0 || pk.Properties.MaximumPacketSize >= uint32(namedAckSize)) // [MQTT-3.1.2-24]

	c := &pk.Connect
	c.PasswordFlag = c.PasswordFlag && len(c.Password) > 0
	c.WillFlag, c.WillRetain, c.WillQos = false, false, 0
	c.WillTopic, c.WillPayload, c.WillProperties = "", nil, packets.Properties{}
	return pk
}

// OnConnect takes a client up, before it has proved who it is.
func (h *Hook) OnConnect(cl *mqtt.Client, pk packets.Packet) error {
	l := linkOf(cl)
	if l == nil {
		h.log.Error("connection refused", "remote", cl.Net.Remote, "listener", cl.Net.Listener, "error", errNotLinked)
		return errors.Join(errNotLinked, h.server.SendConnack(cl, packets.ErrServerUnavailable, false, nil))
	}
	if longest := h.options.MaxKeepAlive; l.v5 && longest > 0 && (cl.State.Keepalive == 0 || cl.State.Keepalive > longest) {
		cl.State.Keepalive, cl.State.ServerKeepalive = longest, true // CONNACK says so [MQTT-3.1.2-21]
	}

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
	switch {
	case l.refused != packets.Code{}:
		// for what it wants of its inbox
	case h.server.Options.InlineClient && cl.ID == mqtt.InlineClientId:
		l.refused = packets.ErrClientIdentifierNotValid // it is the program's
	default:
		l.refused = h.judgeWill(l)
	}
	if l.refused == packets.CodeSuccess {
		l.refused = h.refusesOpen(l, &pk)
	}
	if l.session == nil && !l.turn {
		cl.ID = "" // so that the library ends no other connection of this client
	}
}

// refusesOpen opens the session, and returns CodeSuccess or why there is none.
func (h *Hook) refusesOpen(l *link, pk *packets.Packet) packets.Code {
	err := h.open(l, pk)
	switch {
	case err == nil:
		return packets.CodeSuccess
	case errors.Is(err, inbox.ErrUnknownID) && l.wishes.from != nil:
		return refuseWish(propertyFrom + ": there is no such message")
	}
	h.log.Warn("session not opened", "client", l.client.ID, "remote", l.client.Net.Remote, "error", err)
	return packets.ErrServerUnavailable
}

// refusal returns the code that CONNACK has for a reason. Before MQTT 5 there
// are five [MQTT-3.2.2-8].
func refusal(code packets.Code, v5 bool) byte {
	if v5 {
		return code.Code
	}
	switch code.Code {
	case packets.ErrUnsupportedProtocolVersion.Code:
		return packets.Err3UnsupportedProtocolVersion.Code
	case packets.ErrClientIdentifierNotValid.Code:
		return packets.Err3ClientIdentifierNotValid.Code
	case packets.ErrBadUsernameOrPassword.Code, packets.ErrNotAuthorized.Code, packets.ErrBanned.Code,
		packets.ErrTopicNameInvalid.Code, packets.ErrRetainNotSupported.Code, packets.ErrQosNotSupported.Code:
		return packets.Err3NotAuthorized.Code
	}
	return packets.Err3ServerUnavailable.Code
}

// completeConnack says whether there was a session, and what the server takes,
// which the MQTT library does not know.
func (h *Hook) completeConnack(l *link, pk *packets.Packet) {
	if pk.ReasonCode == packets.CodeSuccess.Code && l.session == nil {
		pk.ReasonCode = refusal(l.refused, l.v5)
		pk.Properties = packets.Properties{ReasonString: l.refused.Reason}
	}
	if pk.ReasonCode != packets.CodeSuccess.Code {
		pk.SessionPresent = false                              // [MQTT-3.2.2-6]
		if pk.ReasonCode >= packets.ErrUnspecifiedError.Code { // which the library says to older clients too
			pk.ReasonCode = refusal(packets.Code{Code: pk.ReasonCode}, l.v5)
		}
		return
	}
	h.resume(l)                                        // messages of QoS 0 come from here on
	pk.SessionPresent = l.session.resumed && !l.in.old // [MQTT-3.2.2-2] [MQTT-3.2.2-3]; MQTT 3.1 has no such flag
	capabilities := h.server.Options.Capabilities
	pk.Properties.MaximumPacketSize = capabilities.MaximumPacketSize
	pk.Properties.TopicAliasMaximum = capabilities.TopicAliasMaximum
	pk.Properties.RetainAvailable = capabilities.RetainAvailable
	pk.Properties.RetainAvailableFlag = capabilities.RetainAvailable == 0
	pk.Properties.SharedSubAvailable = 1
	pk.Properties.SharedSubAvailableFlag = true
	l.tellMode(pk)
}

// OnSessionEstablished starts the delivery, after CONNACK.
func (h *Hook) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	l := linkOf(cl)
	if l == nil {
		return
	}
	defer h.giveTurn(l)
	if l.session == nil {
		l.Close()
		return
	}
	l.beginWatch()
	l.session.joinGroups(l.session.subs)
	l.session.pumped = make(chan struct{})
	go l.session.pump()
	if l.restoring != nil {
		giveWay() // to the pump
		h.index(l.client, l.session.subs)
		h.restores.end(l.restoring)
	}
}
