package hooks

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

// framed returns a frame with this first byte and what follows its remaining
// length.
func framed(first byte, body string) []byte {
	return append(appendLength([]byte{first}, len(body)), body...)
}

// with returns properties, after their length.
func with(properties ...string) string {
	all := strings.Join(properties, "")
	return string(appendLength(nil, len(all))) + all
}

const (
	malformed = 0x81
	violation = 0x82
)

func TestInspect(t *testing.T) {
	long := strings.Repeat("x", 65535)
	tests := []struct {
		name  string
		first byte
		body  string
		old   byte // what is said of it before MQTT 5, for the log alone
		v5    byte // what MQTT 5 says of the same with properties, in body5
		body5 string
	}{
		{"publish", 0x30, "\x00\x01tx", 0, 0, "\x00\x01t\x00x"},
		{"publish nothing", 0x31, "\x00\x01t", 0, 0, "\x00\x01t\x00"},
		{"publish at QoS 1", 0x32, "\x00\x01t\x00\x01x", 0, 0, "\x00\x01t\x00\x01\x00x"},
		{"publish at QoS 2 again", 0x3C, "\x00\x01t\x00\x01x", 0, 0, "\x00\x01t\x00\x01\x00x"},
		{"publish at QoS 3", 0x36, "\x00\x01t\x00\x01x", malformed, malformed, "\x00\x01t\x00\x01\x00x"},
		{"publish at QoS 0 again", 0x38, "\x00\x01tx", malformed, malformed, "\x00\x01t\x00x"},
		{"publish with id 0", 0x32, "\x00\x01t\x00\x00x", violation, violation, "\x00\x01t\x00\x00\x00x"},
		{"publish without id", 0x32, "\x00\x01t", malformed, malformed, "\x00\x01t"},
		{"publish half an id", 0x32, "\x00\x01t\x00", malformed, malformed, "\x00\x01t\x00"},
		{"publish without topic", 0x30, "\x00\x00x", violation, violation, "\x00\x00\x00x"},
		{"publish half a topic", 0x30, "\x00\x02t", malformed, malformed, "\x00\x02t"},
		{"publish empty", 0x30, "", malformed, malformed, ""},
		{"publish half a length", 0x30, "\x00", malformed, malformed, "\x00"},
		{"publish to the longest topic", 0x30, "\xFF\xFF" + long, 0, 0, "\xFF\xFF" + long + "\x00"},
		{"publish to #", 0x30, "\x00\x03a/#x", malformed, malformed, "\x00\x03a/#\x00x"},
		{"publish to +", 0x30, "\x00\x03+/ax", malformed, malformed, "\x00\x03+/a\x00x"},
		{"publish to U+0000", 0x30, "\x00\x03a\x00ax", malformed, malformed, "\x00\x03a\x00a\x00x"},
		{"publish to U+0001", 0x30, "\x00\x03a\x01ax", malformed, malformed, "\x00\x03a\x01a\x00x"},
		{"publish to U+007F", 0x30, "\x00\x03a\x7Fax", malformed, malformed, "\x00\x03a\x7Fa\x00x"},
		{"publish to U+009F", 0x30, "\x00\x02\xC2\x9Fx", malformed, malformed, "\x00\x02\xC2\x9F\x00x"},
		{"publish to U+00A0", 0x30, "\x00\x02\xC2\xA0x", 0, 0, "\x00\x02\xC2\xA0\x00x"},
		{"publish to U+D800", 0x30, "\x00\x03\xED\xA0\x80x", malformed, malformed, "\x00\x03\xED\xA0\x80\x00x"},
		{"publish to U+FDD0", 0x30, "\x00\x03\xEF\xB7\x90x", malformed, malformed, "\x00\x03\xEF\xB7\x90\x00x"},
		{"publish to U+FEFF", 0x30, "\x00\x03\xEF\xBB\xBFx", 0, 0, "\x00\x03\xEF\xBB\xBF\x00x"},
		{"publish to U+FFFD", 0x30, "\x00\x03\xEF\xBF\xBDx", 0, 0, "\x00\x03\xEF\xBF\xBD\x00x"},
		{"publish to U+1FFFF", 0x30, "\x00\x04\xF0\x9F\xBF\xBFx", malformed, malformed, "\x00\x04\xF0\x9F\xBF\xBF\x00x"},
		{"publish to U+2A6D4", 0x30, "\x00\x05A\xF0\xAA\x9B\x94x", 0, 0, "\x00\x05A\xF0\xAA\x9B\x94\x00x"},
		{"publish to no UTF-8", 0x30, "\x00\x01\xFFx", malformed, malformed, "\x00\x01\xFF\x00x"},

		{"PUBACK", 0x40, "\x00\x01", 0, 0, "\x00\x01"},
		{"PUBREC", 0x50, "\x00\x01", 0, 0, "\x00\x01\x00"},
		{"PUBREL", 0x62, "\x00\x01", 0, 0, "\x00\x01\x92\x00"},
		{"PUBCOMP", 0x70, "\x00\x01", 0, 0, "\x00\x01\x00" + with("\x1F\x00\x01r", "\x26\x00\x01k\x00\x01v")},
		{"PUBACK with flags", 0x42, "\x00\x01", malformed, malformed, "\x00\x01"},
		{"PUBREL without flags", 0x60, "\x00\x01", malformed, malformed, "\x00\x01"},
		{"PUBACK without id", 0x40, "", malformed, malformed, ""},
		{"PUBACK half an id", 0x40, "\x01", malformed, malformed, "\x01"},
		{"PUBACK with id 0", 0x40, "\x00\x00", violation, violation, "\x00\x00\x00"},
		{"PUBACK and more", 0x40, "\x00\x01\x00", malformed, malformed, "\x00\x01\x00\x00\x00"},
		{"PUBACK with a code of PUBREL", 0x40, "\x00\x01", 0, violation, "\x00\x01\x92"},
		{"PUBREL with a code of PUBACK", 0x62, "\x00\x01", 0, violation, "\x00\x01\x10"},
		{"PUBREC that refuses", 0x50, "\x00\x01", 0, 0, "\x00\x01\x97"},
		{"PUBACK with properties too long", 0x40, "\x00\x01", 0, malformed, "\x00\x01\x00\x09"},
		{"PUBACK with properties without end", 0x40, "\x00\x01", 0, malformed, "\x00\x01\x00\x80"},

		{"subscribe", 0x82, "\x00\x01\x00\x01t\x02", 0, 0, "\x00\x01" + with("\x0B\x01", "\x26\x00\x01k\x00\x01v") + "\x00\x01t\x2E"},
		{"subscribe to two", 0x82, "\x00\x01\x00\x01t\x02\x00\x01u\x00", 0, 0, "\x00\x01\x00\x00\x01t\x02\x00\x01u\x00"},
		{"subscribe with id 0", 0x82, "\x00\x00\x00\x01t\x02", violation, violation, "\x00\x00\x00\x00\x01t\x02"},
		{"subscribe to none", 0x82, "\x00\x01", violation, violation, "\x00\x01\x00"},
		{"subscribe without flags", 0x80, "\x00\x01\x00\x01t\x02", malformed, malformed, "\x00\x01\x00\x00\x01t\x02"},
		{"subscribe without options", 0x82, "\x00\x01\x00\x01t", malformed, malformed, "\x00\x01\x00\x00\x01t"},
		{"subscribe half a filter", 0x82, "\x00\x01\x00\x02t", malformed, malformed, "\x00\x01\x00\x00\x02t"},
		{"subscribe to no UTF-8", 0x82, "\x00\x01\x00\x01\xFF\x00", malformed, malformed, "\x00\x01\x00\x00\x01\xFF\x00"},
		{"subscribe at QoS 3", 0x82, "\x00\x01\x00\x01t\x03", malformed, violation, "\x00\x01\x00\x00\x01t\x03"},
		{"subscribe with reserved options", 0x82, "\x00\x01\x00\x01t\x04", malformed, malformed, "\x00\x01\x00\x00\x01t\x40"},
		{"subscribe with retain handling 3", 0x82, "\x00\x01\x00\x01t\x30", malformed, violation, "\x00\x01\x00\x00\x01t\x30"},
		{"subscribe to $share, no local", 0x82, "\x00\x01\x00\x0A$share/g/t\x01", 0, violation, "\x00\x01\x00\x00\x0A$share/g/t\x05"},
		{"subscribe with identifier 0", 0x82, "\x00\x01\x00\x01t\x02", 0, violation, "\x00\x01" + with("\x0B\x00") + "\x00\x01t\x02"},
		{"subscribe with two identifiers", 0x82, "\x00\x01\x00\x01t\x02", 0, violation, "\x00\x01" + with("\x0B\x01", "\x0B\x02") + "\x00\x01t\x02"},
		{"subscribe with the greatest identifier", 0x82, "\x00\x01\x00\x01t\x02", 0, 0, "\x00\x01" + with("\x0B\xFF\xFF\xFF\x7F") + "\x00\x01t\x02"},
		{"subscribe with an identifier of five bytes", 0x82, "\x00\x01\x00\x01t\x02", 0, malformed, "\x00\x01" + with("\x0B\x80\x80\x80\x80\x01") + "\x00\x01t\x02"},
		{"subscribe with an identifier in too many bytes", 0x82, "\x00\x01\x00\x01t\x02", 0, malformed, "\x00\x01" + with("\x0B\x81\x00") + "\x00\x01t\x02"},

		{"unsubscribe", 0xA2, "\x00\x01\x00\x01t", 0, 0, "\x00\x01\x00\x00\x01t"},
		{"unsubscribe without flags", 0xA0, "\x00\x01\x00\x01t", malformed, malformed, "\x00\x01\x00\x00\x01t"},
		{"unsubscribe with id 0", 0xA2, "\x00\x00\x00\x01t", violation, violation, "\x00\x00\x00\x00\x01t"},
		{"unsubscribe from none", 0xA2, "\x00\x01", violation, violation, "\x00\x01\x00"},
		{"unsubscribe half a filter", 0xA2, "\x00\x01\x00\x02t", malformed, malformed, "\x00\x01\x00\x00\x02t"},
		{"unsubscribe with an identifier", 0xA2, "\x00\x01\x00\x01t", 0, malformed, "\x00\x01" + with("\x0B\x01") + "\x00\x01t"},

		{"PINGREQ", 0xC0, "", 0, 0, ""},
		{"PINGREQ with flags", 0xC2, "", malformed, malformed, ""},
		{"PINGREQ and more", 0xC0, "\x00", malformed, malformed, "\x00"},

		{"disconnect", 0xE0, "", 0, 0, "\x04" + with("\x11\x00\x00\x00\x01", "\x1F\x00\x01r")},
		{"disconnect with a code alone", 0xE0, "", 0, 0, "\x04"},
		{"disconnect with a code", 0xE0, "\x00", malformed, 0, "\x80\x00"},
		{"disconnect with flags", 0xE1, "", malformed, malformed, ""},
		{"disconnect with a code of servers", 0xE0, "", 0, violation, "\x8B"},
		{"disconnect with a code of nobody", 0xE0, "", 0, violation, "\x01\x00"},
		{"disconnect and more", 0xE0, "\x00", malformed, malformed, "\x00\x00\x00"},
		{"disconnect with a server", 0xE0, "", 0, violation, "\x00" + with("\x1C\x00\x01s")},

		{"second CONNECT", 0x10, "\x00\x04MQTT\x04\x02\x00\x00\x00\x00", violation, violation, "\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00"},
		{"CONNACK", 0x20, "\x00\x00", violation, violation, "\x00\x00\x00"},
		{"SUBACK", 0x90, "\x00\x01\x00", violation, violation, "\x00\x01\x00\x00"},
		{"UNSUBACK", 0xB0, "\x00\x01", violation, violation, "\x00\x01\x00\x00"},
		{"PINGRESP", 0xD0, "", violation, violation, ""},
		{"AUTH", 0xF0, "", violation, violation, "\x18" + with("\x15\x00\x01m")},
		{"AUTH with flags", 0xF1, "", malformed, malformed, ""},
		{"type 0", 0x00, "", malformed, malformed, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, inspectWhole(framed(tt.first, tt.body), false), tt.old)
			check(t, inspectWhole(framed(tt.first, tt.body5), true), tt.v5)
		})
	}
}

