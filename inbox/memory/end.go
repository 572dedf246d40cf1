package memory

import (
	"math"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// never is a time that does not come.
const never = math.MaxInt64

// overLocked is when the session ends, in Unix milliseconds; never while it has
// an owner.
func (s *session) overLocked() int64 {
	if s.ended == 0 || s.expiry == inbox.ExpiryNever {
		return never
	}
	return s.ended + int64(s.expiry)*1000
}

// willDueLocked is when the will is published if the session is still there
// then; never if there is no will.
func (s *session) willDueLocked() int64 {
	if s.ended == 0 || s.will == nil {
		return never
	}
	return s.ended + int64(s.will.Delay)*1000
}

// passLocked does what is due: it ends sessions and publishes wills. Then it
// sets the timer for what comes next.
func (s *Store) passLocked() {
	now, next := time.Now().UnixMilli(), int64(never)
	for _, held := range s.sessions {
		if held.overLocked() <= now {
			s.endLocked(held)
			continue
		}
		if held.willDueLocked() <= now {
			s.publishWillLocked(held)
		}
		next = min(next, held.overLocked(), held.willDueLocked())
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	if next != never && !s.closed {
		s.timer = time.AfterFunc(time.Duration(next-now)*time.Millisecond, s.pass)
	}
}

// pass runs on the timer's goroutine, no lock held.
func (s *Store) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.passLocked()
	}
}

// endLocked removes a session with everything that belongs to it.
func (s *Store) endLocked(held *session) {
	held.fenceLocked()
	delete(s.sessions, held.receiver)
	s.publishWillLocked(held)
	for _, sub := range held.filters {
		s.leaveLocked(sub.Filter)
	}
}

// publishWillLocked publishes the session's will, if it has one, once.
func (s *Store) publishWillLocked(held *session) {
	if held.will == nil {
		return
	}
	e := *held.will.Envelope
	held.will = nil
	e.Time = time.Now().UnixMilli()
	if e.Expiry > 0 {
		e.Expiry += e.Time // it was an interval until now
	}
	s.appendLocked(&e)
}
