package killtest

import (
	"context"
	"errors"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// quietTime is how long a drained receiver looks for what must not come.
const quietTime = 200 * time.Millisecond

// errLeft says that a receiver ends a link of its own will.
var errLeft = errors.New("the stay is over")

// receiver is one session that takes messages. Everything belongs to its one
// goroutine, but for subscribed.
type receiver struct {
	habit
	run        *run
	echoes     flights
	unfinished map[uint16]Message // QoS 2: received and not yet released
	subscribed chan struct{}      // closed after the first SUBACK
	confirmed  bool               // subscribed is closed
	visits     int
}

func newReceiver(r *run, h habit) *receiver {
	return &receiver{
		habit:      h,
		run:        r,
		echoes:     flights{run: r, publisher: r.Publishers, padding: "echo"},
		unfinished: map[uint16]Message{},
		subscribed: make(chan struct{}),
	}
}

func (x *receiver) options() mqtttest.Options {
	return mqtttest.Options{ClientID: x.id, Version: x.version, SessionExpiry: sessionExpiry, KeepAlive: keepAlive, ReceiveMaximum: x.window}
}

// live is the receiver's goroutine: link after link as its habit is, and then
// the draining.
func (x *receiver) live() {
	var before *conn // the link that the next one takes over
	for x.run.habits.Err() == nil {
		v, err := x.visit(before)
		if v == nil {
			return
		}
		before = nil
		if x.takeover && errors.Is(err, errLeft) {
			before = v.conn
			continue
		}
		x.end(v, err)
		if !x.confirmed {
			continue // the broker ended before it confirmed the subscription
		}
		if x.away < 0 {
			pause(x.run.habits, time.Hour)
		} else {
			pause(x.run.habits, x.away)
		}
	}
	if before != nil {
		_ = before.Close() // the broker may have been first
	}
	if x.confirmed {
		x.drain()
	}
}

// visit makes one link, subscribes and receives until the stay is over.
func (x *receiver) visit(before *conn) (*visit, error) {
	v := x.connect(before)
	if v == nil {
		return nil, nil
	}
	x.run.trigger.passed(connack)
	if err := v.subscribe(); err != nil {
		return v, err
	}
	if x.deaf {
		pause(x.run.habits, x.stay)
		return v, errLeft
	}
	return v, v.receive(x.run.habits)
}

// connect opens a link. It returns nil when the run is over.
func (x *receiver) connect(before *conn) *visit {
	asked := time.Now()
	c, ok := x.run.open(x.options())
	if before != nil { // the broker ends it at some time from then on
		x.run.ledger.LinkEnded(x.id, asked, false)
		_ = before.Close() // the broker may have been first
	}
	if !ok {
		return nil
	}
	x.visits++
	x.run.ledger.LinkBegan(x.id, time.Now(), c.Connack.SessionPresent)
	v := &visit{receiver: x, conn: c, leave: x.leaving()}
	if !c.Connack.SessionPresent {
		clear(x.unfinished)
		x.echoes.forget()
	}
	_ = x.echoes.sendAgain(c) // a link that is gone shows at the next read
	return v
}

// leaving returns when the present stay is over, zero for never.
func (x *receiver) leaving() time.Time {
	if x.stay == 0 {
		return time.Time{}
	}
	return time.Now().Add(x.stay)
}

// end closes a link as the habit is, and notes how it ended.
func (x *receiver) end(v *visit, cause error) {
	graceful := x.farewell && errors.Is(cause, errLeft) && v.farewell() == nil
	x.run.ledger.LinkEnded(x.id, time.Now(), graceful)
	_ = v.conn.Close() // the broker may have been first
}

// drain takes everything that is left, quickly, so with a larger Receive Maximum,
// and then looks once more: a receiver that has said goodbye must find nothing.
func (x *receiver) drain() {
	limit, cancel := context.WithTimeout(x.run.life, x.run.drainDeadline())
	defer cancel()
	x.habit = habit{id: x.id, version: x.version, window: x.window * 10, publishers: x.publishers}
	for limit.Err() == nil {
		v := x.connect(nil)
		if v == nil {
			return
		}
		err := v.receiveAll(limit)
		x.farewell = true
		x.end(v, err)
		if errors.Is(err, errLeft) {
			break
		}
	}
	if v := x.connect(nil); v != nil {
		v.leave = time.Now().Add(quietTime)
		x.end(v, v.receive(x.run.life))
	}
}
