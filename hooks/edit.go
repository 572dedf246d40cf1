package hooks

import (
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// edit leaves messages out of frames that wait to be written. Where one of them would have
// told a topic alias, those that rely on it get their topic back.
type edit struct {
	gone    map[inbox.Position]struct{}
	aliased bool              // there may be aliases: the frames are of MQTT 5
	untold  map[uint16]string // the topics of those that are not told

	packets int64 // so many were left out
	bytes   int64 // so much shorter the frames are
}

// apply returns frames without the messages that are gone, of which none begins before
// from, and where the others begin. It writes to the list, and not to the frames. Cost: a
// copy.
func (e *edit) apply(frames []byte, from int, list []unwritten) ([]byte, []unwritten) {
	out := append(make([]byte, 0, len(frames)), frames[:from]...)
	kept := list[:0]
	for at := from; at < len(frames); {
		frame := frames[at : at+frameSize(frames[at:])]
		noted := len(list) > 0 && int(list[0].at) == at
		at += len(frame)
		if noted {
			u := list[0]
			list = list[1:]
			if _, gone := e.gone[u.position]; gone {
				e.leaveOut(frame)
				continue
			}
			u.at = uint32(len(out))
			kept = append(kept, u)
		}
		out = e.appendFrame(out, frame)
	}
	e.bytes += int64(len(frames) - len(out))
	return out, kept
}

// leaveOut counts a message that is gone, and keeps its topic if it would have told an alias.
func (e *edit) leaveOut(frame []byte) {
	e.packets++
	if topic, alias := e.aliasOf(frame); alias != 0 && len(topic) > 0 {
		if e.untold == nil {
			e.untold = map[uint16]string{}
		}
		e.untold[alias] = string(topic)
	}
}

// appendFrame appends a frame that stays: with its topic in the place of an alias that is
// not told, so that it is no longer than a frame without any.
func (e *edit) appendFrame(b, frame []byte) []byte {
	topic, alias := e.aliasOf(frame)
	untold, ok := e.untold[alias]
	if !ok || len(topic) > 0 {
		return append(b, frame...)
	}
	s := scan{rest: frame[1:]}
	remaining := s.length() + len(untold)
	s.binary()
	var id []byte
	if hasPacketID(frame) {
		id = s.take(2)
	}
	properties := s.length()
	s.take(aliasSize)

	remaining -= aliasSize + lengthSize(properties) - lengthSize(properties-aliasSize)
	b = appendLength(append(b, frame[0]), remaining)
	b = append(appendText(b, untold), id...)
	b = appendLength(b, properties-aliasSize)
	return append(b, s.rest...)
}

// aliasOf returns the topic of a PUBLISH frame as it stands there, and its alias, which
// is its first property; 0 for none.
func (e *edit) aliasOf(frame []byte) (topic []byte, alias uint16) {
	if !e.aliased || frame[0]>>4 != packets.Publish {
		return nil, 0
	}
	s := scan{rest: frame[1:]}
	s.length()
	topic = s.binary()
	if hasPacketID(frame) {
		s.take(2)
	}
	if s.length() == 0 || s.byte() != packets.PropTopicAlias {
		return topic, 0
	}
	return topic, s.uint16()
}
