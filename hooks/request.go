package hooks

import (
	"bytes"
	"strings"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// request is one message of a client to its inbox.
type request struct {
	operation   string
	body        []byte
	contentType string
	topic       string // of the answer
	correlation []byte // nil for none
	ack         byte   // the packet type that acknowledges it; 0 at QoS 0
	id          uint16
}

// requestOf returns what a PUBLISH packet asks. It keeps none of the packet's
// memory, which may be much more.
func requestOf(pk *packets.Packet) request {
	r := request{
		operation:   strings.Clone(strings.TrimPrefix(strings.TrimPrefix(pk.TopicName, inboxTopic), "/")),
		contentType: strings.Clone(pk.Properties.ContentType),
		topic:       strings.Clone(pk.Properties.ResponseTopic),
		correlation: bytes.Clone(pk.Properties.CorrelationData),
		body:        bytes.Clone(pk.Payload[:min(len(pk.Payload), pull.MaxRequest+1)]), // which is refused for its size
		id:          pk.PacketID,
	}
	if r.topic == "" {
		r.topic = pk.TopicName + "/answer"
	}
	if pk.FixedHeader.Qos > 0 {
		r.ack = ackOf(pk)
	}
	return r
}

// answer makes a message of an answer.
func (r *request) answer(body []byte, contentType string) publication {
	return publication{Envelope: &inbox.Envelope{
		Topic:           r.topic,
		Payload:         body,
		ContentType:     contentType,
		CorrelationData: r.correlation,
	}}
}

// overhead is the most bytes that an answer takes beside its body.
func (r *request) overhead() int {
	p := r.answer(nil, pull.TypeMsgpack)
	size, remaining, _ := p.size(true)
	return size + 4 - lengthSize(remaining) // which grows with the body
}
