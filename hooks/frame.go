package hooks

import (
	"encoding/binary"
	"time"
	"unicode/utf8"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// publication is a message as one receiver is sent it.
type publication struct {
	*inbox.Envelope
	grant    inbox.Grant
	packetID uint16 // 0 at QoS 0
	dup      bool
	left     uint32 // seconds until it expires; sent if the envelope has an expiry

	metadata bool // id, time and sender are sent too, in MQTT 5
	lost     gaps // before this one; sent with metadata

	// What the flusher needs to know whether it was taken away meanwhile.
	position inbox.Position // in the receiver's inbox; 0 if it is not from there, or of QoS 0
	seen     uint64         // Inbox.Withdrawn, before it was read

	alias uint16 // of the topic, 0 for none
	known bool   // the receiver knows it, and is not told the topic
}

// name returns the topic as it is sent.
func (p *publication) name() string {
	if p.known {
		return ""
	}
	return p.Topic
}

// instant is how long a message lives whose expiry interval is 0, in
// milliseconds: for the second in which it comes. Whoever is there gets it.
const instant = 999

// expiryOf returns when a message expires that comes now, Unix milliseconds.
func expiryOf(interval uint32, now time.Time) int64 {
	return now.UnixMilli() + max(int64(interval)*1000, instant)
}

// secondsLeft returns the expiry interval to send at a moment: what is left,
// rounded up, and 0 only if that is what the publisher said [MQTT-3.3.2-6]. If
// the clock has jumped back, it is not more than the message was given.
func secondsLeft(e *inbox.Envelope, now time.Time) uint32 {
	if e.Expiry == 0 {
		return 0
	}
	left := max((e.Expiry-now.UnixMilli()+999)/1000, 1)
	given := max((e.Expiry-e.Time)/1000, 0)
	return uint32(min(left, given, 0xFFFFFFFF))
}

// A PUBLISH frame is
//
//	type and flags | remaining length | topic | packet id | properties | payload
//	0011 dqqr        1 to 4 bytes       2+n     2 if QoS>0  MQTT 5 only
//
// where properties are their own length and then each an identifier and a value.

// hasPacketID reports whether a PUBLISH frame has one: whether its QoS is not 0.
func hasPacketID(frame []byte) bool { return frame[0]&(3<<1) != 0 }

// frameSize returns the size of the frame with which b begins, of any type.
func frameSize(b []byte) int {
	remaining, n := binary.Uvarint(b[1:]) // a variable byte integer is one
	return 1 + n + int(remaining)
}

// size returns the length of the frame, of what follows its remaining length,
// and of its properties.
func (p *publication) size(v5 bool) (frame, remaining, properties int) {
	remaining = textSize(p.name()) + len(p.Payload)
	if p.grant.QoS > 0 {
		remaining += 2
	}
	if v5 {
		properties = p.propertiesSize()
		remaining += lengthSize(properties) + properties
	}
	return 1 + lengthSize(remaining) + remaining, remaining, properties
}

func (p *publication) propertiesSize() (n int) {
	if p.alias > 0 {
		n += aliasSize
	}
	if p.PayloadFormat != inbox.FormatAbsent {
		n += 2
	}
	if p.Expiry != 0 {
		n += 5
	}
	if p.ContentType != "" {
		n += 1 + textSize(p.ContentType)
	}
	if p.ResponseTopic != "" {
		n += 1 + textSize(p.ResponseTopic)
	}
	if p.CorrelationData != nil {
		n += 1 + textSize(p.CorrelationData)
	}
	for _, id := range p.grant.Identifiers {
		n += 1 + lengthSize(int(id))
	}
	for i := range p.UserProperties {
		n += 1 + textSize(p.UserProperties[i].Key) + textSize(p.UserProperties[i].Value)
	}
	if p.metadata {
		n += metadataSize(p.Envelope) + p.lost.size()
	}
	return n
}

// appendPublish appends the PUBLISH frame of p. It allocates nothing but what b
// needs to grow.
func appendPublish(b []byte, v5 bool, p *publication) []byte {
	_, remaining, properties := p.size(v5)
	b = append(b, publishHeader(p))
	b = appendLength(b, remaining)
	b = appendText(b, p.name())
	if p.grant.QoS > 0 {
		b = binary.BigEndian.AppendUint16(b, p.packetID)
	}
	if v5 {
		b = appendLength(b, properties)
		b = appendProperties(b, p)
	}
	return append(b, p.Payload...)
}

func publishHeader(p *publication) byte {
	header := packets.Publish<<4 | p.grant.QoS<<1
	if p.dup {
		header |= 1 << 3
	}
	if p.grant.Retain {
		header |= 1
	}
	return header
}

func appendProperties(b []byte, p *publication) []byte {
	if p.alias > 0 {
		b = appendAlias(b, p.alias)
	}
	if p.PayloadFormat != inbox.FormatAbsent {
		b = append(b, packets.PropPayloadFormat, byte(p.PayloadFormat-inbox.FormatBytes))
	}
	if p.Expiry != 0 {
		b = append(b, packets.PropMessageExpiryInterval)
		b = binary.BigEndian.AppendUint32(b, p.left)
	}
	if p.ContentType != "" {
		b = appendText(append(b, packets.PropContentType), p.ContentType)
	}
	if p.ResponseTopic != "" {
		b = appendText(append(b, packets.PropResponseTopic), p.ResponseTopic)
	}
	if p.CorrelationData != nil {
		b = appendText(append(b, packets.PropCorrelationData), p.CorrelationData)
	}
	for _, id := range p.grant.Identifiers { // all of them, in one message [MQTT-3.3.4-4]
		b = appendLength(append(b, packets.PropSubscriptionIdentifier), int(id))
	}
	for i := range p.UserProperties { // in the publisher's order [MQTT-3.3.2-18]
		b = appendUserProperty(b, p.UserProperties[i].Key, p.UserProperties[i].Value)
	}
	if p.metadata {
		b = p.lost.appendTo(appendMetadata(b, p.Envelope))
	}
	return b
}

// appendAck appends a PUBACK, PUBREC, PUBREL or PUBCOMP frame. A reason code is
// left out where it is 0, which says the same in less, and before MQTT 5.
func appendAck(b []byte, v5 bool, kind byte, id uint16, code byte) []byte {
	header := kind << 4
	if kind == packets.Pubrel {
		header |= 1 << 1 // [MQTT-3.6.1-1]
	}
	if v5 && code != 0 {
		return append(b, header, 3, byte(id>>8), byte(id), code)
	}
	return append(b, header, 2, byte(id>>8), byte(id))
}

// appendDisconnect appends the DISCONNECT that a server sends in MQTT 5.
func appendDisconnect(b []byte, code byte) []byte {
	return append(b, packets.Disconnect<<4, 2, code, 0)
}

// maxText is the length in bytes of the longest string or binary value there is.
const maxText = 1<<16 - 1

// appendText appends a string or binary value with its length of two bytes.
func appendText[T string | []byte](b []byte, text T) []byte {
	text = fit(text)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// textSize returns how many bytes appendText appends.
func textSize[T string | []byte](text T) int { return 2 + len(fit(text)) }

// fit cuts off, at the end of a character, what no frame can carry. No client can
// have sent that much, but whoever has the store can append it, and a frame with
// a wrong length would break the connection of each receiver, again and again.
func fit[T string | []byte](text T) T {
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// appendLength appends a variable byte integer in its shortest form [MQTT-1.5.5-1].
func appendLength(b []byte, n int) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

// lengthSize returns how many bytes appendLength appends.
func lengthSize(n int) int {
	switch {
	case n < 1<<7:
		return 1
	case n < 1<<14:
		return 2
	case n < 1<<21:
		return 3
	}
	return 4
}
