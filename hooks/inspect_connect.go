package hooks

import (
	"encoding/binary"
	"errors"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Bits of the flags of CONNECT.
const (
	connectReserved   = 1 << 0
	connectClean      = 1 << 1
	connectWill       = 1 << 2
	connectWillQoS    = 3 << 3
	connectWillRetain = 1 << 5
	connectPassword   = 1 << 6
	connectUsername   = 1 << 7
)

// inspectConnect judges the first frame of a connection, whole, and returns the
// packets.Code that refuses it, or nil, and which properties its will has; see
// refuseConnect for what the client is told. Cost: about as much as inspect.
//
//	10 | remaining length | name | level | flags | keep alive | properties | client id | ...
//	                        2+n    1       1       2            MQTT 5
//	... | will properties | will topic | will payload | user name | password
//	      MQTT 5, each of these as the flags say
func inspectConnect(b []byte, header int) (will propertySet, err error) {
	if b[0]>>4 != packets.Connect {
		return 0, packets.ErrProtocolViolationRequireFirstConnect // [MQTT-3.1.0-1]
	}
	s := scan{rest: b[header:]}
	level, known := s.level()
	if !known {
		return 0, s.fault
	}
	v5 := level == 5
	switch {
	case level != 3 && b[0]&0x0F != 0:
		return 0, packets.ErrMalformedFlags // [MQTT-2.1.3-1]
	case v5 && lengthSize(len(b)-header) != header-1:
		return 0, packets.ErrMalformedVariableByteInteger // [MQTT-1.5.5-1]
	}

	flags := s.byte()
	s.connectFlags(flags, level)
	s.uint16() // keep alive
	if v5 {
		s.authentication(s.properties(packets.Connect))
	}
	id := s.text() // [MQTT-3.1.3-4]
	if flags&connectWill != 0 {
		if v5 {
			will = s.properties(willProperties)
		}
		if topic := s.topic(); len(topic) == 0 { // [MQTT-3.1.3-11]
			s.fail(packets.ErrProtocolViolationNoTopic) // [MQTT-4.7.3-1]
		}
		s.binary()
	}
	if flags&connectUsername != 0 {
		s.text() // [MQTT-3.1.3-12]
	}
	if flags&connectPassword != 0 {
		s.binary()
	}
	s.end()
	if s.fault == nil && len(id) == 0 && (level == 3 || level == 4 && flags&connectClean == 0) {
		return 0, packets.ErrClientIdentifierNotValid // [MQTT-3.1.3-8] of 3.1.1
	}
	return will, s.fault
}

// bridgeBit is what a bridge adds to the level of the protocol in CONNECT, to be
// told from a client. It is a convention of brokers, not of MQTT.
const bridgeBit = 0x80

// clearBridge reports whether a CONNECT that has passed inspection is of a bridge
// that says so, and makes it one of a client.
func clearBridge(b []byte, header int) bool {
	level := &b[header+2+int(binary.BigEndian.Uint16(b[header:]))]
	bridge := *level&bridgeBit != 0
	*level &^= bridgeBit
	return bridge
}

// level reads the name and level of the protocol, and reports whether they are
// a version that is spoken here.
func (s *scan) level() (level byte, known bool) {
	name := s.binary()
	level = s.byte()
	if level == bridgeBit|3 || level == bridgeBit|4 {
		level &^= bridgeBit
	}
	switch {
	case string(name) == "MQTT" && (level == 4 || level == 5), string(name) == "MQIsdp" && level == 3:
		return level, s.fault == nil
	case string(name) == "MQTT", string(name) == "MQIsdp":
		s.fail(packets.ErrUnsupportedProtocolVersion) // [MQTT-3.1.2-2]
	default:
		s.fail(packets.ErrProtocolViolationProtocolName) // [MQTT-3.1.2-1]
	}
	return level, false
}

func (s *scan) connectFlags(flags, level byte) {
	switch {
	case level != 3 && flags&connectReserved != 0:
		s.fail(packets.ErrMalformedFlags) // [MQTT-3.1.2-3]
	case flags&connectWillQoS == connectWillQoS:
		s.fail(packets.ErrMalformedQos) // [MQTT-3.1.2-12]
	case flags&connectWill == 0 && flags&(connectWillQoS|connectWillRetain) != 0:
		s.fail(packets.ErrMalformedFlags) // [MQTT-3.1.2-11] [MQTT-3.1.2-13]
	case level < 5 && flags&connectPassword != 0 && flags&connectUsername == 0:
		s.fail(packets.ErrMalformedFlags) // [MQTT-3.1.2-22] of 3.1.1
	}
}

// authentication refuses to exchange AUTH packets, for which there is no method
// here [MQTT-4.12.0-1].
func (s *scan) authentication(seen propertySet) {
	switch {
	case s.fault != nil:
	case seen.has(packets.PropAuthenticationMethod):
		s.fail(packets.ErrBadAuthenticationMethod)
	case seen.has(packets.PropAuthenticationData):
		s.fail(packets.ErrProtocolViolation)
	}
}

// connackRefusing returns the CONNACK for a CONNECT frame that is refused, or
// nil if the connection ends without one: MQTT 3.1.1 has no code for a malformed
// packet, and what does not name MQTT as its protocol is not answered.
//
// A level that there never was is answered as a later version if it may be one,
// and else as the oldest.
func connackRefusing(b []byte, header int, err error) []byte {
	var code packets.Code
	if !errors.As(err, &code) || b[0]>>4 != packets.Connect || code == packets.ErrProtocolViolationProtocolName {
		return nil
	}
	s := scan{rest: b[header:]}
	level, _ := s.level()
	switch {
	case 5 <= level && level < 0x80:
		return []byte{packets.Connack << 4, 3, 0, code.Code, 0}
	case code == packets.ErrUnsupportedProtocolVersion:
		return []byte{packets.Connack << 4, 2, 0, packets.Err3UnsupportedProtocolVersion.Code} // [MQTT-3.1.2-2] of 3.1.1
	case code == packets.ErrClientIdentifierNotValid:
		return []byte{packets.Connack << 4, 2, 0, packets.Err3ClientIdentifierNotValid.Code}
	}
	return nil
}
