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
// written, in which packet types a client may send it, and whether it may be 0.
// Those that only servers send are here to be told from bytes that mean nothing.
var propertyRules = [...]struct {
	shape   shape
	in      uint16
	nonzero bool
}{
	packets.PropPayloadFormat:          {shapeSwitch, inPublish | inWill, false},
	packets.PropMessageExpiryInterval:  {shapeUint32, inPublish | inWill, false},
	packets.PropContentType:            {shapeText, inPublish | inWill, false},  // [MQTT-3.3.2-19]
	packets.PropResponseTopic:          {shapeTopic, inPublish | inWill, false}, // [MQTT-3.3.2-13] [MQTT-3.3.2-14]
	packets.PropCorrelationData:        {shapeBinary, inPublish | inWill, false},
	packets.PropSubscriptionIdentifier: {shapeLength, inSubscribe, true}, // [MQTT-3.3.4-6]
	packets.PropSessionExpiryInterval:  {shapeUint32, inConnect | inDisconnect, false},
	packets.PropAssignedClientID:       {shapeText, 0, false},
	packets.PropServerKeepAlive:        {shapeUint16, 0, false},
	packets.PropAuthenticationMethod:   {shapeText, inConnect, false},
	packets.PropAuthenticationData:     {shapeBinary, inConnect, false},
	packets.PropRequestProblemInfo:     {shapeSwitch, inConnect, false},
	packets.PropWillDelayInterval:      {shapeUint32, inWill, false},
	packets.PropRequestResponseInfo:    {shapeSwitch, inConnect, false},
	packets.PropResponseInfo:           {shapeText, 0, false},
	packets.PropServerReference:        {shapeText, 0, false}, // [MQTT-3.14.2-2] speaks of servers alone
	packets.PropReasonString:           {shapeText, inAck | inDisconnect, false},
	packets.PropReceiveMaximum:         {shapeUint16, inConnect, true},
	packets.PropTopicAliasMaximum:      {shapeUint16, inConnect, false},
	packets.PropTopicAlias:             {shapeUint16, inPublish, true}, // [MQTT-3.3.2-8]
	packets.PropMaximumQos:             {shapeSwitch, 0, false},
	packets.PropRetainAvailable:        {shapeSwitch, 0, false},
	packets.PropUser:                   {shapePair, inAny, false},
	packets.PropMaximumPacketSize:      {shapeUint32, inConnect, true},
	packets.PropWildcardSubAvailable:   {shapeSwitch, 0, false},
	packets.PropSubIDAvailable:         {shapeSwitch, 0, false},
	packets.PropSharedSubAvailable:     {shapeSwitch, 0, false},
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
		case rule.in&(1<<kind) == 0:
			p.fail(packets.ErrProtocolViolationUnsupportedProperty)
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
		s.topic()
	case shapePair:
		s.text()
		s.text()
	}
	return 0
}
