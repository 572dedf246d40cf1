package killtest

// clearing is a request to acknowledge everything of some publishers, while it is not
// answered.
type clearing struct {
	publishers []int
	owed       []Message // acknowledged to their publishers before it was sent
}

// cleared is what a receiver knows of a message that it may have acknowledged unseen.
type cleared struct {
	maybe bool // it need not come
	read  int  // 1 and the link on which it was answered that it is acknowledged; 0 for none
}

// cleared returns what the receiver knows of a message; the zero value if it has cleared
// nothing of it.
func (a *account) cleared(m Message) cleared {
	if m.Publisher >= len(a.unseen) || m.Number >= len(a.unseen[m.Publisher]) {
		return cleared{}
	}
	return a.unseen[m.Publisher][m.Number]
}

// Clears notes that a receiver is about to acknowledge everything of some publishers,
// whether it has seen it or not.
func (l *Ledger) Clears(receiver string, publishers []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &clearing{publishers: publishers}
	for _, p := range publishers {
		for n, s := range l.sent[p] {
			if s.acknowledged {
				c.owed = append(c.owed, Message{p, n})
			}
		}
	}
	l.account(receiver).clearing = c
}

// Cleared notes the answer to that, which says how many messages it has acknowledged. What
// was acknowledged to its publisher before the request comes no more, but for what is on
// its way on this link; what was sent before the answer need not come; and everything else
// must.
func (l *Ledger) Cleared(receiver string, messages int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(receiver)
	owed := a.clearing.owed
	l.mayBeCleared(a)
	for _, m := range owed {
		if c := &a.unseen[m.Publisher][m.Number]; c.read == 0 {
			c.read = len(a.links)
		}
	}
	l.report.Cleared += messages
}

// HasAll judges whether a receiver, which has read everything that there was, has all that
// was owed before, but for what it may have acknowledged unseen. What is missing now and
// comes later is a violation, too.
func (l *Ledger) HasAll(receiver string, owed [][]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m := range l.missing(l.account(receiver)) {
		if n := owed[m.Publisher]; m.Number < len(n) && n[m.Number] {
			l.violation("%s: %s was not there when everything was read", receiver, m)
		}
	}
}

// mayBeCleared notes that everything that is meant and was sent so far may be acknowledged.
// A request without an answer is carried out before the next link, or never.
func (l *Ledger) mayBeCleared(a *account) {
	c := a.clearing
	if c == nil {
		return
	}
	a.clearing = nil
	if a.unseen == nil {
		a.unseen = make([][]cleared, len(l.sent))
	}
	for _, p := range c.publishers {
		if missing := len(l.sent[p]) - len(a.unseen[p]); missing > 0 {
			a.unseen[p] = append(a.unseen[p], make([]cleared, missing)...)
		}
		for n := range a.unseen[p] {
			a.unseen[p][n].maybe = true
		}
	}
}
