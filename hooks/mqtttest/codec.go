package mqtttest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Encode returns the bytes of a packet in the form of its ProtocolVersion. It
// sets the header flags that the packet type prescribes.
func Encode(pk packets.Packet) ([]byte, error) {
	pk.Mods.AllowResponseInfo = true // a client may send every property
	var b bytes.Buffer
	var err error
	switch pk.FixedHeader.Type {
	case packets.Connect:
		err = pk.ConnectEncode(&b)
	case packets.Publish:
		err = pk.PublishEncode(&b)
	case packets.Puback:
		err = pk.PubackEncode(&b)
	case packets.Pubrec:
		err = pk.PubrecEncode(&b)
	case packets.Pubrel:
		pk.FixedHeader.Qos = 1 // reserved bits 0010 [MQTT-3.6.1-1]
		err = pk.PubrelEncode(&b)
	case packets.Pubcomp:
		err = pk.PubcompEncode(&b)
	case packets.Subscribe:
		pk.FixedHeader.Qos = 1 // reserved bits 0010 [MQTT-3.8.1-1]
		err = pk.SubscribeEncode(&b)
	case packets.Unsubscribe:
		pk.FixedHeader.Qos = 1 // reserved bits 0010 [MQTT-3.10.1-1]
		err = pk.UnsubscribeEncode(&b)
	case packets.Pingreq:
		err = pk.PingreqEncode(&b)
	case packets.Disconnect:
		err = pk.DisconnectEncode(&b)
	case packets.Auth:
		err = pk.AuthEncode(&b)
	default:
		return nil, fmt.Errorf("encode: a client does not send %s", name(pk))
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name(pk), err)
	}
	return b.Bytes(), nil
}

// Decode reads the next packet that a broker sent to a client of this protocol
// version. It returns io.EOF if the link ended between two packets.
func Decode(r *bufio.Reader, version byte) (packets.Packet, error) {
	pk := packets.Packet{ProtocolVersion: version}
	first, err := r.ReadByte()
	if err != nil {
		return pk, err
	}
	if err := pk.FixedHeader.Decode(first); err != nil {
		return pk, fmt.Errorf("decode header %#x: %w", first, err)
	}
	if pk.FixedHeader.Remaining, _, err = packets.DecodeLength(r); err != nil {
		return pk, fmt.Errorf("decode length: %w", err)
	}
	body := make([]byte, pk.FixedHeader.Remaining)
	if _, err := io.ReadFull(r, body); err != nil {
		return pk, fmt.Errorf("read %s: %w", name(pk), err)
	}
	switch pk.FixedHeader.Type {
	case packets.Connack:
		err = pk.ConnackDecode(body)
	case packets.Publish:
		err = pk.PublishDecode(body)
	case packets.Puback:
		err = pk.PubackDecode(body)
	case packets.Pubrec:
		err = pk.PubrecDecode(body)
	case packets.Pubrel:
		err = pk.PubrelDecode(body)
	case packets.Pubcomp:
		err = pk.PubcompDecode(body)
	case packets.Suback:
		err = pk.SubackDecode(body)
	case packets.Unsuback:
		err = pk.UnsubackDecode(body)
	case packets.Pingresp:
		err = pk.PingrespDecode(body)
	case packets.Disconnect:
		err = pk.DisconnectDecode(body)
	case packets.Auth:
		err = pk.AuthDecode(body)
	default:
		err = fmt.Errorf("a broker does not send it")
	}
	if err != nil {
		return pk, fmt.Errorf("decode %s: %w", name(pk), err)
	}
	return pk, nil
}

// Describe is a packet in one line of a failure message.
func Describe(pk packets.Packet) string {
	switch pk.FixedHeader.Type {
	case packets.Publish:
		return fmt.Sprintf("Publish(id %d, qos %d, dup %t, retain %t, topic %q, payload %.40q)", pk.PacketID,
			pk.FixedHeader.Qos, pk.FixedHeader.Dup, pk.FixedHeader.Retain, pk.TopicName, pk.Payload)
	case packets.Connack:
		return fmt.Sprintf("Connack(code %#x, session present %t)", pk.ReasonCode, pk.SessionPresent)
	case packets.Suback, packets.Unsuback:
		return fmt.Sprintf("%s(id %d, codes %#x)", name(pk), pk.PacketID, pk.ReasonCodes)
	default:
		return fmt.Sprintf("%s(id %d, code %#x)", name(pk), pk.PacketID, pk.ReasonCode)
	}
}

func name(pk packets.Packet) string { return packets.PacketNames[pk.FixedHeader.Type] }
