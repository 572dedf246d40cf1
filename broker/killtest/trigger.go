package killtest

import (
	"math/rand/v2"
	"sync"
)

// event is a moment in the exchange with the broker that a client observes.
type event string

// The moments at which a run ends the broker. flush is a burst of publishes on
// its way, so the broker is probably about to sync.
const (
	flush   event = "publishes sent"
	puback  event = "publish finished"
	pubrec  event = "QoS 2 publish received"
	connack event = "receiver connected"
	suback  event = "subscription confirmed"
	replay  event = "message of a backlog received"
	confirm event = "delivery acknowledged"
	asked   event = "request answered"
	random  event = "random time"
)

// reach is how often an event may pass before the broker is ended.
var reach = map[event]int{
	flush: 60, puback: 3000, pubrec: 3000, connack: 8, suback: 1, replay: 400, confirm: 3000, asked: 60,
}

// choose draws the moment of a round, each kind as often as the others.
func choose(r *rand.Rand, qos byte, asks bool) (event, int) {
	kinds := []event{random, flush, puback, connack, suback, replay, confirm}
	if asks {
		kinds = append(kinds, asked)
	}
	if qos == 2 {
		kinds = append(kinds, pubrec)
	}
	e := kinds[r.IntN(len(kinds))]
	if e == random {
		return e, 0
	}
	return e, 1 + r.IntN(reach[e])
}

// trigger fires once when the chosen event passes for the n-th time.
type trigger struct {
	mu   sync.Mutex // guards what follows; held while firing, so that fired means done
	kind event
	left int
	fire func() // nil when not armed
	done chan struct{}
}

// arm makes the trigger fire at the n-th passage of an event from now on, and
// returns a channel that is closed when it has.
func (t *trigger) arm(e event, n int, fire func()) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kind, t.left, t.fire, t.done = e, n, fire, make(chan struct{})
	return t.done
}

// passed tells of an event. Runs on the goroutine of a client, which it holds
// up until the broker has ended.
func (t *trigger) passed(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fire == nil || t.kind != e {
		return
	}
	if t.left--; t.left == 0 {
		t.fireLocked()
	}
}

// now fires if the event has not come.
func (t *trigger) now() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fire != nil {
		t.fireLocked()
	}
}

func (t *trigger) fireLocked() {
	t.fire()
	t.fire = nil
	close(t.done)
}
