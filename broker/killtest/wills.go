package killtest

import (
	"fmt"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// wills has clients with wills in every state when the broker ends. A will comes
// once, whether its delay passes before the kill, while the broker is away, or over
// the next kill, and not at all if the client took its leave or is back in time.
type wills struct {
	*run
	due       []string           // wills that must come
	connected []*mqtttest.Client // when the broker ends
}

const (
	soon = 2                 // seconds: a delay that may pass over the next kill
	late = sessionExpiry / 2 // seconds: a delay within which the client is back
)

func (w *wills) before(t testing.TB, round int) {
	if round == 0 {
		watcher := w.dial(t, "will-watcher", nil)
		watcher.Subscribe("will/#", w.QoS)
		watcher.Disconnect()
	}
	w.connected = []*mqtttest.Client{
		w.dial(t, w.dies("connected", round), w.will("connected", round, 0)),
		w.dial(t, w.dies("connected-delayed", round), w.will("connected-delayed", round, soon)),
		mqtttest.Dial(t, w.Address, mqtttest.Options{ClientID: w.dies("ends-with-link", round), Version: 5, Clean: true, Will: w.will("ends-with-link", round, 0)}),
		mqtttest.Dial(t, w.Address, mqtttest.Options{ClientID: w.dies("version-4", round), Will: w.will("version-4", round, 0)}),
	}
	w.dial(t, w.dies("absent", round), w.will("absent", round, soon)).Cut()
	w.dial(t, name("returns", round), w.will("returns", round, late)).Cut()

	w.dial(t, name("goodbye", round), w.will("goodbye", round, 0)).Disconnect()
	w.dial(t, name("goodbye", round), nil).Disconnect() // the first link has ended when this one begins
}

func (w *wills) after(t testing.TB, round int) {
	for _, c := range w.connected {
		c.Cut()
	}
	back := w.dial(t, name("returns", round), nil)
	if !back.SessionPresent {
		w.ledger.Violate("%s: its session is gone", back.ID)
	}
	back.Disconnect()
}

func (w *wills) finally(t testing.TB) {
	watcher := w.dial(t, "will-watcher", nil)
	defer watcher.Disconnect()
	times := map[string]int{}
	for _, pk := range gather(watcher, len(w.due)) {
		times[string(pk.Payload)]++
	}
	for _, will := range w.due {
		if times[will] != 1 {
			w.ledger.Violate("the will of %s came %d times", will, times[will])
		}
		delete(times, will)
	}
	for will, n := range times {
		w.ledger.Violate("the will of %s came %d times, should not", will, n)
	}
}

// dies returns the id of a client whose will must come.
func (w *wills) dies(kind string, round int) string {
	w.due = append(w.due, name(kind, round))
	return name(kind, round)
}

// will returns the will of a client, whose payload is the client's id.
func (w *wills) will(kind string, round int, delay uint32) *mqtttest.Will {
	return &mqtttest.Will{Topic: "will/" + kind, Payload: name(kind, round), QoS: w.QoS, Delay: delay}
}

func name(kind string, round int) string { return fmt.Sprintf("%s-%d", kind, round) }
