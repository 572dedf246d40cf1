package killtest

import "time"

// reading is what a receiver that asks knows of one message, by its id.
type reading struct {
	read      int       // 1 and the link on which it was answered that it is acknowledged; 0 for none
	link      int       // on which it was delivered
	confirmed time.Time // when PUBACK was sent there
}

func (a *account) reading(id string) *reading {
	r := a.readings[id]
	if r == nil {
		r = &reading{link: -1}
		if a.readings == nil {
			a.readings = map[string]*reading{}
		}
		a.readings[id] = r
	}
	return r
}

// Pulled notes that a receiver has a message in an answer to what it asked at a time. What
// was acknowledged before is in none, but for what was by PUBACK at most [Tail] before a break.
func (l *Ledger) Pulled(receiver, id string, m Message, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(receiver)
	r := a.reading(id)
	a.delivery(m).times++
	l.report.Pulled++
	switch {
	case a.cleared(m).read > 0:
		l.violation("%s: %s, %s, was pulled after it was answered that all is acknowledged", receiver, m, id)
	case r.read > 0:
		l.violation("%s: %s, %s, was pulled again after it was answered that it is acknowledged", receiver, m, id)
	case r.confirmed.IsZero() || r.confirmed.After(at):
	case r.link == len(a.links)-1 || !l.broke(a.links[r.link], r.confirmed):
		l.violation("%s: %s, %s, was pulled after it was acknowledged by PUBACK", receiver, m, id)
	}
}

// Delivered notes that a receiver that asks was sent a message. On the link on which
// it acknowledged it by a request it may have been on its way.
func (l *Ledger) Delivered(receiver, id string, m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(receiver)
	r, now := a.reading(id), len(a.links)-1
	a.delivery(m).times++
	l.report.Deliveries++
	cleared := a.cleared(m).read
	switch {
	case cleared > 0 && cleared-1 != now:
		l.violation("%s: %s, %s, came after it was answered that all is acknowledged", receiver, m, id)
	case r.read > 0 && r.read-1 != now:
		l.violation("%s: %s, %s, came after it was answered that it is acknowledged", receiver, m, id)
	case l.qos == 2 && r.link >= 0:
		l.violation("%s: %s, %s, came twice at QoS 2", receiver, m, id)
	case r.link == now:
		l.violation("%s: %s, %s, came twice on one link", receiver, m, id)
	case !r.confirmed.IsZero() && !l.broke(a.links[r.link], r.confirmed):
		l.violation("%s: %s, %s, came after it was acknowledged by PUBACK", receiver, m, id)
	}
	r.link, r.confirmed = now, time.Time{}
}

// ConfirmedID notes that a receiver that asks has sent PUBACK.
func (l *Ledger) ConfirmedID(receiver, id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account(receiver).reading(id).confirmed = at
}

// Read notes that the broker has answered that messages are acknowledged.
func (l *Ledger) Read(receiver string, ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(receiver)
	for _, id := range ids {
		if r := a.reading(id); r.read == 0 {
			r.read = len(a.links)
		}
	}
}
