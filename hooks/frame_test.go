package hooks

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// decodeFrame decodes one whole frame with the MQTT library's decoder.
func decodeFrame(t testing.TB, b []byte, version byte) packets.Packet {
	t.Helper()
	r := bytes.NewReader(b[1:])
	pk := packets.Packet{ProtocolVersion: version}
	if err := pk.FixedHeader.Decode(b[0]); err != nil {
		t.Fatal(err)
	}
	remaining, _, err := packets.DecodeLength(r)
	if err != nil {
		t.Fatal(err)
	}
	if remaining != r.Len() {
		t.Fatalf("remaining length %d, but %d bytes follow", remaining, r.Len())
	}
	pk.FixedHeader.Remaining = remaining
	body := b[len(b)-remaining:]
	switch pk.FixedHeader.Type {
	case packets.Publish:
		err = pk.PublishDecode(body)
	case packets.Disconnect:
		err = pk.DisconnectDecode(body)
	default:
		err = pk.PubackDecode(body)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pk
}

func randomText(r *rand.Rand, max int) string {
	return strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(max+1))
}

func randomPublication(r *rand.Rand) *publication {
	p := &publication{
		Envelope: &inbox.Envelope{
			Topic:         "t/" + randomText(r, 300),
			Payload:       []byte(randomText(r, 20000)),
			ContentType:   randomText(r, 20),
			ResponseTopic: randomText(r, 20),
			PayloadFormat: inbox.PayloadFormat(r.IntN(3)),
		},
		grant: inbox.Grant{QoS: byte(r.IntN(3)), Retain: r.IntN(2) == 1},
	}
	if r.IntN(2) == 1 {
		p.Expiry = 1
		p.left = []uint32{0, 1, 77, 0xFFFFFFFF}[r.IntN(4)]
	}
	if r.IntN(2) == 1 {
		p.CorrelationData = []byte{0, 1, byte(r.Uint32())}[:r.IntN(4)] // empty is not absent
	}
	for range r.IntN(4) {
		p.grant.Identifiers = append(p.grant.Identifiers, 1+r.Uint32N(268435455))
	}
	for range r.IntN(4) {
		p.UserProperties = append(p.UserProperties, inbox.UserProperty{Key: randomText(r, 3), Value: randomText(r, 200)})
	}
	if p.grant.QoS > 0 {
		p.packetID = uint16(1 + r.IntN(65535))
		p.dup = r.IntN(2) == 1
	}
	return p
}

// wantPacket is what a decoder must find in the frame of p.
func wantPacket(p *publication, v5 bool) packets.Packet {
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: p.grant.QoS, Dup: p.dup, Retain: p.grant.Retain},
		TopicName:   p.Topic,
		Payload:     p.Payload,
		PacketID:    p.packetID,
	}
	if !v5 {
		pk.ProtocolVersion = 4
		return pk
	}
	pk.ProtocolVersion = 5
	pk.Properties = packets.Properties{
		ContentType:           p.ContentType,
		ResponseTopic:         p.ResponseTopic,
		CorrelationData:       p.CorrelationData,
		MessageExpiryInterval: p.left,
		PayloadFormatFlag:     p.PayloadFormat != inbox.FormatAbsent,
	}
	if p.PayloadFormat == inbox.FormatUTF8 {
		pk.Properties.PayloadFormat = 1
	}
	for _, id := range p.grant.Identifiers {
		pk.Properties.SubscriptionIdentifier = append(pk.Properties.SubscriptionIdentifier, int(id))
	}
	for _, u := range p.UserProperties {
		pk.Properties.User = append(pk.Properties.User, packets.UserProperty{Key: u.Key, Val: u.Value})
	}
	return pk
}

func TestPublishFrameDecodes(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		p, v5 := randomPublication(r), r.IntN(2) == 1
		frame := appendPublish(nil, v5, p)
		if size, _, _ := p.size(v5); size != len(frame) {
			t.Fatalf("size %d, but the frame has %d bytes", size, len(frame))
		}
		want := wantPacket(p, v5)
		got := decodeFrame(t, frame, want.ProtocolVersion)
		got.FixedHeader.Remaining = 0
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("decoded\n%+v\nwant\n%+v", got, want)
		}
	}
}

