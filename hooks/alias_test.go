package hooks

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// resolver is a client's side of topic aliases.
type resolver map[uint16]string

// resolve returns the topic of a packet.
func (r resolver) resolve(t *testing.T, pk packets.Packet) string {
	t.Helper()
	switch alias := pk.Properties.TopicAlias; {
	case alias > maxAliases:
		t.Fatalf("alias %d, want %d at most", alias, maxAliases)
	case pk.TopicName == "" && r[alias] == "":
		t.Fatalf("alias %d without topic, and none told before", alias)
	case pk.TopicName == "":
		return r[alias]
	case alias > 0:
		r[alias] = pk.TopicName
	}
	return pk.TopicName
}

// Messages of both ways out, the hook's own and the MQTT library's, arrive with
// their topics, whatever is dropped on the way.
func TestAliases(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	o := opened(t, 4000, true)
	o.alias(65535, 0)
	o.buf = nil // CONNACK
	var sent []byte
	var want []string
	for range 3000 {
		e := &inbox.Envelope{
			Topic:       fmt.Sprint("topic/", r.IntN(20), strings.Repeat("x", r.IntN(2)*120)),
			Payload:     make([]byte, r.IntN(200)),
			ContentType: randomText(r, 130),
		}
		p := &publication{Envelope: e, grant: inbox.Grant{QoS: byte(r.IntN(2))}, packetID: 7}
		size, _, _ := p.size(true)
		switch {
		case r.IntN(12) == 0:
			sent, o.buf = append(sent, o.buf...), nil
		case r.IntN(2) == 0 && o.offer(p), o.fitsLocked(size) && writes(t, o, p):
			want = append(want, e.Topic)
		}
	}
	sent = append(sent, o.buf...)

	topics := resolver{}
	for i := range want {
		remaining, header := lengthOf(sent)
		pk := decodeFrame(t, sent[:header+remaining], 5)
		sent = sent[header+remaining:]
		if got := topics.resolve(t, pk); got != want[i] {
			t.Fatalf("message %d has topic %q, want %q", i, got, want[i])
		}
	}
	if len(sent) != 0 || len(topics) != maxAliases {
		t.Errorf("%d bytes left, %d aliases; want none and %d", len(sent), len(topics), maxAliases)
	}
}

// writes sends a message as the MQTT library does.
func writes(t *testing.T, o *outbound, p *publication) bool {
	t.Helper()
	if _, err := o.write(appendPublish(nil, true, p)); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestAliasNotGiven(t *testing.T) {
	tests := []struct {
		name    string
		aliases aliases
		topic   string
		frame   int
	}{
		{"none allowed", aliases{}, "topic", 100},
		{"nothing to gain", aliases{maximum: 1}, "abc", 100},
		{"packet would be too large", aliases{maximum: 1, maxPacket: 104}, "topic", 100},
		{"none left", aliases{maximum: 1, known: map[string]uint16{"other": 1}}, "topic", 100},
	}
	for _, tt := range tests {
		if alias, _ := tt.aliases.of(tt.topic, tt.frame); alias != 0 {
			t.Errorf("%s: alias %d, want none", tt.name, alias)
		}
	}
	a := aliases{maximum: 1, maxPacket: 105}
	if alias, known := a.of("topic", 100); alias != 1 || known {
		t.Errorf("alias %d, %t; want a new one", alias, known)
	}
	if alias, known := a.of("topic", 1000); alias != 1 || !known {
		t.Errorf("alias %d, %t; want the known one", alias, known)
	}
}

// What is held back until SUBACK has no alias: it comes after what is not.
func TestHeldMessagesHaveNoAlias(t *testing.T) {
	o := opened(t, 4000, true)
	o.alias(10, 0)
	o.buf = nil // CONNACK
	p := &publication{Envelope: &inbox.Envelope{Topic: "topic"}}
	o.hold()
	if !o.offer(p) {
		t.Fatal("not taken")
	}
	writes(t, o, p)
	o.release()
	topics := resolver{}
	for _, alias := range []uint16{1, 0} {
		remaining, header := lengthOf(o.buf)
		pk := decodeFrame(t, o.buf[:header+remaining], 5)
		o.buf = o.buf[header+remaining:]
		if topic := topics.resolve(t, pk); topic != "topic" || pk.Properties.TopicAlias != alias {
			t.Errorf("topic %q, alias %d; want alias %d", topic, pk.Properties.TopicAlias, alias)
		}
	}
}
