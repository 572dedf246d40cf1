package killtest

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Tail is how long before a break a receiver's acknowledgement may be lost.
// Brokers save them lazily, and what is on the wire at the break is lost anyway.
const Tail = time.Second

// Message names a message: who sent it, and its number there, from 0.
type Message struct{ Publisher, Number int }

// String is the form in which messages are named in a report.
func (m Message) String() string { return fmt.Sprintf("p%d/%d", m.Publisher, m.Number) }

// Ledger is the account of a run: what was sent, acknowledged and received. All
// methods may be called concurrently.
type Ledger struct {
	qos byte

	mu       sync.Mutex // guards everything below
	sent     [][]sending
	accounts map[string]*account
	kills    []time.Time
	closed   bool // nothing more is sent
	report   Report
}

// sending is one message of a publisher.
type sending struct {
	times        int
	acknowledged bool // the broker owes it to the receivers
	settled      bool // the publisher waits for nothing
}

// account is what one receiver has had.
type account struct {
	from  []int // by publisher: the first number that must come; -1 for none
	whole []int // by publisher: no number below can be missing
	had   [][]delivery
	next  []int // by publisher: one more than the highest number seen
	links []link

	readings map[string]*reading // of one that asks, by message id
	clearing *clearing           // under way; nil if none is
	unseen   [][]cleared         // by publisher
}

// delivery is what one receiver knows of one message.
type delivery struct {
	times     int
	link      int       // of the latest time
	here      int       // times on that link
	confirmed time.Time // when it was acknowledged on that link
}

// link is one connection of a receiver.
type link struct {
	began    time.Time
	ended    time.Time
	graceful bool // ended by DISCONNECT, and the broker closed
}

// NewLedger returns an empty ledger for messages of one QoS.
func NewLedger(qos byte, publishers int) *Ledger {
	return &Ledger{qos: qos, sent: make([][]sending, publishers), accounts: map[string]*account{}}
}

// Send returns the publisher's next message, which is about to be sent, and
// false when the ledger is closed.
func (l *Ledger) Send(publisher int) (Message, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return Message{}, false
	}
	l.sent[publisher] = append(l.sent[publisher], sending{times: 1})
	l.report.Sent++
	return Message{publisher, len(l.sent[publisher]) - 1}, true
}

// Close ends the sending.
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// SendAgain notes that a message is about to be sent once more.
func (l *Ledger) SendAgain(m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[m.Publisher][m.Number].times++
}

// Acknowledged notes that the broker has taken a message.
func (l *Ledger) Acknowledged(m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[m.Publisher][m.Number].acknowledged = true
	l.sent[m.Publisher][m.Number].settled = true
	l.report.Acknowledged++
}

// GiveUp notes that a message was refused, or that its publisher no longer
// waits for an answer. It may come or not.
func (l *Ledger) GiveUp(m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[m.Publisher][m.Number].settled = true
	l.report.GivenUp++
}

// Settled reports whether a publisher has an answer for all that it sent.
func (l *Ledger) Settled(publisher int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.sent[publisher], func(s sending) bool { return !s.settled })
}

// Subscribed notes that the broker has confirmed a subscription to all messages
// of a publisher. What is sent from now on must come.
func (l *Ledger) Subscribed(receiver string, publisher int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(receiver)
	if a.from[publisher] < 0 {
		a.from[publisher] = len(l.sent[publisher])
	}
}

// LinkBegan notes a new connection of a receiver and whether its session was
// there.
func (l *Ledger) LinkBegan(receiver string, at time.Time, present bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(receiver)
	if len(a.links) > 0 && !present {
		l.violation("%s: session is gone at link %d", receiver, len(a.links))
	}
	a.links = append(a.links, link{began: at})
	l.mayBeCleared(a)
}

// LinkEnded notes the end of the receiver's latest connection.
func (l *Ledger) LinkEnded(receiver string, at time.Time, graceful bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(receiver)
	last := &a.links[len(a.links)-1]
	last.ended, last.graceful = at, graceful
}

// Killed notes that the broker was ended.
func (l *Ledger) Killed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills = append(l.kills, at)
}

// Received notes that a message came to a receiver on its latest connection.
func (l *Ledger) Received(receiver string, m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Deliveries++
	a := l.account(receiver)
	d, now := a.delivery(m), len(a.links)-1
	if d.link != now {
		d.here = 0
	}
	if d.times > 0 {
		l.judgeRepeat(receiver, a, m, *d)
	} else {
		if m.Number < a.next[m.Publisher] {
			l.violation("%s: %s came first after a later message, %d", receiver, m, a.next[m.Publisher]-1)
		}
		a.next[m.Publisher] = max(a.next[m.Publisher], m.Number+1)
	}
	*d = delivery{times: d.times + 1, link: now, here: d.here + 1}
}

