package killtest

import (
	"testing"
	"time"
)

// script writes one run of a single receiver, "r", and a single publisher into
// a ledger, at times that it makes itself.
type script struct {
	*Ledger
	now time.Time
}

func (s *script) pass(d time.Duration) { s.now = s.now.Add(d) }
func (s *script) link()                { s.LinkBegan("r", s.now, true) }
func (s *script) cut()                 { s.LinkEnded("r", s.now, false) }
func (s *script) bye()                 { s.LinkEnded("r", s.now, true) }

func (s *script) get(numbers ...int) {
	for _, n := range numbers {
		s.Received("r", Message{0, n})
	}
}

func (s *script) confirm(numbers ...int) {
	for _, n := range numbers {
		s.Confirmed("r", Message{0, n}, s.now)
	}
}

// send sends n messages that are acknowledged.
func (s *script) send(n int) {
	for range n {
		m, _ := s.Send(0)
		s.Acknowledged(m)
	}
}

func TestLedgerJudges(t *testing.T) {
	tests := []struct {
		name string
		qos  byte
		play func(s *script)
		want Report // without what was sent and acknowledged
	}{
		{"all in order", 1, func(s *script) { s.get(0, 1, 2) }, Report{Deliveries: 3}},
		{"one missing", 1, func(s *script) { s.get(0, 2) }, Report{Deliveries: 2, Lost: 1}},
		{"first times out of order", 1, func(s *script) { s.get(0, 2, 1) }, Report{Deliveries: 3, Violations: 1}},
		{"again on one link", 1, func(s *script) { s.get(0, 1, 2, 2) }, Report{Deliveries: 4, Violations: 1}},
		{"sent again, come again", 1, func(s *script) {
			s.SendAgain(Message{0, 1})
			s.get(0, 1, 2, 1)
		}, Report{Deliveries: 4, Resent: 1}},
		{"sent again, each come again after a break", 1, func(s *script) {
			s.SendAgain(Message{0, 2})
			s.get(0, 1, 2)
			s.cut()
			s.link()
			s.get(2, 2)
		}, Report{Deliveries: 5, Resent: 2}},
		{"sent again, come once too often", 1, func(s *script) {
			s.SendAgain(Message{0, 2})
			s.get(0, 1, 2, 2, 2)
		}, Report{Deliveries: 5, Resent: 1, Violations: 1}},
		{"not acknowledged, come again", 1, func(s *script) {
			s.get(0, 1)
			s.cut()
			s.link()
			s.get(0, 1, 2)
		}, Report{Deliveries: 5, Unacknowledged: 2}},
		{"acknowledged just before the cut", 1, func(s *script) {
			s.get(0, 1, 2)
			s.confirm(0, 1, 2)
			s.pass(Tail)
			s.cut()
			s.link()
			s.get(2)
		}, Report{Deliveries: 4, Tail: 1}},
		{"acknowledged long before the cut", 1, func(s *script) {
			s.get(0, 1, 2)
			s.confirm(0, 1, 2)
			s.pass(Tail + 1)
			s.cut()
			s.link()
			s.get(2)
		}, Report{Deliveries: 4, Violations: 1}},
		{"acknowledged just before the kill, noticed late", 1, func(s *script) {
			s.pass(1)
			s.get(0, 1, 2)
			s.confirm(0, 1, 2)
			s.pass(Tail / 2)
			s.Killed(s.now)
			s.pass(Tail)
			s.cut()
			s.link()
			s.get(2)
		}, Report{Deliveries: 4, Tail: 1}},
		{"acknowledged and said goodbye", 1, func(s *script) {
			s.get(0, 1, 2)
			s.confirm(0, 1, 2)
			s.bye()
			s.link()
			s.get(2)
		}, Report{Deliveries: 4, Violations: 1}},
		{"acknowledged, said goodbye, killed soon after", 1, func(s *script) {
			s.pass(1)
			s.get(0, 1, 2)
			s.confirm(0, 1, 2)
			s.bye()
			s.pass(Tail)
			s.Killed(s.now)
			s.link()
			s.get(2)
		}, Report{Deliveries: 4, Tail: 1}},
		{"QoS 2 again", 2, func(s *script) {
			s.get(0, 1, 2)
			s.cut()
			s.link()
			s.get(2)
		}, Report{Deliveries: 4, Violations: 1}},
		{"session gone", 1, func(s *script) {
			s.get(0, 1, 2)
			s.cut()
			s.LinkBegan("r", s.now, false)
		}, Report{Deliveries: 3, Violations: 1}},
		{"given up, come or not", 1, func(s *script) {
			m, _ := s.Send(0)
			s.GiveUp(m)
			s.get(0, 1, 2)
		}, Report{Deliveries: 3, GivenUp: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &script{NewLedger(test.qos, 1), time.Unix(0, 0)}
			s.link()
			s.Subscribed("r", 0)
			s.send(3)
			test.play(s)
			got := s.Report()
			got.Sent, got.Acknowledged, got.Named = 0, 0, nil
			if got.String() != test.want.String() {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestLedgerOwesOnlyWhatWasSentAfterTheSubscription(t *testing.T) {
	s := &script{NewLedger(1, 1), time.Unix(0, 0)}
	s.send(2)
	s.link()
	s.Subscribed("r", 0)
	s.send(1)
	if n := s.Missing("r"); n != 1 {
		t.Errorf("%d missing, want 1", n)
	}
	s.get(2)
	if n := s.Missing("r"); n != 0 {
		t.Errorf("%d missing, want none", n)
	}
}

// What is missing is known again and again, in whatever order things come.
func TestLedgerLacks(t *testing.T) {
	s := &script{NewLedger(1, 1), time.Unix(0, 0)}
	s.link()
	s.Subscribed("r", 0)
	look := func(want bool, when string) {
		t.Helper()
		if got := s.Lacks("r"); got != want || got != (s.Missing("r") > 0) {
			t.Errorf("%s: lacks %t, %d missing", when, got, s.Missing("r"))
		}
	}
	look(false, "nothing is sent")
	s.send(2)
	look(true, "two are sent")
	s.get(1)
	look(true, "the second has come")
	s.get(0)
	look(false, "both have come")
	late, _ := s.Send(0)
	look(false, "one is not acknowledged")
	given, _ := s.Send(0)
	s.GiveUp(given)
	s.send(1)
	look(true, "one behind it is acknowledged")
	s.get(4)
	look(false, "it has come")
	s.Acknowledged(late)
	look(true, "the other is acknowledged now")
	s.get(late.Number)
	look(false, "all have come")
}

func TestLedgerJudgesHistory(t *testing.T) {
	m := func(numbers ...int) (all []Message) {
		for _, n := range numbers {
			all = append(all, Message{0, n})
		}
		return all
	}
	tests := []struct {
		name       string
		qos        byte
		has        []Message
		violations int
	}{
		{"all in order", 1, m(0, 1, 2), 0},
		{"one missing", 1, m(0, 2), 1},
		{"out of order", 1, m(0, 2, 1), 1},
		{"twice", 1, m(0, 1, 1, 2), 1},
		{"twice, and was sent twice", 1, m(0, 1, 2, 3, 3), 0},
		{"twice at QoS 2, and was sent twice", 2, m(0, 1, 2, 3, 3), 1},
		{"never sent", 1, m(0, 1, 2, 4), 1},
		{"of nobody", 1, append(m(0, 1, 2), Message{1, 0}), 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &script{NewLedger(test.qos, 1), time.Unix(0, 0)}
			s.send(3)
			last, _ := s.Send(0) // not acknowledged
			s.SendAgain(last)
			s.Archived(s.Owed(), test.has)
			if got := s.Report(); got.Violations != test.violations || got.Archived != len(test.has) {
				t.Errorf("%d violations in %d messages, want %d: %v", got.Violations, got.Archived, test.violations, got.Named)
			}
		})
	}
}
