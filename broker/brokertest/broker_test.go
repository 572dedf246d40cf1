package brokertest_test

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

func TestMain(m *testing.M) {
	brokertest.Main(m, func() error { return leaktest.Find() })
}

func TestKillAndRestartKeepAddressAndData(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	o := mqtttest.Options{ClientID: "alice"}
	alice := mqtttest.Dial(t, b.Address, o)
	alice.Subscribe("a", 1)
	b.Kill()
	alice.WaitClosed()
	b.Restart()
	if !mqtttest.Dial(t, b.Address, o).SessionPresent {
		t.Error("the session was lost with the process")
	}
}

func TestStopEndsWithSuccess(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// While a broker is down, or about to start, its port is no other broker's.
func TestPortsAreOneBrokersAlone(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	b.Kill()
	if brokertest.Claim(t, b.Address) {
		t.Error("another broker gets the port of one that was killed")
	}
	b.Restart()
}
