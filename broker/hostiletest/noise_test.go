package hostiletest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

const (
	noisy      = 8  // links at a time
	packetsMax = 40 // on one link
	noisyIDs   = 20 // client ids, so that links take over from each other
	patience   = time.Minute
)

// noise sends mutated and random packets on links of all versions. What a link's
// packets are follows from the seed, but for the ids and cursors in them that were heard;
// what the broker makes of them depends on the other links too.
func noise(t *testing.T, p *patient) {
	r := source(t)
	heard := &hearsay{}
	seeds := make(chan uint64)
	var group sync.WaitGroup
	for range noisy {
		group.Go(func() {
			for s := range seeds {
				if err := makeNoise(p.Address, rand.New(rand.NewPCG(s, 1)), heard); err != nil { //nolint:gosec // to repeat it
					t.Errorf("link of seed %d: %v", s, err)
				}
			}
		})
	}
	for range *links {
		seeds <- r.Uint64()
	}
	close(seeds)
	group.Wait()
	t.Logf("the broker has read %d packets since its start", p.read(t, "packets/received"))
	for i := range noisyIDs {
		p.clean(t, noisyID(i))
	}
}

func noisyID(i int) string { return fmt.Sprintf("noisy-%d", i) }

// makeNoise sends packets on one link until it breaks or enough have been sent.
// Only a broker that does not accept links is an error.
func makeNoise(address string, r *rand.Rand, heard *hearsay) error {
	link, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer link.Close()
	if err := link.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(heard, link)
		close(ended)
	}()

	version := byte(3 + r.IntN(3))
	// Many faults break a link at its first packet, few let it come far.
	g := generator{Rand: r, heard: heard, faults: []int{1000, 100, 20, 3}[r.IntN(4)]}
	if !g.fault() {
		if _, err := link.Write(encode(g.connect(version), version)); err != nil {
			return nil // the broker has had enough, which is its right
		}
	}
	for range 1 + r.IntN(packetsMax) {
		b := encode(g.packet(version), version)
		if g.fault() {
			b = g.mutate(b)
		}
		if g.fault() {
			b = g.bytes(200)
		}
		if _, err := link.Write(b); err != nil {
			return nil
		}
	}
	if link.(*net.TCPConn).CloseWrite() == nil {
		<-ended // by now the broker has read everything
	}
	return nil
}

func encode(pk packets.Packet, version byte) []byte {
	pk.ProtocolVersion = version
	b, err := mqtttest.Encode(pk)
	if err != nil {
		return []byte{0} // not every random packet can be encoded
	}
	return b
}

// generator makes random packets.
type generator struct {
	*rand.Rand
	heard  *hearsay
	faults int // one in so many choices breaks a rule of the protocol
}

func (g generator) fault() bool { return g.IntN(g.faults) == 0 }

func (g generator) one(of int) bool { return g.IntN(of) == 0 }

func (g generator) byte(below int) byte { return byte(g.IntN(below)) } //nolint:gosec // below 256

// bytes returns fewer than so many random bytes.
func (g generator) bytes(below int) []byte {
	b := make([]byte, g.IntN(below))
	for i := range b {
		b[i] = g.byte(256)
	}
	return b
}

// mutate changes a few bytes of a packet, its length among them.
func (g generator) mutate(b []byte) []byte {
	for range 1 + g.IntN(4) {
		i := g.IntN(len(b))
		switch g.IntN(6) {
		case 0:
			b[i] ^= 1 << g.IntN(8)
		case 1:
			b[i] = g.byte(256)
		case 2:
			b = append(b[:i:i], b[i+g.IntN(len(b)-i):]...)
		case 3:
			b = append(b[:i:i], append(g.bytes(8), b[i:]...)...)
		case 4:
			b[min(1, len(b)-1)] = g.byte(256) // the length, or its first byte
		case 5:
			b = append(b, b[i:]...)
		}
		if len(b) == 0 {
			return []byte{0}
		}
	}
	return b
}

func (g generator) connect(version byte) packets.Packet {
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect},
		Connect: packets.ConnectParams{
			ProtocolName:     []byte("MQTT"),
			ClientIdentifier: noisyID(g.IntN(noisyIDs)),
			Clean:            g.one(2),
			Keepalive:        uint16(g.byte(3)),
		},
	}
	if version == 3 && !g.fault() {
		pk.Connect.ProtocolName = []byte("MQIsdp")
	}
	if g.one(2) {
		pk.Connect.WillFlag = true
		pk.Connect.WillTopic, pk.Connect.WillPayload = g.topic(), g.bytes(20)
		pk.Connect.WillQos, pk.Connect.WillRetain = g.qos(), g.one(4)
		pk.Connect.WillProperties.WillDelayInterval = uint32(g.byte(3))
	}
	pk.Properties.ReceiveMaximum = uint16(g.byte(4))
	pk.Properties.SessionExpiryInterval, pk.Properties.SessionExpiryIntervalFlag = uint32(g.byte(100)), true
	pk.Properties.User = g.wishes()
	return pk
}

