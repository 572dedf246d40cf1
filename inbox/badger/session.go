package badger

import (
	"context"
	"iter"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// session is what the store holds in memory for each session, connected or
// not. Owned by the committer.
type session struct {
	receiver    inbox.Receiver
	incarnation incarnation
	owner       *handle // nil while the receiver is away
	ended       int64   // when the last link ended, Unix milliseconds
	expiry      inbox.Expiry
	will        *inbox.Will
	timer       int64 // when the first of its timers fires, Unix milliseconds; 0 if it has none
	building    int32 // 1 + index of the session's block in the group being built; 0 if it has none
	stored      bool  // has a record and outlives its link; otherwise it is in memory,
	spilled     bool  // but for what its receiver was too slow to take
}

// sessions finds sessions by receiver and by member number. Numbers of ended
// sessions are used again. Owned by the committer.
type sessions struct {
	byReceiver map[inbox.Receiver]inbox.Member
	byMember   []session // byMember[0] stays empty: member 0 is nobody
	free       []inbox.Member
}

func newSessions() *sessions {
	return &sessions{byReceiver: map[inbox.Receiver]inbox.Member{}, byMember: make([]session, 1)}
}

// member returns the number of r's session, 0 if there is none.
func (s *sessions) member(r inbox.Receiver) inbox.Member { return s.byReceiver[r] }

// at returns the session with number m. The pointer is valid until the next add.
func (s *sessions) at(m inbox.Member) *session { return &s.byMember[m] }

func (s *sessions) add(n session) inbox.Member {
	var m inbox.Member
	if last := len(s.free) - 1; last >= 0 {
		m = s.free[last]
		s.free = s.free[:last]
		s.byMember[m] = n
	} else {
		m = inbox.Member(len(s.byMember))
		s.byMember = append(s.byMember, n)
	}
	s.byReceiver[n.receiver] = m
	return m
}

func (s *sessions) remove(m inbox.Member) {
	delete(s.byReceiver, s.byMember[m].receiver)
	s.byMember[m] = session{}
	s.free = append(s.free, m)
}

// sessionVersion is the version of the session record:
//
//	[version, receiver, incarnation, expiry seconds, ended ms]
const sessionVersion = 1

func appendSession(dst []byte, s *session) ([]byte, error) {
	return appendRecord(dst, sessionVersion, string(s.receiver), uint64(s.incarnation), uint64(s.expiry), s.ended)
}

func parseSession(b []byte) (session, error) {
	d, err := openRecord("session", b, sessionVersion, 5)
	if err != nil {
		return session{}, err
	}
	s := session{
		receiver:    inbox.Receiver(d.string()),
		incarnation: incarnation(d.uint()),
		expiry:      inbox.Expiry(d.uint()),
		ended:       d.int(),
		stored:      true,
	}
	return s, d.err()
}

// Sessions implements [inbox.Store]. It takes the sessions from the committer
// a thousand at a time.
func (s *Store) Sessions(ctx context.Context) iter.Seq2[inbox.Session, error] {
	return func(yield func(inbox.Session, error) bool) {
		type page struct {
			sessions []inbox.Session
			next     int // 0 at the end
		}
		for next := 1; next != 0; {
			part, err := run(ctx, s, "list sessions", func(*commitGroup) (page, error) {
				p := page{next: min(next+1000, len(s.sessions.byMember))}
				for i := next; i < p.next; i++ {
					if sess := &s.sessions.byMember[i]; sess.incarnation != 0 && !isGroup(sess.receiver) {
						p.sessions = append(p.sessions, inbox.Session{
							Receiver: sess.receiver, Expiry: sess.expiry,
							Connected: sess.owner != nil, Ended: sess.ended,
						})
					}
				}
				if p.next == len(s.sessions.byMember) {
					p.next = 0
				}
				return p, nil
			})
			if err != nil {
				yield(inbox.Session{}, err)
				return
			}
			for _, sess := range part.sessions {
				if !yield(sess, nil) {
					return
				}
			}
			next = part.next
		}
	}
}
