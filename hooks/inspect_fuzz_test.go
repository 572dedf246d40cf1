package hooks

import (
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

// FuzzInspect holds what inspection lets pass against the MQTT library's own
// decoders and rules, which must take all of it.
func FuzzInspect(f *testing.F) {
	for _, seed := range []struct {
		first byte
		body  string
	}{
		{0x30, "\x00\x01t\x00x"},
		{0x32, "\x00\x01t\x00\x01\x03\x23\x00\x01xy"},
		{0x30, "\x00\x01t\x07\x26\x00\x01k\x00\x01v"},
		{0x40, "\x00\x01"},
		{0x62, "\x00\x01\x92\x00"},
		{0x82, "\x00\x01\x00\x00\x01t\x02"},
		{0x82, "\x00\x01\x02\x0B\x01\x00\x01t\x2E"},
		{0x82, "\x00\x01\x00\x00\x01t"},
		{0xA2, "\x00\x01\x00\x00\x01t"},
		{0xC0, ""},
		{0xE0, "\x04"},
		{0xE0, "\x00\x05\x11\x00\x00\x00\x01"},
		{0xF0, ""},
	} {
		f.Add(seed.first, seed.body, true)
		f.Add(seed.first, seed.body, false)
	}
	f.Fuzz(func(t *testing.T, first byte, body string, v5 bool) {
		frame := framed(first, body)
		_, header := lengthOf(frame)
		_, whole := inspect(frame, header, len(frame), v5)
		if partly := inspectWhole(frame, v5); (partly == nil) != (whole == nil) {
			t.Fatalf("%x: %v, but %v if looked at piece by piece", frame, whole, partly)
		}
		if whole != nil {
			return
		}
		pk := packets.Packet{ProtocolVersion: 4}
		if v5 {
			pk.ProtocolVersion = 5
		}
		if err := libraryTakes(&pk, frame, header); err != nil {
			t.Fatalf("%x passes, but the library says %v", frame, err)
		}
	})
}

// FuzzInspectConnect is FuzzInspect for the first frame.
func FuzzInspectConnect(f *testing.F) {
	for _, seed := range []string{
		"\x00\x04MQTT\x04\x02\x00\x00\x00\x01i",
		"\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01i",
		"\x00\x06MQIsdp\x03\xF6\x00\x00\x00\x01i\x00\x01w\x00\x01x\x00\x01u\x00\x02pp",
		"\x00\x04MQTT\x05\x06\x00\x00\x00\x00\x01i\x05\x18\x00\x00\x00\x01\x00\x01w\x00\x01x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		frame := framed(0x10, body)
		_, header := lengthOf(frame)
		if _, err := inspectConnect(frame, header); err != nil {
			connackRefusing(frame, header, err)
			return
		}
		oldConnect(frame, header)
		var pk packets.Packet
		if err := libraryTakes(&pk, frame, header); err != nil {
			t.Fatalf("%x passes, but the library says %v", frame, err)
		}
	})
}

// libraryTakes decodes a frame as the MQTT library does, and applies its rules
// for what a client may send.
func libraryTakes(pk *packets.Packet, frame []byte, header int) error {
	if err := pk.FixedHeader.Decode(frame[0]); err != nil {
		return err
	}
	pk.FixedHeader.Remaining = len(frame) - header
	body := frame[header:]
	var err error
	rule := func() packets.Code { return packets.CodeSuccess }
	switch pk.FixedHeader.Type {
	case packets.Connect:
		err, rule = pk.ConnectDecode(body), func() packets.Code {
			if code := pk.ConnectValidate(); code != packets.ErrProtocolViolationFlagNoPassword && code != packets.ErrProtocolViolationWillFlagNoPayload {
				return code
			}
			return packets.CodeSuccess // the protocol allows an empty password, and an empty will
		}
	case packets.Publish:
		err, rule = pk.PublishDecode(body), func() packets.Code { return pk.PublishValidate(65535) }
	case packets.Subscribe:
		err, rule = pk.SubscribeDecode(body), pk.SubscribeValidate
	case packets.Unsubscribe:
		err, rule = pk.UnsubscribeDecode(body), pk.UnsubscribeValidate
	case packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp:
		err = pk.PubackDecode(body)
	case packets.Disconnect:
		err = pk.DisconnectDecode(body)
	}
	if err != nil {
		return err
	}
	if code := rule(); code != packets.CodeSuccess {
		return code
	}
	return nil
}