// Shared notes that one of those who share a subscription has a message. None
// may have it again at QoS 2.
func (l *Ledger) Shared(group string, m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.account(group).delivery(m)
	d.times++
	l.report.Deliveries++
	if l.qos == 2 && d.times > 1 {
		l.violation("%s: %s came %d times", group, m, d.times)
	}
}

// Owed returns which messages of each publisher were acknowledged so far.
func (l *Ledger) Owed() [][]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	owed := make([][]bool, len(l.sent))
	for p, sent := range l.sent {
		for _, s := range sent {
			owed[p] = append(owed[p], s.acknowledged)
		}
	}
	return owed
}

// Archived judges what history has, in its order: everything that is owed, for each
// publisher in the order of sending, and each as often as it was sent at most, at QoS 2
// once.
func (l *Ledger) Archived(owed [][]bool, all []Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := map[Message]int{}
	next := make([]int, len(l.sent))
	for _, m := range all {
		times[m]++
		switch {
		case m.Publisher >= len(l.sent) || m.Number >= len(l.sent[m.Publisher]):
			l.violation("history: %s was never sent", m)
			continue
		case times[m] == 1 && m.Number < next[m.Publisher]:
			l.violation("history: %s stands behind a later message, %d", m, next[m.Publisher]-1)
		case times[m] > 1 && (l.qos == 2 || times[m] > l.sent[m.Publisher][m.Number].times):
			l.violation("history: %s is there %d times, was sent %d times", m, times[m], l.sent[m.Publisher][m.Number].times)
		}
		next[m.Publisher] = max(next[m.Publisher], m.Number+1)
	}
	for p, messages := range owed {
		for n, acknowledged := range messages {
			if m := (Message{p, n}); acknowledged && times[m] == 0 {
				l.violation("history: %s is not there", m)
			}
		}
	}
	l.report.Archived += len(all)
}

// Confirmed notes that the receiver acknowledges a message for good.
func (l *Ledger) Confirmed(receiver string, m Message, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account(receiver).delivery(m).confirmed = at
}

// Violate notes a broken promise that was found elsewhere.
func (l *Ledger) Violate(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violation(format, args...)
}

// judgeRepeat decides whether a message may come again, on the latest link, that
// came as d says. Of a message that was sent more than once there may be several
// in the inbox, which look alike.
func (l *Ledger) judgeRepeat(receiver string, a *account, m Message, d delivery) {
	sent := l.sent[m.Publisher][m.Number].times
	switch {
	case l.qos == 2:
		l.violation("%s: %s came %d times at QoS 2", receiver, m, d.times+1)
	case d.here >= sent:
		l.violation("%s: %s came %d times on one link, was sent %d times", receiver, m, d.here+1, sent)
	case sent > 1:
		l.report.Resent++
	case d.confirmed.IsZero():
		l.report.Unacknowledged++
	case !l.broke(a.links[d.link], d.confirmed):
		l.violation("%s: %s came again, acknowledged more than %s before a break", receiver, m, Tail)
	default:
		l.report.Tail++
	}
}

// broke reports whether what was acknowledged on a link at a time may be lost: the
// broker was killed, or the link broke, at most Tail after. (If the broker was
// killed before, it never had the acknowledgement.)
func (l *Ledger) broke(k link, confirmed time.Time) bool {
	if !k.graceful && k.ended.Sub(confirmed) <= Tail {
		return true
	}
	return slices.ContainsFunc(l.kills, func(kill time.Time) bool {
		return kill.After(k.began) && kill.Sub(confirmed) <= Tail
	})
}

func (l *Ledger) account(receiver string) *account {
	a := l.accounts[receiver]
	if a == nil {
		n := len(l.sent)
		a = &account{from: make([]int, n), whole: make([]int, n), had: make([][]delivery, n), next: make([]int, n)}
		for i := range a.from {
			a.from[i] = -1
		}
		l.accounts[receiver] = a
	}
	return a
}

func (a *account) delivery(m Message) *delivery {
	had := &a.had[m.Publisher]
	if missing := m.Number + 1 - len(*had); missing > 0 {
		*had = append(*had, make([]delivery, missing)...)
	}
	return &(*had)[m.Number]
}