// check compares a verdict with the code that is wanted, 0 for none.
func check(t *testing.T, err error, want byte) {
	t.Helper()
	var code packets.Code
	switch {
	case err == nil && want == 0:
	case !errors.As(err, &code) || code.Code != want:
		t.Errorf("verdict %v (%#x), want %#x", err, code.Code, want)
	}
}

// inspectWhole inspects a frame of which first no more is there than its fixed
// header, and then what it asks for.
func inspectWhole(frame []byte, v5 bool) error {
	_, header := lengthOf(frame)
	b := frame[:header]
	for {
		n := reach(b, header, len(frame), v5)
		if n <= len(b) {
			_, err := inspect(b, header, len(frame), v5)
			return err
		}
		b = frame[:n]
	}
}

// lengthOf reads the fixed header of a frame.
func lengthOf(frame []byte) (remaining, header int) {
	remaining, size, err := packets.DecodeLength(bytes.NewReader(frame[1:]))
	if err != nil {
		return -1, 0
	}
	return remaining, 1 + size
}

func TestInspectLengthInTooManyBytes(t *testing.T) {
	frame := []byte{0xC0, 0x80, 0x00}
	check(t, inspectWhole(frame, true), malformed)
	check(t, inspectWhole(frame, false), 0) // a rule of MQTT 5
}

