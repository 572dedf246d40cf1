package killtest

import (
	"fmt"
	"testing"
	"time"
)

func TestLedgerJudgesAsking(t *testing.T) {
	one := Message{0, 0}
	pull := func(s *script) { s.Pulled("r", "id", one, s.now) }
	deliver := func(s *script) { s.Delivered("r", "id", one) }
	puback := func(s *script) { s.ConfirmedID("r", "id", s.now) }
	read := func(s *script) { s.Read("r", []string{"id"}) }
	readOther := func(s *script) { s.Read("r", []string{"other"}) }
	next := func(s *script) { s.cut(); s.link() }
	wait := func(s *script) { s.pass(Tail + 1) }
	tests := []struct {
		name  string
		play  []func(s *script)
		wrong bool
	}{
		{"pulled again", []func(s *script){pull, pull, next, pull}, false},
		{"pulled, and then delivered", []func(s *script){pull, deliver, next, deliver}, false},
		{"acknowledged and pulled", []func(s *script){pull, read, pull}, true},
		{"acknowledged and pulled on the next link", []func(s *script){pull, read, next, pull}, true},
		{"acknowledged while it is on its way", []func(s *script){pull, read, deliver}, false},
		{"acknowledged and delivered on the next link", []func(s *script){pull, read, next, deliver}, true},
		{"acknowledged by another copy", []func(s *script){pull, readOther, pull}, false},
		{"PUBACK and pulled", []func(s *script){deliver, puback, func(s *script) { s.pass(1) }, pull}, true},
		{"PUBACK and pulled on the next link", []func(s *script){deliver, puback, next, pull}, false},
		{"PUBACK long before the break, and pulled", []func(s *script){deliver, puback, wait, next, pull}, true},
		{"PUBACK and delivered on the next link", []func(s *script){deliver, puback, next, deliver}, false},
		{"PUBACK long before the break, and delivered", []func(s *script){deliver, puback, wait, next, deliver}, true},
		{"delivered twice", []func(s *script){deliver, deliver}, true},
		{"asked before PUBACK", []func(s *script){deliver, func(s *script) {
			asked := s.now
			s.pass(1)
			puback(s)
			s.Pulled("r", "id", one, asked)
		}}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &script{NewLedger(1, 1), time.Unix(0, 0)}
			s.link()
			s.send(1)
			for _, step := range test.play {
				step(s)
			}
			if got := s.Report(); (got.Violations > 0) != test.wrong {
				t.Errorf("violations %v, want some: %t", got.Named, test.wrong)
			}
		})
	}
}

func TestLedgerJudgesClearing(t *testing.T) {
	sends := func(s *script) { s.send(1) }
	begins := func(s *script) { s.Send(0) } // and is not acknowledged yet
	acknowledged := func(s *script) { s.Acknowledged(Message{0, 0}) }
	hasAll := func(s *script) { s.HasAll("r", s.Owed()) }
	clears := func(s *script) { s.Clears("r", []int{0}) }
	answer := func(s *script) { s.Cleared("r", 0) }
	pull := func(n int) func(*script) {
		return func(s *script) { s.Pulled("r", fmt.Sprint(n), Message{0, n}, s.now) }
	}
	deliver := func(n int) func(*script) {
		return func(s *script) { s.Delivered("r", fmt.Sprint(n), Message{0, n}) }
	}
	next := func(s *script) { s.cut(); s.link() }
	tests := []struct {
		name       string
		play       []func(s *script)
		lost       int
		violations int
	}{
		{"all that was there", []func(s *script){sends, clears, answer}, 0, 0},
		{"not answered", []func(s *script){sends, clears}, 1, 0},
		{"not answered, and there", []func(s *script){sends, clears, next, pull(0)}, 0, 0},
		{"not answered, and carried out", []func(s *script){sends, clears, next}, 0, 0},
		{"pulled then", []func(s *script){sends, clears, answer, pull(0)}, 0, 1},
		{"pulled on the next link", []func(s *script){sends, clears, answer, next, pull(0)}, 0, 1},
		{"delivered then", []func(s *script){sends, clears, answer, deliver(0)}, 0, 0},
		{"delivered on the next link", []func(s *script){sends, clears, answer, next, deliver(0)}, 0, 1},
		{"sent meanwhile", []func(s *script){clears, sends, answer}, 0, 0},
		{"sent meanwhile, and there", []func(s *script){clears, sends, answer, pull(0)}, 0, 0},
		{"under way before", []func(s *script){begins, clears, acknowledged, answer, pull(0)}, 0, 0},
		{"under way all the time", []func(s *script){begins, clears, answer, acknowledged}, 0, 0},
		{"sent then", []func(s *script){sends, clears, answer, sends}, 1, 0},
		{"sent then, and there", []func(s *script){sends, clears, answer, sends, pull(1)}, 0, 0},
		{"sent when it was not answered, on the next link", []func(s *script){clears, next, sends}, 1, 0},
		{"twice", []func(s *script){sends, clears, answer, sends, clears, answer, next, pull(0), deliver(1)}, 0, 2},
		{"missing in between", []func(s *script){clears, answer, sends, hasAll, clears, answer}, 0, 1},
		{"sent while it was read", []func(s *script){func(s *script) {
			owed := s.Owed()
			s.send(1)
			s.HasAll("r", owed)
		}, pull(0)}, 0, 0},
		{"of another", []func(s *script){sends, func(s *script) { s.Clears("r", []int{1}) }, answer}, 1, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &script{NewLedger(1, 2), time.Unix(0, 0)}
			s.Subscribed("r", 0)
			s.link()
			for _, step := range test.play {
				step(s)
			}
			if got := s.Report(); got.Lost != test.lost || got.Violations != test.violations {
				t.Errorf("%d lost, %d violations, want %d and %d: %v", got.Lost, got.Violations, test.lost, test.violations, got.Named)
			}
		})
	}
}
