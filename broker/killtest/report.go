package killtest

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
)

// shown is how many violations and lost messages are named; all are counted.
const shown = 20

// Report is what came of a run.
type Report struct {
	Sent         int // messages, each counted once
	Acknowledged int
	GivenUp      int // refused, or never answered
	Deliveries   int
	Pulled       int // messages in answers to pull, again and again
	Archived     int // messages in answers to history
	Cleared      int // messages that were acknowledged with all others

	// Repeats of QoS 1 that the protocol allows.
	Resent         int // the publisher had sent the message again
	Unacknowledged int // the receiver had not acknowledged it
	Tail           int // it had, but at most Tail before a break

	Lost       int      // acknowledged, and missing at a receiver
	Violations int      // of everything else
	Named      []string // the first of both
}

// String is the report in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d sent, %d acknowledged, %d given up, %d deliveries, %d pulled, %d from history, %d cleared; "+
		"repeats: %d resent, %d unacknowledged, %d in the tail; %d lost, %d violations",
		r.Sent, r.Acknowledged, r.GivenUp, r.Deliveries, r.Pulled, r.Archived, r.Cleared,
		r.Resent, r.Unacknowledged, r.Tail, r.Lost, r.Violations)
}

// Check fails the test if a promise was broken or nothing was tried.
func (r Report) Check(t testing.TB) {
	t.Helper()
	t.Log(r)
	if r.Lost > 0 || r.Violations > 0 {
		t.Errorf("broken promises, the first of them:\n%s", strings.Join(r.Named, "\n"))
	}
	if r.Acknowledged == 0 || r.Deliveries == 0 {
		t.Error("nothing was delivered")
	}
}

// Report returns the account so far. Lost is what is missing now.
func (l *Ledger) Report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.report
	r.Named = slices.Clone(r.Named)
	for receiver, a := range l.accounts {
		for m := range l.missing(a) {
			if r.Lost++; len(r.Named) < 2*shown {
				r.Named = append(r.Named, fmt.Sprintf("%s: %s is lost", receiver, m))
			}
		}
	}
	return r
}

// Missing returns how many acknowledged messages have not reached a receiver.
func (l *Ledger) Missing(receiver string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range l.missing(l.account(receiver)) {
		n++
	}
	return n
}

// Lacks reports whether there are any. All who are being drained ask again and again: it
// costs what has come since the last time, and not what was ever sent.
func (l *Ledger) Lacks(receiver string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range l.missing(l.account(receiver)) {
		return true
	}
	return false
}

// missing goes through the acknowledged messages that have not reached a receiver. With mu held.
func (l *Ledger) missing(a *account) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		for p, from := range a.from {
			if from < 0 {
				continue
			}
			a.whole[p] = max(a.whole[p], from)
			for n := a.whole[p]; n < len(l.sent[p]); n++ {
				m, s := Message{p, n}, &l.sent[p][n]
				came := n < len(a.had[p]) && a.had[p][n].times > 0
				switch {
				case came, a.cleared(m).maybe, s.settled && !s.acknowledged: // it is not missing, and never will be
					if n == a.whole[p] {
						a.whole[p]++
					}
				case s.acknowledged && !yield(m):
					return
				}
			}
		}
	}
}

func (l *Ledger) violation(format string, args ...any) {
	if l.report.Violations++; l.report.Violations <= shown {
		l.report.Named = append(l.report.Named, fmt.Sprintf(format, args...))
	}
}
