package hostiletest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// patient is the broker that everything is done to.
type patient struct {
	*brokertest.Broker
	t          *testing.T
	goroutines int
	memory     int
	checkups   int
	logged     int // the length of the log at the last checkup
}

const (
	spareGoroutines = 12       // of the storage engine, which come and go
	spareMemory     = 32 << 20 // bytes, of its buffers
	recovery        = 3 * time.Minute
	connectTimeout  = 5 * time.Second // others connect within it, on a busy machine too
)

// admit starts a broker and notes how it is when it is well.
func admit(t *testing.T) *patient {
	t.Helper()
	p := &patient{t: t, Broker: brokertest.Start(t, brokertest.Options{
		WebSocket: true,
		Args: []string{
			"--connect-timeout", connectTimeout.String(),
			"--history", "noise/#", "--rewind", "1h", "--group-stream-from", "3", "--keep-qos0",
		},
	})}
	receiver := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "absent"})
	receiver.Subscribe("checkup", 1)
	receiver.Disconnect()
	p.probe(t)
	p.goroutines, p.memory = p.read(t, "system/threads"), p.read(t, "system/memory")
	t.Logf("at first: %d goroutines, %d MiB", p.goroutines, p.memory>>20)
	return p
}

// checkup sees to it that the broker is as well as at first.
func (p *patient) checkup(t *testing.T) {
	t.Helper()
	p.probe(t)
	latest := 0
	mqtttest.EventuallyWithin(t, recovery, func() bool {
		latest = p.read(t, "system/threads")
		return latest <= p.goroutines+spareGoroutines
	}, fmt.Sprintf("%d goroutines, as at first", p.goroutines))
	log := p.Log()
	for _, sign := range []string{"panic", "DATA RACE", "fatal error", "level=ERROR"} {
		if strings.Contains(log[p.logged:], sign) {
			t.Errorf("the log has %q", sign)
		}
	}
	p.logged = len(log)
	t.Logf("after it: %d goroutines", latest)
}

// release sees to it that the broker has given its memory back, which it does
// when it has been quiet for a while, and that what it has stored is sound.
func (p *patient) release(t *testing.T) {
	t.Helper()
	latest := 0
	mqtttest.EventuallyWithin(t, recovery, func() bool {
		latest = p.read(t, "system/memory")
		return latest <= p.memory+spareMemory
	}, fmt.Sprintf("%d MiB, as at first", p.memory>>20))
	t.Logf("in the end: %d MiB", latest>>20)
	p.Verify()
}

// probe sends a message to an absent receiver, who then comes and gets it.
func (p *patient) probe(t *testing.T) {
	t.Helper()
	p.checkups++
	want := fmt.Sprintf("checkup %d", p.checkups)
	publisher := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "checker", Clean: true})
	publisher.PublishAndWait("checkup", want, 1)
	publisher.Disconnect()
	receiver := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "absent"})
	if got := receiver.NextPublish(); string(got.Payload) != want {
		t.Errorf("the absent receiver got %s, want %q", mqtttest.Describe(got), want)
	}
	receiver.Disconnect()
}

// read returns one of the broker's own figures, as it is told within a second.
// The first message may be an older one that was retained.
func (p *patient) read(t *testing.T, figure string) int {
	t.Helper()
	c := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "reader", Version: 5, Clean: true})
	defer c.Disconnect()
	c.SubscribeAll(packets.Subscription{Filter: "$SYS/broker/" + figure, RetainHandling: 2})
	n, err := strconv.Atoi(string(c.NextPublish().Payload))
	if err != nil {
		t.Fatalf("read %s: %v", figure, err)
	}
	return n
}

// clean ends the sessions of clients, so that what they were sent goes too.
func (p *patient) clean(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: id, Clean: true}).Disconnect()
	}
}

// alive reports whether the broker's process still runs.
func (p *patient) alive() bool {
	select {
	case <-p.Exited():
		return false
	default:
		return true
	}
}
