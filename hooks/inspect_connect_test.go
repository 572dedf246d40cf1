package hooks

import (
	"bytes"
	"testing"
)

func TestInspectConnect(t *testing.T) {
	const (
		v31  = "\x00\x06MQIsdp\x03"
		v311 = "\x00\x04MQTT\x04"
		v5   = "\x00\x04MQTT\x05"
	)
	closed := []byte(nil) // without CONNACK
	refused5 := func(code byte) []byte { return []byte{0x20, 3, 0, code, 0} }
	refused3 := func(code byte) []byte { return []byte{0x20, 2, 0, code} }
	tests := []struct {
		name  string
		first byte
		body  string
		code  byte // of the verdict, 0 if it passes
		want  []byte
	}{
		{"MQTT 3.1", 0x10, v31 + "\x02\x00\x0A\x00\x01i", 0, nil},
		{"MQTT 3.1 with flags that it does not use", 0x1F, v31 + "\x03\x00\x0A\x00\x01i", 0, nil},
		{"MQTT 3.1.1", 0x10, v311 + "\x00\x00\x0A\x00\x01i", 0, nil},
		{"MQTT 5", 0x10, v5 + "\x00\x00\x0A\x00\x00\x01i", 0, nil},
		{"all of MQTT 3.1.1", 0x10, v311 + "\xF6\x00\x00\x00\x01i\x00\x01w\x00\x01x\x00\x01u\x00\x01\xFF", 0, nil},
		{"all of MQTT 5", 0x10, v5 + "\xF6\x00\x00" +
			with("\x11\x00\x00\x00\x00", "\x21\x00\x01", "\x27\x00\x00\x00\x01", "\x22\x00\x00", "\x17\x01", "\x19\x00", "\x26\x00\x01k\x00\x01v") + "\x00\x01i" +
			with("\x18\x00\x00\x00\x01", "\x01\x01", "\x02\x00\x00\x00\x01", "\x03\x00\x01c", "\x08\x00\x01r", "\x09\x00\x01d", "\x26\x00\x01k\x00\x01v") +
			"\x00\x01w\x00\x00\x00\x01u\x00\x00", 0, nil},
		{"no id, clean", 0x10, v311 + "\x02\x00\x00\x00\x00", 0, nil},
		{"no id, MQTT 5", 0x10, v5 + "\x00\x00\x00\x00\x00\x00", 0, nil},
		{"password alone, MQTT 5", 0x10, v5 + "\x40\x00\x00\x00\x00\x00\x00\x01p", 0, nil},

		{"no CONNECT", 0x30, "\x00\x01tx", violation, closed},
		{"no protocol", 0x10, "\x00\x04mqtt\x04\x02\x00\x00\x00\x00", violation, closed},
		{"no version 3", 0x10, "\x00\x04MQTT\x03\x02\x00\x00\x00\x00", 0x84, refused3(1)},
		{"no version 4 of the old name", 0x10, "\x00\x06MQIsdp\x04\x02\x00\x00\x00\x00", 0x84, refused3(1)},
		{"no version 6", 0x10, "\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x00", 0x84, refused5(0x84)},
		{"bridge", 0x10, "\x00\x04MQTT\x84\x02\x00\x00\x00\x01i", 0, nil},
		{"bridge, MQTT 3.1", 0x10, "\x00\x06MQIsdp\x83\x02\x00\x00\x00\x01i", 0, nil},
		{"bridge of a version that has no such bit", 0x10, "\x00\x04MQTT\x85\x02\x00\x00\x00\x00\x00", 0x84, refused3(1)},
		{"nothing", 0x10, "", malformed, closed},
		{"no level", 0x10, "\x00\x04MQTT", malformed, closed},
		{"no flags", 0x10, v5, malformed, refused5(malformed)},

		{"header flags", 0x11, v311 + "\x02\x00\x00\x00\x00", malformed, closed},
		{"header flags, MQTT 5", 0x18, v5 + "\x02\x00\x00\x00\x00\x00", malformed, refused5(malformed)},
		{"reserved flag", 0x10, v311 + "\x03\x00\x00\x00\x00", malformed, closed},
		{"reserved flag, MQTT 5", 0x10, v5 + "\x03\x00\x00\x00\x00\x00", malformed, refused5(malformed)},
		{"will QoS 3", 0x10, v311 + "\x1E\x00\x00\x00\x01i\x00\x01w\x00\x01x", malformed, closed},
		{"will QoS without will", 0x10, v5 + "\x0A\x00\x00\x00\x00\x00", malformed, refused5(malformed)},
		{"will retain without will", 0x10, v5 + "\x22\x00\x00\x00\x00\x00", malformed, refused5(malformed)},
		{"password without user name", 0x10, v311 + "\x42\x00\x00\x00\x01i\x00\x01p", malformed, closed},
		{"no id, not clean", 0x10, v311 + "\x00\x00\x00\x00\x00", 0x85, refused3(2)},
		{"no id, MQTT 3.1", 0x10, v31 + "\x02\x00\x00\x00\x00", 0x85, refused3(2)},
		{"id of no UTF-8", 0x10, v5 + "\x02\x00\x00\x00\x00\x01\xFF", malformed, refused5(malformed)},
		{"id cut short", 0x10, v311 + "\x02\x00\x00\x00\x02i", malformed, closed},
		{"will topic empty", 0x10, v5 + "\x06\x00\x00\x00\x00\x01i\x00\x00\x00\x00\x01x", violation, refused5(violation)},
		{"will topic with wildcard", 0x10, v311 + "\x06\x00\x00\x00\x01i\x00\x01#\x00\x01x", malformed, closed},
		{"will without payload", 0x10, v311 + "\x06\x00\x00\x00\x01i\x00\x01w", malformed, closed},
		{"user name missing", 0x10, v311 + "\x82\x00\x00\x00\x01i", malformed, closed},
		{"user name of no UTF-8", 0x10, v311 + "\x82\x00\x00\x00\x01i\x00\x01\xFF", malformed, closed},
		{"password missing", 0x10, v311 + "\xC2\x00\x00\x00\x01i\x00\x01u", malformed, closed},
		{"more than the flags say", 0x10, v311 + "\x02\x00\x00\x00\x01i\x00\x01u", malformed, closed},
		{"receive maximum 0", 0x10, v5 + "\x02\x00\x00" + with("\x21\x00\x00") + "\x00\x01i", violation, refused5(violation)},
		{"maximum packet size 0", 0x10, v5 + "\x02\x00\x00" + with("\x27\x00\x00\x00\x00") + "\x00\x01i", violation, refused5(violation)},
		{"request of problems 2", 0x10, v5 + "\x02\x00\x00" + with("\x17\x02") + "\x00\x01i", violation, refused5(violation)},
		{"session expiry twice", 0x10, v5 + "\x02\x00\x00" + with("\x11\x00\x00\x00\x00", "\x11\x00\x00\x00\x00") + "\x00\x01i", violation, refused5(violation)},
		{"will delay outside of the will", 0x10, v5 + "\x02\x00\x00" + with("\x18\x00\x00\x00\x01") + "\x00\x01i", malformed, refused5(malformed)},
		{"session expiry of the will", 0x10, v5 + "\x06\x00\x00\x00\x00\x01i" + with("\x11\x00\x00\x00\x00") + "\x00\x01w\x00\x01x", malformed, refused5(malformed)},
		{"authentication method", 0x10, v5 + "\x02\x00\x00" + with("\x15\x00\x01m", "\x16\x00\x01d") + "\x00\x01i", 0x8C, refused5(0x8C)},
		{"authentication data without method", 0x10, v5 + "\x02\x00\x00" + with("\x16\x00\x01d") + "\x00\x01i", violation, refused5(violation)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			frame := framed(tt.first, tt.body)
			_, header := lengthOf(frame)
			_, err := inspectConnect(frame, header)
			check(t, err, tt.code)
			if err == nil {
				return
			}
			if got := connackRefusing(frame, header, err); !bytes.Equal(got, tt.want) {
				t.Errorf("answered by %x, want %x", got, tt.want)
			}
		})
	}
}
