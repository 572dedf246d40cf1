package badger

import (
	"container/heap"
	"math"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// timer says when to look at a session whose receiver is away: its will is due,
// or its time is over. Timers are never taken back: one that is outdated finds
// another incarnation, or nothing to do yet. A session that is left again and
// again has one, not one each time.
type timer struct {
	at          int64 // Unix milliseconds
	member      inbox.Member
	incarnation uint32 // its low half: one that is taken for another finds nothing to do yet
}

// timers is a heap, the earliest first. Owned by the committer.
type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// timerCheck is how long the committer sleeps at most while there are timers:
// they follow the wall clock, which may be set.
const timerCheck = 5 * time.Second

// next returns when to look at the timers; the zero time if there are none.
func (t timers) next(now time.Time) time.Time {
	if len(t) == 0 {
		return time.Time{}
	}
	wait := time.Duration(min(t[0].at-now.UnixMilli(), timerCheck.Milliseconds())) * time.Millisecond
	return now.Add(max(wait, 0))
}

// timersAtOnce bounds how many sessions one group looks at, so that a great
// many that end together hold up nobody.
const timersAtOnce = 500

// watch sets the timer of a session that has just been left, unless one fires
// before.
func (s *Store) watch(m inbox.Member) {
	if s.note(m) {
		heap.Fix(&s.timers, len(s.timers)-1)
	}
}

// note appends the timer of a session, unless it needs none or has one that
// fires before, or at most a tenth of a second after, and reports whether it did.
func (s *Store) note(m inbox.Member) bool {
	sess := s.sessions.at(m)
	at := min(sess.willDue(), sess.over())
	if at == never {
		return false
	}
	tenths := s.sessions.tenths(at)
	if sess.timer != 0 && tenths >= sess.timer {
		return false
	}
	sess.timer = tenths
	s.timers = append(s.timers, timer{at, m, uint32(sess.incarnation)})
	return true
}

// tenths returns a time, Unix milliseconds, in the tenths of a second since the
// sessions were read, which fit 4 bytes: no process runs for thirteen years.
func (s *sessions) tenths(at int64) uint32 {
	return uint32(min(max((at-s.read)/100, 1), math.MaxUint32))
}

// runTimers publishes the wills that are due and ends the sessions whose time is
// over.
func (g *commitGroup) runTimers() {
	s, now := g.s, g.now.UnixMilli()
	for n := 0; n < timersAtOnce && len(s.timers) > 0 && s.timers[0].at <= now; n++ {
		t := heap.Pop(&s.timers).(timer)
		sess := s.sessions.at(t.member)
		if low := uint32(sess.incarnation); sess.incarnation == 0 || low != t.incarnation {
			continue
		}
		if sess.timer == s.sessions.tenths(t.at) {
			sess.timer = 0
		}
		if sess.owner() != nil {
			continue
		}
		switch {
		case sess.over() <= now:
			g.end(t.member)
		case sess.willDue() <= now:
			g.publishWill(t.member)
			s.watch(t.member)
		default:
			s.watch(t.member) // left again since
		}
	}
}

// never is a time that does not come.
const never = math.MaxInt64

// over is when the session ends, in Unix milliseconds; never while it has an
// owner.
func (s sessionRef) over() int64 {
	if s.ended == 0 || s.expiry == inbox.ExpiryNever {
		return never
	}
	return s.ended + int64(s.expiry)*1000
}

// willDue is when the session's will is published if the session is still there
// then; never if it has no will.
func (s sessionRef) willDue() int64 {
	if s.ended == 0 || s.will() == nil {
		return never
	}
	return s.ended + int64(s.will().Delay)*1000
}
