package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// SeedVariable names the environment variable that repeats a run's randomness.
const SeedVariable = "STORETEST_SEED"

// newRandom draws a seed, or takes the one that is given, and prints it.
func newRandom(tr *trial) *rand.Rand {
	tr.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(SeedVariable); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			tr.Fatalf("%s: %v", SeedVariable, err)
		}
	}
	tr.Logf("to repeat: %s=%d", SeedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func envelopeEveryField(tr *trial) {
	random := newRandom(tr)
	c := tr.connect("c", lasting)
	c.subscribe("#", 2)
	var sent, want []*inbox.Envelope
	for i := range size(200, 50) {
		e := randomEnvelope(random, fmt.Sprint("t/", i%7))
		kept := *e
		sent = append(sent, e)
		want = append(want, &kept)
	}
	for i, r := range tr.append(sent...) {
		want[i].ID = r.ID
	}
	compare := func(when string) {
		tr.Helper()
		for i, e := range c.take(len(want)) {
			sameEnvelope(tr, e.Envelope, want[i])
			if e.QoS != want[i].QoS {
				tr.Fatalf("%s: entry %d has QoS %d, want %d", when, i, e.QoS, want[i].QoS)
			}
		}
	}
	compare("at once")
	tr.restart()
	c = tr.connect("c", lasting)
	compare("after a restart")
}

// randomEnvelope returns a message of QoS 1 or 2 in which every field may be
// empty, and user properties repeat.
func randomEnvelope(random *rand.Rand, topic string) *inbox.Envelope {
	text := func() string {
		return []string{"", "x", "ünïcode €", "a/b", strings.Repeat("long ", random.IntN(100))}[random.IntN(5)]
	}
	blob := func() []byte {
		b := make([]byte, random.IntN(3)*random.IntN(300))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	number := func() int64 {
		return []int64{0, 1, 1 << 40, 1<<63 - 1, random.Int64()}[random.IntN(5)]
	}
	e := &inbox.Envelope{
		Time:            number(),
		Topic:           topic,
		Payload:         blob(),
		QoS:             byte(1 + random.IntN(2)),
		Retain:          random.IntN(2) == 0,
		Client:          text(),
		User:            text(),
		Expiry:          []int64{0, time.Now().UnixMilli() - 1000, 1 << 45, 1<<63 - 1}[random.IntN(4)], // one long past may be forgotten
		ContentType:     text(),
		ResponseTopic:   text(),
		CorrelationData: blob(),
		PayloadFormat:   inbox.PayloadFormat(random.IntN(3)),
	}
	for range random.IntN(6) {
		e.UserProperties = append(e.UserProperties, inbox.UserProperty{
			Key: []string{"b", "a", "", "ü"}[random.IntN(4)], Value: text(),
		})
	}
	return e
}

// mustTake is the size of payload from which on a store may refuse a message.
const mustTake = 1<<20 - 8<<10

func envelopeSizes(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("#", 1)
	var want [][]byte
	for i, n := range []int{0, 1, 127, 128, 255, 256, 4095, 65535, 65536, 256 << 10, mustTake, 1 << 20, 4 << 20, 0} {
		e := message("t", 1, "")
		e.Payload = bytes.Repeat([]byte{byte('a' + i)}, n)
		done := make(chan error, 2)
		tr.store.Append(tr.ctx, e, func(_ inbox.Receipt, err error) { done <- err })
		err := <-done
		if err == nil {
			want = append(want, bytes.Repeat([]byte{byte('a' + i)}, n))
		} else if n <= mustTake || !errors.Is(err, inbox.ErrTooLarge) {
			tr.Fatalf("append of %d bytes: %v", n, err)
		}
	}
	compare := func(when string) {
		tr.Helper()
		for i, e := range c.take(len(want)) {
			if !bytes.Equal(e.Envelope.Payload, want[i]) {
				tr.Fatalf("%s: payload of %d bytes came with %d, or other ones", when, len(want[i]), len(e.Envelope.Payload))
			}
		}
	}
	compare("at once")
	c.only()
	tr.restart()
	c = tr.connect("c", lasting)
	compare("after a restart")
}

func envelopeLongTopics(tr *trial) {
	const longest = 65535
	topics := []string{
		strings.Repeat("x", longest),
		strings.Repeat("x", longest-1) + "y",
		strings.Repeat("a/", longest/2) + "z",
		strings.Repeat("/", longest),
	}
	c := tr.connect("c", lasting)
	for i, topic := range topics {
		c.add(inbox.Subscription{Filter: topic, QoS: 1, Identifier: uint32(i + 1)})
	}
	c.close(lasting)
	tr.restart()
	for _, topic := range topics {
		tr.publish(topic, "m")
	}
	tr.restart()
	c = tr.connect("c", lasting)
	for i, e := range c.take(len(topics)) {
		if e.Envelope.Topic != topics[i] {
			tr.Fatalf("topic %d is not what was published", i)
		}
		same(tr, "identifiers", e.Identifiers, []uint32{uint32(i + 1)})
	}
	c.only()
	c.unsubscribe(topics...)
	tr.publish(topics[0], "m")
	c.only()
}