// packet is a packet that a client may send, at the right time or not.
func (g generator) packet(version byte) packets.Packet {
	kinds := []byte{
		packets.Publish, packets.Publish, packets.Publish, packets.Puback, packets.Pubrel,
		packets.Subscribe, packets.Subscribe, packets.Unsubscribe, packets.Pingreq,
	}
	if g.fault() {
		kinds = []byte{packets.Connect, packets.Pubrec, packets.Pubcomp, packets.Disconnect, packets.Auth}
	}
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: kinds[g.IntN(len(kinds))]},
		PacketID:    1 + uint16(g.byte(8)), // few, so that they meet
	}
	if g.fault() {
		pk.PacketID = 0
	}
	switch pk.FixedHeader.Type {
	case packets.Connect:
		return g.connect(version)
	case packets.Publish:
		pk.FixedHeader.Qos, pk.FixedHeader.Retain = g.qos(), g.one(4)
		pk.FixedHeader.Dup = pk.FixedHeader.Qos > 0 && g.one(4) || g.fault()
		pk.TopicName, pk.Payload = g.topic(), g.bytes(100)
		if g.one(2) {
			pk.Properties = g.properties()
		}
		if g.one(3) {
			pk.TopicName, pk.Payload = g.request()
		}
	case packets.Subscribe, packets.Unsubscribe:
		for range 1 + g.IntN(3) {
			pk.Filters = append(pk.Filters, packets.Subscription{
				Filter: g.filter(), Qos: g.qos(), NoLocal: g.fault(), RetainAsPublished: g.one(2), RetainHandling: g.qos(),
			})
		}
		if g.one(3) {
			pk.Properties.SubscriptionIdentifier = []int{1 + g.IntN(300)}
		}
		if g.one(3) {
			last := g.choose("0", "1", "5", "1000", "1001", "-1")
			pk.Properties.User = []packets.UserProperty{{Key: "inbox-last", Val: last}}
		}
	default:
		if g.fault() {
			pk.ReasonCode = g.byte(256)
		}
	}
	return pk
}

// qos is 0 to 2, or 3, which is a fault.
func (g generator) qos() byte {
	if g.fault() {
		return 3
	}
	return g.byte(3)
}

func (g generator) properties() packets.Properties {
	p := packets.Properties{
		MessageExpiryInterval: uint32(g.byte(3)),
		ContentType:           "kind",
		ResponseTopic:         g.topic(),
		CorrelationData:       g.bytes(10),
		User:                  []packets.UserProperty{{Key: "k", Val: "v"}, {Key: "k", Val: string(g.bytes(1 + 5/g.faults))}},
	}
	if g.one(3) {
		p.User = append(p.User, packets.UserProperty{Key: "msg-id", Val: g.choose("1", "2", "3", "", "four")})
	}
	if g.fault() {
		p.TopicAlias, p.TopicAliasFlag = uint16(g.byte(4)), true
		p.SubscriptionIdentifier = []int{g.IntN(300)}
	}
	return p
}

func (g generator) topic() string {
	if g.fault() {
		return g.choose("", "$SYS/broker/uptime", "$share/g/noise/a", "noise/#", "noise/\x00", "noise/\xff")
	}
	return g.choose("noise/a", "noise/b", "noise/a/b", "noise", "/", "$noise")
}

// filter is never $SYS/#: each second mochi writes anew, with another lock than
// its readers hold, the topic of each of these retained messages. It is the same
// text every time, so nobody can tell but the race detector.
func (g generator) filter() string {
	if g.fault() {
		return g.choose("", "noise/#/a", "noise/a+", "$share//noise", "$share/g", "$share/+/a", "noise/\x00", "noise/\xff")
	}
	return g.choose("noise/a", "noise/+", "noise/#", "#", "+/+", "/", "$SYS/broker/uptime", "$share/g/noise/#", "$share/g/noise/a", "$share/h/#")
}

func (g generator) choose(words ...string) string { return words[g.IntN(len(words))] }