func TestInspectProperties(t *testing.T) {
	tests := []struct {
		name       string
		properties string
		want       byte
	}{
		{"all", with("\x01\x01", "\x02\x00\x00\x00\x00", "\x03\x00\x00", "\x08\x00\x01r", "\x09\x00\x02\x00\xFF", "\x23\x00\x01", "\x26\x00\x00\x00\x00", "\x26\x00\x01k\x00\x01v"), 0},
		{"payload format 2", with("\x01\x02"), violation},
		{"payload format twice", with("\x01\x01", "\x01\x01"), violation},
		{"payload format without value", with("\x01"), malformed},
		{"expiry twice", with("\x02\x00\x00\x00\x01", "\x02\x00\x00\x00\x01"), violation},
		{"half an expiry", with("\x02\x00\x00\x00"), malformed},
		{"alias 0", with("\x23\x00\x00"), 0x94},
		{"response topic with wildcard", with("\x08\x00\x03a/#"), malformed},
		{"response topic empty", with("\x08\x00\x00"), malformed},
		{"content type of no UTF-8", with("\x03\x00\x01\xFF"), malformed},
		{"user property without value", with("\x26\x00\x01k"), malformed},
		{"user property with U+0000", with("\x26\x00\x01k\x00\x01\x00"), malformed},
		{"correlation data too short", with("\x09\x00\x02d"), malformed},
		{"subscription identifier", with("\x0B\x01"), violation},
		{"reason string", with("\x1F\x00\x01r"), malformed},
		{"reason string without value", with("\x1F"), malformed},
		{"receive maximum", with("\x21\x00\x01"), malformed},
		{"maximum QoS", with("\x24\x01"), malformed},
		{"will delay", with("\x18\x00\x00\x00\x01"), malformed},
		{"no property 0", with("\x00\x00"), malformed},
		{"no property 4", with("\x04\x00"), malformed},
		{"no property 43", with("\x2B\x00"), malformed},
		{"no property 255", with("\xFF\x7F\x00"), malformed},
		{"longer than the packet", "\x20", malformed},
		{"length without end", "\xFF\xFF\xFF\xFF\x7F", malformed},
		{"length in too many bytes", "\x80\x00", malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, inspectWhole(framed(0x32, "\x00\x01t\x00\x07"+tt.properties+"payload"), true), tt.want)
		})
	}
}

