package hooks_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// BenchmarkPublishIndexed is what it costs publishers that a receiver who is away can
// tell at any time how many messages of whom wait: ten of them have messages of 256
// bytes acknowledged, 100 on their way each, which are of so many topics together.
func BenchmarkPublishIndexed(b *testing.B) {
	for _, topics := range []int{10, 1000} {
		for _, indexed := range []bool{false, true} {
			b.Run(fmt.Sprintf("topics=%d/indexed=%v", topics, indexed), func(b *testing.B) {
				br := startOnDisk(b, badger.Options{StreamFrom: -1})
				br.subscribed(v3("receiver"), "to/#", 1)
				var publishers []*mqtttest.Conn
				for i := range 10 {
					publishers = append(publishers, br.conn(clean(fmt.Sprint("publisher-", i))))
				}
				publishAll(b, publishers, topics, 1000) // as few are counted without an index
				if indexed {
					if _, err := br.store.(inbox.Puller).Summarize(b.Context(), "receiver", inbox.SummaryQuery{Max: 1}); err != nil {
						b.Fatal(err)
					}
				}
				b.ResetTimer()
				publishAll(b, publishers, topics, b.N)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

// publishAll has publishers publish n messages together, each in topics of its own.
func publishAll(b *testing.B, publishers []*mqtttest.Conn, topics, n int) {
	b.Helper()
	var wg sync.WaitGroup
	for i, c := range publishers {
		var frames [][]byte
		for t := i; t < topics; t += len(publishers) {
			frame, err := mqtttest.Encode(packets.Packet{
				FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1}, ProtocolVersion: 4,
				TopicName: fmt.Sprint("to/", t), PacketID: 1, Payload: make([]byte, 256),
			})
			if err != nil {
				b.Fatal(err)
			}
			frames = append(frames, frame)
		}
		wg.Go(func() {
			if err := publishFrames(c, frames, (n+len(publishers)-1)/len(publishers)); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}
