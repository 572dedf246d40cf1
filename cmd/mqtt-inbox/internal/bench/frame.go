package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
)

// The first byte of the packets that a load client meets, without flags.
const (
	kindConnect    = 0x10
	kindConnack    = 0x20
	kindPublish    = 0x30
	kindPuback     = 0x40
	kindSubscribe  = 0x80
	kindSuback     = 0x90
	kindPingreq    = 0xC0
	kindPingresp   = 0xD0
	kindDisconnect = 0xE0

	keepAlive = 600 // seconds
)

// stampSize is the head of every payload: publisher (4 bytes) and the number
// of the message in its stream (8 bytes), big-endian.
const stampSize = 12

var errMalformed = errors.New("broker sent a malformed packet")

// connectFrame is an MQTT 3.1.1 CONNECT. A session is kept unless clean is set.
func connectFrame(clientID string, clean bool) []byte {
	var flags byte
	if clean {
		flags = 0x02
	}
	body := appendString(nil, "MQTT")
	body = append(body, 4, flags)
	body = binary.BigEndian.AppendUint16(body, keepAlive)
	return frame(kindConnect, appendString(body, clientID))
}

// subscribeFrame subscribes to one filter.
func subscribeFrame(filter string, qos byte) []byte {
	body := binary.BigEndian.AppendUint16(nil, 1) // packet id
	return frame(kindSubscribe|0x02, append(appendString(body, filter), qos))
}

// publishHead is what a PUBLISH of QoS 1 to a topic begins with, up to the
// packet id; size is that of the payload. It is the same every time.
func publishHead(topic string, size int) []byte {
	rest := 2 + len(topic) + 2 + size
	return appendString(appendHeader(nil, kindPublish|0x02, rest), topic)
}

// appendPublish appends the rest: the packet id and the payload, which is the
// stamp and a filler.
func appendPublish(b, head []byte, packetID uint16, publisher int, number uint64, filler []byte) []byte {
	b = append(b, head...)
	b = binary.BigEndian.AppendUint16(b, packetID)
	b = binary.BigEndian.AppendUint32(b, uint32(publisher))
	b = binary.BigEndian.AppendUint64(b, number)
	return append(b, filler...)
}

// checkSize returns an error if a payload has no room for the stamp.
func checkSize(size int) error {
	if size < stampSize {
		return fmt.Errorf("payload of %d bytes: choose %d or more", size, stampSize)
	}
	return nil
}

// newFiller returns the payload behind the stamp.
func newFiller(size int) []byte {
	filler := make([]byte, size-stampSize)
	for i := range filler {
		filler[i] = byte('a' + i%26)
	}
	return filler
}

// delivery is a PUBLISH that arrived.
type delivery struct {
	qos       byte
	packetID  uint16
	topic     []byte // valid until the next packet is read
	payload   []byte // likewise
	publisher int
	number    uint64
}

func parsePublish(first byte, body []byte) (delivery, error) {
	d := delivery{qos: first >> 1 & 3}
	if len(body) < 2 {
		return d, errMalformed
	}
	n := 2 + int(binary.BigEndian.Uint16(body))
	if len(body) < n {
		return d, errMalformed
	}
	d.topic, body = body[2:n], body[n:]
	if d.qos > 0 {
		if len(body) < 2 {
			return d, errMalformed
		}
		d.packetID, body = binary.BigEndian.Uint16(body), body[2:]
	}
	d.payload = body
	if len(body) >= stampSize {
		d.publisher = int(binary.BigEndian.Uint32(body))
		d.number = binary.BigEndian.Uint64(body[4:])
	}
	return d, nil
}

// readPacket returns the first byte and the body of the next packet. The body
// is valid until the next call. It must fit the reader's buffer.
func readPacket(r *bufio.Reader) (byte, []byte, error) {
	head, size, err := peekHeader(r)
	if err != nil {
		return 0, nil, err
	}
	packet, err := r.Peek(head + size)
	if err != nil {
		return 0, nil, fmt.Errorf("read packet: %w", err)
	}
	if _, err := r.Discard(head + size); err != nil {
		return 0, nil, fmt.Errorf("read packet: %w", err)
	}
	return packet[0], packet[head:], nil
}

// isBuffered reports whether the next packet can be read without waiting.
func isBuffered(r *bufio.Reader) bool {
	if r.Buffered() < 2 {
		return false
	}
	b, err := r.Peek(min(r.Buffered(), 5))
	if err != nil {
		return false
	}
	head, size, ok := header(b)
	return ok && r.Buffered() >= head+size
}

// peekHeader waits for a header and returns its length and that of the body.
func peekHeader(r *bufio.Reader) (head, size int, err error) {
	for n := 2; n <= 5; n++ {
		b, err := r.Peek(n)
		if err != nil {
			return 0, 0, fmt.Errorf("read packet: %w", err)
		}
		if head, size, ok := header(b); ok {
			return head, size, nil
		}
	}
	return 0, 0, errMalformed
}

// header decodes the remaining length, seven bits a byte, lowest first.
func header(b []byte) (head, size int, ok bool) {
	for i := 1; i < len(b) && i < 5; i++ {
		size |= int(b[i]&0x7F) << (7 * (i - 1))
		if b[i]&0x80 == 0 {
			return i + 1, size, true
		}
	}
	return 0, 0, false
}

func frame(first byte, body []byte) []byte {
	return append(appendHeader(nil, first, len(body)), body...)
}

func appendHeader(b []byte, first byte, size int) []byte {
	b = append(b, first)
	for ; size > 0x7F; size >>= 7 {
		b = append(b, byte(size)|0x80)
	}
	return append(b, byte(size))
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}
