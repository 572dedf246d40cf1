package hooks

import (
	"bytes"
	"encoding/binary"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// inspect judges a frame of a client that is connected, before the MQTT library
// decodes it: it returns the packets.Code with which the connection ends, or nil,
// and which properties a PUBLISH has, which the library does not tell in full.
// It refuses what the protocol forbids and the library lets pass, or panics at.
//
// header is the length of the fixed header, frame that of the whole frame; b has
// of it what reach asks for. What depends on more than the frame (an alias that
// was never set, a packet id in use, a topic that nobody may publish to) is
// judged later.
//
// Cost: about 50 ns for a PUBLISH without properties, and no allocation.
func inspect(b []byte, header, frame int, v5 bool) (seen propertySet, err error) {
	kind, flags := b[0]>>4, b[0]&0x0F
	if v5 && lengthSize(frame-header) != header-1 {
		return 0, packets.ErrMalformedVariableByteInteger // [MQTT-1.5.5-1]
	}
	s := scan{rest: b[header:]}
	switch kind {
	case packets.Publish:
		seen = s.publish(flags, v5)
		return seen, s.fault
	case packets.Pubrel, packets.Subscribe, packets.Unsubscribe: // [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1]
		if flags != 2 {
			return 0, packets.ErrMalformedFlags
		}
	default:
		if flags != 0 {
			return 0, packets.ErrMalformedFlags // [MQTT-2.1.3-1]
		}
	}

	switch kind {
	case packets.Connect:
		return 0, packets.ErrProtocolViolationSecondConnect // [MQTT-3.1.0-2]
	case packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp:
		s.ack(kind, v5)
	case packets.Subscribe:
		s.subscribe(v5)
	case packets.Unsubscribe:
		s.unsubscribe(v5)
	case packets.Pingreq:
	case packets.Disconnect:
		s.disconnect(v5)
	case packets.Reserved:
		return 0, packets.ErrMalformedPacket
	default:
		// CONNACK, SUBACK, UNSUBACK and PINGRESP come from a server, and AUTH from
		// a client that is authenticated in a way that none is here [MQTT-4.12.0-7].
		return 0, packets.ErrProtocolViolation
	}
	s.end()
	return 0, s.fault
}

// oldConnect reports whether a CONNECT that has passed inspection is of MQTT 3.1,
// and clears what that version does not use and later ones reserve.
func oldConnect(b []byte, header int) bool {
	name := int(binary.BigEndian.Uint16(b[header:]))
	if b[header+2+name] != 3 {
		return false
	}
	oldFlags(b)
	b[header+2+name+1] &^= connectReserved
	return true
}

// oldFlags makes the fixed header's flags those of later versions. In MQTT 3.1
// they mean nothing in most packets, and SUBSCRIBE, UNSUBSCRIBE and PUBREL are
// marked as duplicates when they are sent again.
func oldFlags(b []byte) {
	switch kind := b[0] >> 4; kind {
	case packets.Publish:
		if !hasPacketID(b) {
			b[0] &^= 1 << 3
		}
	case packets.Pubrel, packets.Subscribe, packets.Unsubscribe:
		b[0] = kind<<4 | 2
	default:
		b[0] = kind << 4
	}
}

// reach returns how many bytes of a frame inspect needs to see, as far as the
// first ones tell: of a PUBLISH those before the payload, of others all.
func reach(b []byte, header, frame int, v5 bool) int {
	if b[0]>>4 != packets.Publish {
		return frame
	}
	n := header + 2
	if len(b) < n {
		return min(n, frame)
	}
	n += int(binary.BigEndian.Uint16(b[header:]))
	if hasPacketID(b) {
		n += 2
	}
	if !v5 {
		return min(n, frame)
	}
	if len(b) < n+4 {
		return min(n+4, frame)
	}
	s := scan{rest: b[n:]}
	properties := s.length()
	return min(n+lengthSize(properties)+properties, frame)
}

// publish reads a PUBLISH up to its payload, and returns its properties.
func (s *scan) publish(flags byte, v5 bool) (seen propertySet) {
	qos := flags >> 1 & 3
	switch {
	case qos == 3:
		s.fail(packets.ErrMalformedQos) // [MQTT-3.3.1-4]
	case qos == 0 && flags&(1<<3) != 0:
		s.fail(packets.ErrMalformedFlags) // [MQTT-3.3.1-2]
	}
	topic := s.topic() // [MQTT-3.3.2-1] [MQTT-3.3.2-2]
	if qos > 0 {
		s.packetID()
	}
	if v5 {
		seen = s.properties(packets.Publish)
	}
	if len(topic) == 0 && !seen.has(packets.PropTopicAlias) {
		s.fail(packets.ErrProtocolViolationNoTopic) // [MQTT-4.7.3-1]
	}
	return seen
}

// ack reads what PUBACK, PUBREC, PUBREL and PUBCOMP have in common.
func (s *scan) ack(kind byte, v5 bool) {
	s.packetID()
	if !v5 || len(s.rest) == 0 {
		return
	}
	if code := s.byte(); !ackCode(kind, code) {
		s.fail(packets.ErrProtocolViolationInvalidReason) // [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1]
	}
	if len(s.rest) > 0 {
		s.properties(kind)
	}
}

// ackCode reports whether an acknowledgement can have a reason code.
func ackCode(kind, code byte) bool {
	if kind == packets.Pubrel || kind == packets.Pubcomp {
		return code == packets.CodeSuccess.Code || code == packets.ErrPacketIdentifierNotFound.Code
	}
	switch code {
	case packets.CodeSuccess.Code, packets.CodeNoMatchingSubscribers.Code,
		packets.ErrUnspecifiedError.Code, packets.ErrImplementationSpecificError.Code,
		packets.ErrNotAuthorized.Code, packets.ErrTopicNameInvalid.Code,
		packets.ErrPacketIdentifierInUse.Code, packets.ErrQuotaExceeded.Code,
		packets.ErrPayloadFormatInvalid.Code:
		return true
	}
	return false
}

// subscribe reads a SUBSCRIBE. Whether a filter is one is judged later: SUBACK
// can refuse one of many.
func (s *scan) subscribe(v5 bool) {
	s.packetID()
	if v5 {
		s.properties(packets.Subscribe)
	}
	if len(s.rest) == 0 {
		s.fail(packets.ErrProtocolViolationNoFilters) // [MQTT-3.8.3-2]
	}
	for len(s.rest) > 0 {
		filter := s.text() // [MQTT-3.8.3-1]
		options := s.byte()
		switch {
		case !v5 && options > 2:
			s.fail(packets.ErrMalformedQos) // [MQTT-3-8.3-4] of 3.1.1
		case options&0xC0 != 0:
			s.fail(packets.ErrMalformedFlags) // [MQTT-3.8.3-5]
		case options&3 == 3:
			s.fail(packets.ErrProtocolViolationQosOutOfRange)
		case options>>4 == 3:
			s.fail(packets.ErrProtocolViolation) // retain handling
		case options&(1<<2) != 0 && bytes.HasPrefix(filter, []byte(inbox.SharePrefix)):
			s.fail(packets.ErrProtocolViolationInvalidSharedNoLocal) // [MQTT-3.8.3-4]
		}
	}
}

// unsubscribe reads an UNSUBSCRIBE.
func (s *scan) unsubscribe(v5 bool) {
	s.packetID()
	if v5 {
		s.properties(packets.Unsubscribe)
	}
	if len(s.rest) == 0 {
		s.fail(packets.ErrProtocolViolationNoFilters) // [MQTT-3.10.3-2]
	}
	for len(s.rest) > 0 {
		s.text() // [MQTT-3.10.3-1]
	}
}

// disconnect reads a DISCONNECT.
func (s *scan) disconnect(v5 bool) {
	if !v5 || len(s.rest) == 0 {
		return
	}
	if code := s.byte(); !disconnectCode(code) {
		s.fail(packets.ErrProtocolViolationInvalidReason) // [MQTT-3.14.2-1]
	}
	if len(s.rest) > 0 {
		s.properties(packets.Disconnect)
	}
}

// disconnectCode reports whether a client can disconnect with a reason code.
func disconnectCode(code byte) bool {
	switch code {
	case packets.CodeDisconnect.Code, packets.CodeDisconnectWillMessage.Code,
		packets.ErrUnspecifiedError.Code, packets.ErrMalformedPacket.Code,
		packets.ErrProtocolViolation.Code, packets.ErrImplementationSpecificError.Code,
		packets.ErrTopicNameInvalid.Code, packets.ErrReceiveMaximum.Code,
		packets.ErrTopicAliasInvalid.Code, packets.ErrPacketTooLarge.Code,
		packets.ErrMessageRateTooHigh.Code, packets.ErrQuotaExceeded.Code,
		packets.ErrAdministrativeAction.Code, packets.ErrPayloadFormatInvalid.Code:
		return true
	}
	return false
}