// A frame whose lengths are wrong would break the connection of its receiver.
func TestPublishFrameCutsOffWhatItCannotCarry(t *testing.T) {
	long := strings.Repeat("ü", 40_000)
	p := &publication{Envelope: &inbox.Envelope{
		Topic: "a" + long, Payload: []byte("payload"),
		ContentType: long, ResponseTopic: long, CorrelationData: []byte(long),
		UserProperties: []inbox.UserProperty{{Key: long, Value: long}},
	}}
	frame := appendPublish(nil, true, p)
	if size, _, _ := p.size(true); size != len(frame) {
		t.Errorf("size %d, but the frame has %d bytes", size, len(frame))
	}
	pk := decodeFrame(t, frame, 5)
	if string(pk.Payload) != "payload" {
		t.Errorf("a payload of %d bytes", len(pk.Payload))
	}
	if want := long[:maxText-1]; pk.Properties.ContentType != want || pk.Properties.User[0].Val != want {
		t.Error("it is not cut off at the last whole character")
	}
}

func TestPublishFrameAllocatesNothing(t *testing.T) {
	p := randomPublication(rand.New(rand.NewPCG(1, 2)))
	b := appendPublish(nil, true, p)
	if n := testing.AllocsPerRun(100, func() { b = appendPublish(b[:0], true, p) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestAckFrames(t *testing.T) {
	for _, kind := range []byte{packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp} {
		for _, version := range []byte{4, 5} {
			for _, code := range []byte{0, 0x10, 0x97} {
				frame := appendAck(nil, version == 5, kind, 0x1234, code)
				pk := decodeFrame(t, frame, version)
				if pk.FixedHeader.Type != kind || pk.PacketID != 0x1234 {
					t.Errorf("%x decodes to %+v", frame, pk)
				}
				if version == 5 && pk.ReasonCode != code {
					t.Errorf("%x has code %#x, want %#x", frame, pk.ReasonCode, code)
				}
				if (version < 5 || code == 0) && len(frame) != 4 {
					t.Errorf("%x has %d bytes, want 4", frame, len(frame))
				}
				if version < 5 {
					continue
				}
				if got := decodeAck(frame, 2); got != (ack{kind: kind, id: 0x1234, code: code}) {
					t.Errorf("decodeAck(%x) = %+v", frame, got)
				}
			}
		}
	}
}

func TestDisconnectFrame(t *testing.T) {
	if pk := decodeFrame(t, appendDisconnect(nil, 0x8E), 5); pk.ReasonCode != 0x8E {
		t.Errorf("reason %#x, want 0x8e", pk.ReasonCode)
	}
}

func TestSecondsLeft(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	tests := []struct{ expiry, want int64 }{
		{0, 0}, {1_000_001, 1}, {1_001_000, 1}, {1_001_001, 2}, {1_000_000, 1}, {1_594_000, 594}, {1001, 1}, {instant, 0},
	}
	for _, tt := range tests {
		if got := secondsLeft(&inbox.Envelope{Expiry: tt.expiry}, now); int64(got) != tt.want {
			t.Errorf("expiry %d: %d s left, want %d", tt.expiry, got, tt.want)
		}
	}
}

func TestSecondsLeftIsNotMoreThanGivenWhenTheClockHasJumpedBack(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	ahead := now.Add(time.Hour).UnixMilli()
	if got := secondsLeft(&inbox.Envelope{Time: ahead, Expiry: ahead + 60_000}, now); got != 60 {
		t.Errorf("%d s left of 60", got)
	}
}

func benchmarkPublication() *publication {
	return &publication{
		Envelope: &inbox.Envelope{
			Topic:          "inbox/receiver-1/messages",
			Payload:        make([]byte, 256),
			UserProperties: []inbox.UserProperty{{Key: "msg-id", Value: "0123456789abcdef"}},
		},
		grant:    inbox.Grant{QoS: 1},
		packetID: 7,
	}
}

func BenchmarkAppendPublish(b *testing.B) {
	p := benchmarkPublication()
	buf := appendPublish(nil, true, p)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendPublish(buf[:0], true, p)
	}
}

func BenchmarkLibraryPublish(b *testing.B) {
	p := benchmarkPublication()
	pk := packetOf(p.Envelope, 1)
	pk.PacketID = 7
	b.ReportAllocs()
	for b.Loop() {
		var buf bytes.Buffer
		if err := pk.PublishEncode(&buf); err != nil {
			b.Fatal(err)
		}
	}
}
