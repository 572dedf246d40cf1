package clienttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(publisherEnv); how != "" {
		fmt.Fprintln(os.Stderr, "the publisher ends:", publishUntilKilled(how))
		os.Exit(1)
	}
	brokertest.Main(m, func() error { return leaktest.Find() })
}

// sessionExpiry outlives every test, in seconds.
const sessionExpiry = 3600

// visit is what a client does from CONNECT to DISCONNECT. Its session is kept.
type visit struct {
	broker *brokertest.Broker
	client string // its id
	qos    byte   // of its subscription and its messages

	filter   string        // it subscribes, unless this is empty
	topic    string        // where it publishes
	payloads [][]byte      // it publishes these, in this order
	pause    time.Duration // between two of them

	received *received     // takes what comes; the client stays until that is enough
	linger   time.Duration // and then so long, for what must not come
}

// visitor is a client library.
type visitor struct {
	name   string
	needs  []string // a command that fails if the library is not installed
	itself bool     // it connects again by itself, and goes on in order and exactly once

	// visit makes a visit. When it returns, what was published is acknowledged,
	// and the broker knows that what was received was.
	visit func(ctx context.Context, v visit) error
}

// visitors are all libraries, in each protocol version, and over WebSocket
// those that can. Paho Go for 3.1.1 connects again too, but sends what was not
// acknowledged in no particular order, and does not know a message of QoS 2 that
// comes again.
var visitors = []visitor{
	{"paho-go-3", nil, false, pahoGo},
	{"autopaho-5", nil, true, autopahoOver("mqtt")},
	{"autopaho-5-ws", nil, true, autopahoOver("ws")},
	{"mqttjs-3", mqttjs.check, true, script{mqttjs, 4, "mqtt"}.visit},
	{"mqttjs-5-ws", mqttjs.check, true, script{mqttjs, 5, "ws"}.visit},
	{"paho-python-3", pahoPython.check, true, script{pahoPython, 4, "mqtt"}.visit},
	{"paho-python-5-ws", pahoPython.check, true, script{pahoPython, 5, "ws"}.visit},
	{"mosquitto-3", mosquittoCheck, false, mosquitto{"-V", "mqttv311"}.visit},
	{"mosquitto-5", mosquittoCheck, false, mosquitto{"-V", "mqttv5", "-x", fmt.Sprint(sessionExpiry)}.visit},
}

// installed returns the visitors that can be run here. Where CI is set, all
// must be.
func installed(t *testing.T) []visitor {
	t.Helper()
	var all []visitor
	for _, x := range visitors {
		if len(x.needs) > 0 {
			out, err := exec.Command(x.needs[0], x.needs[1:]...).CombinedOutput() //nolint:gosec // constant arguments
			if err != nil && os.Getenv("CI") != "" {
				t.Fatalf("%s is needed: %v\n%s", x.name, err, out)
			}
			if err != nil {
				t.Logf("%s is not installed: %v", x.name, err)
				continue
			}
		}
		all = append(all, x)
	}
	return all
}

// url is where a visit connects to, with the scheme that the library wants.
func (v visit) url(scheme string) string {
	if scheme == "ws" {
		return "ws://" + v.broker.WebSocket
	}
	return scheme + "://" + v.broker.Address
}

// stay waits for what the visit expects, and for what must not come.
func (v visit) stay(ctx context.Context) error {
	select {
	case <-v.received.enough:
	case <-ctx.Done():
		return fmt.Errorf("receive: %s: %w", v.received, ctx.Err())
	}
	return wait(ctx, v.linger)
}

// awaitAnswer waits for the answer to what was asked at last.
func (v visit) awaitAnswer(ctx context.Context) error {
	select {
	case <-v.received.answered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for an answer: %w", ctx.Err())
	}
}

// wait lets time pass.
func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
