package clienttest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
)

// everything is the filter of every subscription. Messages go to "from/", the
// publisher's name and the QoS.
const everything = "from/#"

// payloads are what every publisher sends. Order shows, so no two are alike.
var payloads = [][]byte{
	[]byte("first"),
	{},
	everyByte(),
	[]byte("zwölf Bücher\n二冊の本 \U0001F4DA\r\n"),
	[]byte(strings.Repeat("long ", 6000)),
	[]byte("last"),
}

func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// Every library receives, after it was away over a kill of the broker, what
// every library has published: each message once, in order, with its payload,
// at both QoS. Then nothing is left.
func TestEveryLibraryReceivesFromEveryLibrary(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{WebSocket: true})
	present := installed(t)
	all := len(present) * 2 * len(payloads)

	each(t, "subscribe", present, func(_ *testing.T, x visitor, qos byte) visit {
		return visit{broker: b, client: receiver(x, qos), filter: everything, received: expect(0)}
	})
	each(t, "publish", present, func(_ *testing.T, x visitor, qos byte) visit {
		return visit{broker: b, client: fmt.Sprintf("publisher-%s-%d", x.name, qos), topic: topicOf(x, qos), payloads: payloads, received: expect(0)}
	})
	b.Kill()
	b.Restart()
	each(t, "receive", present, func(t *testing.T, x visitor, qos byte) visit {
		r := expect(all)
		t.Cleanup(func() { checkAll(t, present, qos, r.messages()) })
		return visit{broker: b, client: receiver(x, qos), received: r}
	})
	each(t, "look again", present, func(t *testing.T, x visitor, qos byte) visit {
		r := expect(0)
		t.Cleanup(func() {
			if again := r.messages(); len(again) > 0 {
				t.Errorf("got again: %v", again)
			}
		})
		return visit{broker: b, client: receiver(x, qos), received: r, linger: 200 * time.Millisecond}
	})
}

// checkAll checks that a receiver got everything that was published, with the
// lower QoS of message and subscription [MQTT-3.8.4-8].
func checkAll(t *testing.T, publishers []visitor, qos byte, got []message) {
	t.Helper()
	byTopic := map[string][]message{}
	for _, m := range got {
		byTopic[m.topic] = append(byTopic[m.topic], m)
	}
	for _, p := range publishers {
		for _, published := range []byte{1, 2} {
			topic := topicOf(p, published)
			var want []message
			for _, payload := range payloads {
				want = append(want, message{topic, min(qos, published), string(payload)})
			}
			if d := difference(byTopic[topic], want); d != "" {
				t.Errorf("of %s: %s", topic, d)
			}
			delete(byTopic, topic)
		}
	}
	if len(byTopic) > 0 {
		t.Errorf("got besides: %v", byTopic)
	}
}

func receiver(x visitor, qos byte) string { return fmt.Sprintf("receiver-%s-%d", x.name, qos) }

func topicOf(x visitor, qos byte) string { return fmt.Sprintf("from/%s/%d", x.name, qos) }

// deadline bounds one visit.
const deadline = 3 * time.Minute

// each makes a visit with every library and QoS, several at a time.
func each(t *testing.T, name string, all []visitor, plan func(t *testing.T, x visitor, qos byte) visit) {
	t.Helper()
	ok := t.Run(name, func(t *testing.T) {
		for _, x := range all {
			for _, qos := range []byte{1, 2} {
				t.Run(fmt.Sprintf("%s qos %d", x.name, qos), func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					v := plan(t, x, qos)
					v.qos = qos
					if err := x.visit(ctx, v); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
	if !ok {
		t.FailNow()
	}
}
