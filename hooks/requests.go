package hooks

import (
	"strings"
	"sync"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"golang.org/x/time/rate"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// inboxTopic is where a client publishes what it asks its inbox: the operation
// stands behind it. Nobody is delivered anything that is published there.
const inboxTopic = "$inbox"

// isInbox reports whether a topic or a filter is of what clients ask their inboxes.
func isInbox(name string) bool {
	rest, ok := strings.CutPrefix(name, inboxTopic)
	return ok && (rest == "" || rest[0] == '/')
}

// OnACLCheck lets everyone ask the own inbox: the access rules of other hooks are
// not about that. All hooks are asked until one allows.
func (h *Hook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool { return isInbox(topic) }

// Bounds of what one connection may ask.
const (
	mostWaiting  = 4  // requests that wait for the one at work
	requestRate  = 50 // a second
	requestBurst = 100

	// largestAnswer is for clients that set no limit. A message as large as the
	// broker takes is a third larger in base64.
	largestAnswer = 4 << 20
)

// Bounds of what all connections may ask for together: clients that read slowly
// would otherwise make memory grow with their number.
const (
	mostLarge  = 16        // answers of any size at a time, until they are written
	smallPage  = 256 << 10 // bytes of the messages in others
	smallTally = 512 << 10 // bytes of other summaries; a tally has room in it whatever its name
)

// requests are what one connection asks its inbox, in order. A goroutine works
// them off while there are any, so that a connection that asks nothing has none.
type requests struct {
	link *link

	// For the read goroutine alone.
	limit *rate.Limiter       // nil until something is asked
	exact map[uint16]struct{} // packet ids of QoS 2, until PUBREL
	ended sync.WaitGroup      // of the goroutine; waited for where it is started

	mu      sync.Mutex // guards what follows
	waiting []request
	working bool // the goroutine has not seen that waiting is empty
}

// ask takes a request, or answers that there are too many. Runs on the
// connection's read goroutine, and waits only as any PUBLISH would.
func (q *requests) ask(pk *packets.Packet) {
	l := q.link
	r := requestOf(pk)
	if r.ack != 0 && !l.out.admit(r.ack, r.id, int(l.hook.server.Options.Capabilities.ReceiveMaximum)) {
		_ = l.fail(packets.ErrReceiveMaximum)
		return
	}
	if r.ack == packets.Pubrec {
		if q.exact == nil {
			q.exact = map[uint16]struct{}{}
		}
		q.exact[r.id] = struct{}{}
	}
	if q.limit == nil {
		q.limit = rate.NewLimiter(requestRate, requestBurst)
	}
	if !q.limit.Allow() || !q.take(r) {
		q.refuse(&r)
	}
}

// take has a request worked off, and reports whether there was room for it.
func (q *requests) take(r request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= mostWaiting {
		return false
	}
	q.waiting = append(q.waiting, r)
	if !q.working {
		q.working = true
		q.ended.Add(1)
		go q.work()
	}
	return true
}

// next returns the request to be worked off. Without one the goroutine must end.
func (q *requests) next() (request, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting, q.working = nil, false
		return request{}, false
	}
	r := q.waiting[0]
	q.waiting = q.waiting[1:]
	return r, true
}

// work answers requests until there are none. It is a goroutine of the connection.
func (q *requests) work() {
	defer q.ended.Done()
	defer q.link.survive()
	for r, ok := q.next(); ok; r, ok = q.next() {
		q.answer(&r)
	}
}

// wait returns when what was asked is done. Runs on the connection's read
// goroutine when the connection has ended: what only reads ends with it.
func (q *requests) wait() { q.ended.Wait() }

// released ends a request of QoS 2 (PUBREL), and reports whether there was one.
func (q *requests) released(id uint16) bool {
	_, ok := q.exact[id]
	delete(q.exact, id)
	return ok
}

// answer does what a request asks for, and sends the answer as soon as there is
// room.
func (q *requests) answer(r *request) {
	l := q.link
	ctx := l.ctx
	if changes(r.operation) { // for those who publish a message and go
		patient, cancel := l.patience()
		defer cancel()
		ctx = patient
	}
	a := q.asker(r)
	giveBack := l.hook.large.take()
	if giveBack == nil {
		if a.MaxPage = smallPage; r.operation == pull.OpSummary {
			a.MaxAnswer = min(a.MaxAnswer, smallTally)
		}
		giveBack = func() {}
	}
	kept := false
	defer func() {
		if !kept {
			giveBack()
		}
	}()
	body, contentType := l.hook.pull.Do(ctx, a, r.operation, r.body, r.contentType)
	q.reply(r, body, contentType, func(p *publication) error {
		if len(body) <= smallPage {
			giveBack() // before it may have to wait
		}
		err := l.out.publishThen(p, giveBack)
		kept = err == nil
		return err
	})
}

// changes reports whether an operation is done even though nobody is there to be
// answered.
func changes(operation string) bool {
	switch operation {
	case pull.OpAck, pull.OpMode, pull.OpDelete:
		return true
	}
	return false
}

// refuse answers that there is too much to do, if that can be said at once. Runs
// on the connection's read goroutine, and never waits.
func (q *requests) refuse(r *request) {
	busy := &pull.Error{Code: pull.CodeBusy, Message: "too many requests on this connection; ask again when one is answered"}
	body, contentType := pull.Refuse(busy, r.body, r.contentType)
	q.reply(r, body, contentType, func(p *publication) error {
		if !q.link.out.offer(p) {
			q.link.hook.counts.unanswered.Add(1)
		}
		return nil
	})
}

// reply sends an answer if the client takes a packet so large, and then
// acknowledges the request. An error of send means that the connection has ended.
func (q *requests) reply(r *request, body []byte, contentType string, send func(*publication) error) {
	l := q.link
	p := r.answer(body, contentType)
	if l.session.tooLarge(&p) {
		l.hook.counts.unanswered.Add(1)
	} else if send(&p) != nil {
		return
	}
	if r.ack != 0 {
		l.out.settle(r.ack, r.id, packets.CodeSuccess.Code, inbox.MessageID{})
	}
}

// asker is who asks, and how large the answer may be.
func (q *requests) asker(r *request) pull.Asker {
	l := q.link
	a := pull.Asker{
		Receiver:  inbox.Receiver(l.client.ID),
		User:      string(l.client.Properties.Username),
		MaxAnswer: largestAnswer,
	}
	a.Acknowledged = func() { l.hook.acknowledged(string(a.Receiver), a.User, l.watch) }
	if most := l.session.maxPacket; most > 0 {
		a.MaxAnswer = max(min(a.MaxAnswer, most-r.overhead()), 1)
	}
	return a
}
