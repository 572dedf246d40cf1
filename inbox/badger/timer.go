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
	incarnation incarnation
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
	sess := s.sessions.at(m)
	at := min(sess.willDue(), sess.over())
	if at != never && (sess.timer == 0 || at < sess.timer) {
		sess.timer = at
		heap.Push(&s.timers, timer{at, m, sess.incarnation})
	}
}

// runTimers publishes the wills that are due and ends the sessions whose time is
// over.
func (g *commitGroup) runTimers() {
	s, now := g.s, g.now.UnixMilli()
	for n := 0; n < timersAtOnce && len(s.timers) > 0 && s.timers[0].at <= now; n++ {
		t := heap.Pop(&s.timers).(timer)
		sess := s.sessions.at(t.member)
		if sess.incarnation != t.incarnation {
			continue
		}
		if sess.timer == t.at {
			sess.timer = 0
		}
		if sess.owner != nil {
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
func (sess *session) over() int64 {
	if sess.ended == 0 || sess.expiry == inbox.ExpiryNever {
		return never
	}
	return sess.ended + int64(sess.expiry)*1000
}

// willDue is when the session's will is published if the session is still there
// then; never if it has no will.
func (sess *session) willDue() int64 {
	if sess.ended == 0 || sess.will == nil {
		return never
	}
	return sess.ended + int64(sess.will.Delay)*1000
}
