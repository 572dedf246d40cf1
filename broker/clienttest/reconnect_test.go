package clienttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
)

// A client that receives its own messages goes on by itself when the broker was
// killed and is back: everything that it was given to publish, before, meanwhile
// and after, arrives in order, and once at QoS 2.
func TestLibraryConnectsAgainByItself(t *testing.T) {
	for _, x := range installed(t) {
		if !x.itself {
			continue
		}
		for _, qos := range []byte{1, 2} {
			t.Run(fmt.Sprintf("%s qos %d", x.name, qos), func(t *testing.T) {
				t.Parallel()
				b := brokertest.Start(t, brokertest.Options{WebSocket: true})
				var numbers [][]byte
				var want []message
				for i := range 300 {
					number := fmt.Sprint(i)
					numbers = append(numbers, []byte(number))
					want = append(want, message{"again", qos, number})
				}
				v := visit{
					broker: b, client: x.name, qos: qos, filter: "again",
					topic: "again", payloads: numbers, pause: 5 * time.Millisecond,
					received: expect(len(want)), linger: 300 * time.Millisecond,
				}
				goOn(t, x, v)
				got := v.received.messages()
				if qos == 1 {
					got = v.received.first()
				}
				if d := difference(got, want); d != "" {
					t.Error(d)
				}
			})
		}
	}
}

// goOn makes a visit, and kills the broker and brings it back in the middle.
func goOn(t *testing.T, x visitor, v visit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- x.visit(ctx, v) }()
	select {
	case <-v.received.half:
	case err := <-ended:
		t.Fatalf("ended before half of the messages had come: %s: %v", v.received, err)
	}
	v.broker.Kill()
	v.broker.Restart()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
