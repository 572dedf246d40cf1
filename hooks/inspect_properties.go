package hooks

import "github.com/mochi-mqtt/server/v2/packets"

// shape is how the value of a property is written.
type shape byte

const (
	shapeNone   shape = iota // there is no such property
	shapeSwitch              // one byte, 0 or 1
	shapeUint16
	shapeUint32
	shapeLength // variable byte integer
	shapeBinary
	shapeText
	shapeTopic
	shapePair // two texts
)

// willProperties stands for the packet type where the properties of a will are
// meant, which are within a CONNECT. No packet has the type 0.
const willProperties = packets.Reserved

const (
	inWill       = 1 << willProperties
	inConnect    = 1 << packets.Connect
	inPublish    = 1 << packets.Publish
	inAck        = 1<<packets.Puback | 1<<packets.Pubrec | 1<<packets.Pubrel | 1<<packets.Pubcomp
	inSubscribe  = 1 << packets.Subscribe
	inDisconnect = 1 << packets.Disconnect
	inAny        = inWill | inConnect | inPublish | inAck | inSubscribe | 1<<packets.Unsubscribe | inDisconnect
)

// propertyRules are the properties of MQTT 5 by their identifier: how each is
// written, which packets of a client may have it, whether it may be 0, and which
// packets have it from a server alone.
var propertyRules = [...]struct {
	shape   shape
	in      uint16
	nonzero bool
	servers uint16
}{
	packets.PropPayloadFormat:          {shape: shapeSwitch, in: inPublish | inWill},
	packets.PropMessageExpiryInterval:  {shape: shapeUint32, in: inPublish | inWill},
	packets.PropContentType:            {shape: shapeText, in: inPublish | inWill},  // [MQTT-3.3.2-19]
	packets.PropResponseTopic:          {shape: shapeTopic, in: inPublish | inWill}, // [MQTT-3.3.2-13] [MQTT-3.3.2-14]
	packets.PropCorrelationData:        {shape: shapeBinary, in: inPublish | inWill},
	packets.PropSubscriptionIdentifier: {shape: shapeLength, in: inSubscribe, nonzero: true, servers: inPublish}, // [MQTT-3.3.4-6]
	packets.PropSessionExpiryInterval:  {shape: shapeUint32, in: inConnect | inDisconnect},
	packets.PropAssignedClientID:       {shape: shapeText},
	packets.PropServerKeepAlive:        {shape: shapeUint16},
	packets.PropAuthenticationMethod:   {shape: shapeText, in: inConnect},
	packets.PropAuthenticationData:     {shape: shapeBinary, in: inConnect},
	packets.PropRequestProblemInfo:     {shape: shapeSwitch, in: inConnect},
	packets.PropWillDelayInterval:      {shape: shapeUint32, in: inWill},
	packets.PropRequestResponseInfo:    {shape: shapeSwitch, in: inConnect},
	packets.PropResponseInfo:           {shape: shapeText},
	packets.PropServerReference:        {shape: shapeText, servers: inDisconnect},
	packets.PropReasonString:           {shape: shapeText, in: inAck | inDisconnect},
	packets.PropReceiveMaximum:         {shape: shapeUint16, in: inConnect, nonzero: true},
	packets.PropTopicAliasMaximum:      {shape: shapeUint16, in: inConnect},
	packets.PropTopicAlias:             {shape: shapeUint16, in: inPublish, nonzero: true}, // [MQTT-3.3.2-8]
	packets.PropMaximumQos:             {shape: shapeSwitch},
	packets.PropRetainAvailable:        {shape: shapeSwitch},
	packets.PropUser:                   {shape: shapePair, in: inAny},
	packets.PropMaximumPacketSize:      {shape: shapeUint32, in: inConnect, nonzero: true},
	packets.PropWildcardSubAvailable:   {shape: shapeSwitch},
	packets.PropSubIDAvailable:         {shape: shapeSwitch},
	packets.PropSharedSubAvailable:     {shape: shapeSwitch},
}

// propertySet has a bit for each property of a packet.
type propertySet uint64

func (p propertySet) has(id byte) bool { return p&(1<<id) != 0 }

// properties reads the properties of a packet of this type, each of which it may
// have once, except user properties.
func (s *scan) properties(kind byte) (seen propertySet) {
	n := s.length()
	if n == 0 {
		return 0
	}
	p := scan{rest: s.take(n)}
	for len(p.rest) > 0 {
		id := p.byte()
		if int(id) >= len(propertyRules) || propertyRules[id].shape == shapeNone {
			p.fail(packets.ErrMalformedBadProperty)
			break
		}
		rule := &propertyRules[id]
		value := p.value(rule.shape)
		switch {
		case rule.servers&(1<<kind) != 0:
			p.fail(packets.ErrProtocolViolationUnsupportedProperty)
		case rule.in&(1<<kind) == 0:
			p.fail(packets.ErrMalformedBadProperty) // section 2.2.2.2 has the code
		case seen.has(id) && id != packets.PropUser:
			p.fail(packets.ErrProtocolViolation)
		case rule.shape == shapeSwitch && value > 1:
			p.fail(packets.ErrProtocolViolation)
		case rule.nonzero && value == 0 && id == packets.PropTopicAlias:
			p.fail(packets.ErrTopicAliasInvalid)
		case rule.nonzero && value == 0:
			p.fail(packets.ErrProtocolViolation)
		}
		seen |= 1 << id
	}
	if p.fault != nil {
		s.fault, s.rest = p.fault, nil
	}
	return seen
}

// value reads the value of a property, and returns it if it is a number.
func (s *scan) value(shape shape) uint32 {
	switch shape {
	case shapeSwitch:
		return uint32(s.byte())
	case shapeUint16:
		return uint32(s.uint16())
	case shapeUint32:
		return s.uint32()
	case shapeLength:
		return uint32(s.length())
	case shapeBinary:
		s.binary()
	case shapeText:
		s.text()
	case shapeTopic:
		if len(s.topic()) == 0 {
			s.fail(packets.ErrMalformedTopic) // [MQTT-4.7.3-1]
		}
	case shapePair:
		s.text()
		s.text()
	}
	return 0
}
