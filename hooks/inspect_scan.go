package hooks

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"github.com/mochi-mqtt/server/v2/packets"
)

// scan reads a frame from front to back. The first fault stays; from then on
// there is nothing left to read, and what is read is zero.
type scan struct {
	rest  []byte
	fault error
}

func (s *scan) fail(code packets.Code) {
	if s.fault == nil {
		s.fault = code
	}
	s.rest = nil
}

// end fails if anything follows.
func (s *scan) end() {
	if len(s.rest) > 0 {
		s.fail(packets.ErrMalformedPacket)
	}
}

// take returns the next n bytes.
func (s *scan) take(n int) []byte {
	if n > len(s.rest) {
		s.fail(packets.ErrMalformedPacket)
		return nil
	}
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

func (s *scan) byte() byte {
	if b := s.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (s *scan) uint16() uint16 {
	if b := s.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (s *scan) uint32() uint32 {
	if b := s.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// length reads a variable byte integer: at most four bytes, and none too many
// [MQTT-1.5.5-1].
func (s *scan) length() int {
	n := 0
	for i := range 4 {
		b := s.byte()
		n |= int(b&0x7F) << (7 * i)
		if b&0x80 != 0 {
			continue
		}
		if b == 0 && i > 0 {
			break
		}
		return n
	}
	s.fail(packets.ErrMalformedVariableByteInteger)
	return 0
}

// packetID reads a packet id, which is never 0 [MQTT-2.2.1-3].
func (s *scan) packetID() {
	if s.uint16() == 0 {
		s.fail(packets.ErrProtocolViolationNoPacketID)
	}
}

// binary reads bytes of any kind after their length.
func (s *scan) binary() []byte { return s.take(int(s.uint16())) }

// text reads a UTF-8 string [MQTT-1.5.4-1].
func (s *scan) text() []byte {
	b := s.binary()
	if !validText(b) {
		s.fail(packets.ErrMalformedInvalidUTF8)
	}
	return b
}

// topic reads the name of a topic, which has no wildcards.
func (s *scan) topic() []byte {
	b := s.text()
	if bytes.IndexByte(b, '#') >= 0 || bytes.IndexByte(b, '+') >= 0 {
		s.fail(packets.ErrMalformedTopic)
	}
	return b
}

// validText reports whether a string may be sent on. Beside what is no UTF-8, and
// U+0000 [MQTT-1.5.4-2], these are the control characters and noncharacters: the
// protocol lets both a server and a client refuse them, and a message that makes
// its receiver end the connection would be sent to it again and again.
func validText(b []byte) bool {
	for i, c := range b {
		if c < ' ' || c >= 0x7F {
			return validRunes(b[i:])
		}
	}
	return true
}

func validRunes(b []byte) bool {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1: // no UTF-8, or a surrogate
			return false
		case r < ' ', 0x7F <= r && r < 0xA0:
			return false
		case 0xFDD0 <= r && r < 0xFDF0, r&0xFFFE == 0xFFFE:
			return false
		}
		b = b[size:]
	}
	return true
}
