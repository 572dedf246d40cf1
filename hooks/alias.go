package hooks

import (
	"encoding/binary"

	"github.com/mochi-mqtt/server/v2/packets"
)

// maxAliases bounds the topic aliases of one connection, which keep the topics in
// memory.
const maxAliases = 16

// aliasSize is how many bytes a Topic Alias property has. A topic that is not
// longer gets no alias.
const aliasSize = 3

// aliases are the topics that a client knows by a number, on this connection
// alone: the first ones that it was sent, as many as it allows [MQTT-3.1.2-26].
// An alias is given when the frame that tells it is appended, so no frame that finds
// no room has told one.
type aliases struct {
	maximum   int // 0 for none
	maxPacket int // of the client, 0 for no limit
	known     map[string]uint16
	untold    map[string]struct{} // those that are to be told anew
}

// of returns the alias of a topic in a frame of this size, or 0, and whether the
// client knows it already. Cost: a look into a small map.
func (a *aliases) of(topic string, frame int) (alias uint16, known bool) {
	if a.maximum == 0 || len(topic) <= aliasSize {
		return 0, false
	}
	alias, known = a.known[topic]
	_, untold := a.untold[topic]
	if known && !untold {
		return alias, true
	}
	// The properties' length and the frame's may need one byte more each.
	if !known && len(a.known) >= a.maximum || a.maxPacket > 0 && frame+aliasSize+2 > a.maxPacket {
		return 0, false
	}
	if untold {
		delete(a.untold, topic)
		return alias, false
	}
	if a.known == nil {
		a.known = map[string]uint16{}
	}
	alias = uint16(len(a.known) + 1)
	a.known[topic] = alias
	return alias, false
}

// forget has some aliases told anew: the frames that would have told them are left out.
func (a *aliases) forget(untold map[uint16]string) {
	if a.untold == nil {
		a.untold = map[string]struct{}{}
	}
	for _, topic := range untold {
		a.untold[topic] = struct{}{}
	}
}

// appendAliased appends a PUBLISH frame of MQTT 5 that the MQTT library has made,
// with an alias if its topic has one.
func (a *aliases) appendAliased(b, frame []byte) []byte {
	s := scan{rest: frame[1:]}
	remaining := s.length()
	topic := string(s.binary())
	alias, known := a.of(topic, len(frame))
	if alias == 0 {
		return append(b, frame...)
	}
	var id []byte
	if hasPacketID(frame) {
		id = s.take(2)
	}
	properties := s.length()

	remaining += lengthSize(properties+aliasSize) - lengthSize(properties) + aliasSize
	if known {
		remaining -= len(topic)
		topic = ""
	}
	b = appendLength(append(b, frame[0]), remaining)
	b = appendText(b, topic)
	b = append(b, id...)
	b = appendLength(b, properties+aliasSize)
	b = appendAlias(b, alias)
	return append(b, s.rest...)
}

func appendAlias(b []byte, alias uint16) []byte {
	return binary.BigEndian.AppendUint16(append(b, packets.PropTopicAlias), alias)
}