// An alias stands for a topic that is empty.
func TestInspectAlias(t *testing.T) {
	check(t, inspectWhole(framed(0x30, "\x00\x00"+with("\x23\x00\x01")+"x"), true), 0)
	check(t, inspectWhole(framed(0x30, "\x00\x00"+with("\x01\x00")+"x"), true), violation)
}

// A payload is not looked at, however long it is; properties are.
func TestReach(t *testing.T) {
	properties := with(strings.Repeat("\x26\x00\x01k\x00\x01v", 1000))
	head := "\x00\x03a/b\x00\x01" + properties
	frame := framed(0x32, head+strings.Repeat("x", 100_000))
	_, header := lengthOf(frame)
	b, steps := frame[:header], 0
	for n := reach(b, header, len(frame), true); n > len(b); n = reach(b, header, len(frame), true) {
		b, steps = frame[:n], steps+1
	}
	if len(b) != header+len(head) || steps > 3 {
		t.Errorf("%d bytes in %d steps, want %d in 3 at most", len(b), steps, header+len(head))
	}
	if n := reach(frame[:8], header, len(frame), false); n != header+7 {
		t.Errorf("%d bytes before MQTT 5, want %d", n, header+7)
	}
	if n := reach([]byte{0x82, 200, 1}, 3, 203, true); n != 203 {
		t.Errorf("%d bytes of a SUBSCRIBE, want all 203", n)
	}
}

func BenchmarkInspect(b *testing.B) {
	e := benchmarkPublication()
	bare := *e
	plain := *e.Envelope
	plain.UserProperties = nil
	bare.Envelope = &plain
	for name, frame := range map[string][]byte{
		"publish":        appendPublish(nil, true, &bare),
		"user-property":  appendPublish(nil, true, e),
		"acknowledgment": appendAck(nil, true, packets.Puback, 7, 0),
	} {
		b.Run(name, func(b *testing.B) {
			_, header := lengthOf(frame)
			b.ReportAllocs()
			for b.Loop() {
				_, err := inspect(frame, header, len(frame), true)
				if err != nil || reach(frame, header, len(frame), true) > len(frame) {
					b.Fatal("refused")
				}
			}
		})
	}
}
