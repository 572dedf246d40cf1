package badger

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// session is what a session begins with, and what its record holds.
type session struct {
	receiver    inbox.Receiver
	incarnation incarnation
	ended       int64 // when the last link ended, Unix milliseconds
	expiry      inbox.Expiry
	stored      bool // has a record and outlives its link
	pull        bool // is in pull mode from the next connection on
}

// sessionRef is one session as the committer sees it: what the store holds of
// each, connected or not, and the way to what only few have. It is valid until
// the session is removed.
type sessionRef struct {
	*resting
	in *sessions
}

// resting is all that a session costs while its receiver is away, beside its
// name: 40 bytes without a pointer, so that the garbage collector passes over
// them. Of a number that is free it has the next free one, as timer.
type resting struct {
	incarnation incarnation
	ended       int64 // when the last link ended, Unix milliseconds
	name        span
	expiry      inbox.Expiry
	building    uint32 // 1 + index of the session's block in the group being built, 0 if it has none; and pullBit
	timer       uint32 // when the first of its timers fires, as sessions.tenths says; 0 if it has none
	extra       uint32 // number of what else it has; 0 if it has nothing
}

// pullBit says in resting.building, where there is room, that a session is in pull mode.
const pullBit = 1 << 31

// block returns the index of the session's block in the group being built, and whether
// it has one.
func (r *resting) block() (i int, ok bool) {
	n := r.building &^ pullBit
	return int(n) - 1, n > 0
}

func (r *resting) setBlock(i int) { r.building = r.building&pullBit | uint32(i+1) }
func (r *resting) noBlock()       { r.building &= pullBit }

// mode is how the receiver is served from its next connection on.
func (r *resting) mode() inbox.Mode {
	if r.building&pullBit != 0 {
		return inbox.ModePull
	}
	return inbox.ModePush
}

func (r *resting) setMode(m inbox.Mode) {
	switch m {
	case inbox.ModePull:
		r.building |= pullBit
	case inbox.ModePush:
		r.building &^= pullBit
	}
}

// extra is what a session has while its receiver is connected, or a will waits.
type extra struct {
	owner    *handle // nil while the receiver is away
	will     *inbox.Will
	inMemory bool // has no record and ends with its link: it is in memory,
	spilled  bool // but for what its receiver was too slow to take
}

func (s sessionRef) receiver() inbox.Receiver { return inbox.Receiver(s.in.names.get(s.name)) }

// stored reports whether the session has a record and outlives its link.
func (s sessionRef) stored() bool { return s.extra == 0 || !s.in.extras[s.extra].inMemory }

func (s sessionRef) owner() *handle    { return s.in.extras[s.extra].owner }
func (s sessionRef) will() *inbox.Will { return s.in.extras[s.extra].will }
func (s sessionRef) spilled() bool     { return s.in.extras[s.extra].spilled }

func (s sessionRef) setOwner(h *handle)    { s.change(func(e *extra) { e.owner = h }) }
func (s sessionRef) setWill(w *inbox.Will) { s.change(func(e *extra) { e.will = w }) }
func (s sessionRef) setSpilled()           { s.change(func(e *extra) { e.spilled = true }) }

// change changes what else the session has, which is there only while it is
// something.
func (s sessionRef) change(do func(*extra)) {
	e := s.in.extras[s.extra]
	do(&e)
	switch {
	case e != extra{}:
		if s.extra == 0 {
			s.extra = s.in.takeExtra()
		}
		s.in.extras[s.extra] = e
	case s.extra != 0:
		s.in.giveBackExtra(s.extra)
		s.extra = 0
	}
}

// sessionChunk is how many sessions are allocated at once. They never move, so
// that one more costs the same however many there are.
const sessionChunk = 1024

// sessions finds sessions by receiver and by member number. Numbers of ended
// sessions are used again. Owned by the committer.
//
// A session costs 40 bytes, its name, and 6 bytes in the table of names.
type sessions struct {
	chunks     []*[sessionChunk]resting // by member; member 0 is nobody
	used       inbox.Member             // numbers given so far, and that of nobody
	free       inbox.Member             // the first number to use again, or 0
	names      names
	byReceiver nameTable
	extras     []extra  // 0 stands for nothing and is not changed
	freeExtras []uint32 // numbers to use again
	read       int64    // when they were read, Unix milliseconds
}

func newSessions() *sessions {
	s := &sessions{byReceiver: newNameTable(), extras: make([]extra, 1), read: time.Now().UnixMilli()}
	s.take() // nobody
	return s
}

// member returns the number of r's session, 0 if there is none.
func (s *sessions) member(r inbox.Receiver) inbox.Member {
	return s.byReceiver.find(string(r), s.nameOf)
}

func (s *sessions) nameOf(m inbox.Member) []byte { return s.names.get(s.resting(m).name) }

// at returns the session with number m; without an incarnation, or anything else, if there
// is none. Of a session that may have ended, the number may be another's: see owner.
func (s *sessions) at(m inbox.Member) sessionRef { return sessionRef{s.resting(m), s} }

// owner returns who owns the session of an incarnation, which had number m: nil if its
// receiver is away, or it has ended.
func (s *sessions) owner(m inbox.Member, inc incarnation) *handle {
	if sess := s.at(m); sess.incarnation == inc {
		return sess.owner()
	}
	return nil
}

func (s *sessions) resting(m inbox.Member) *resting {
	return &s.chunks[m/sessionChunk][m%sessionChunk]
}

func (s *sessions) add(n session) inbox.Member {
	m := s.addUnnamed(n)
	s.byReceiver.insert(m, s.nameOf)
	if !n.stored {
		s.at(m).change(func(e *extra) { e.inMemory = true })
	}
	return m
}

// addUnnamed adds a session that is not found by its receiver yet.
func (s *sessions) addUnnamed(n session) inbox.Member {
	m := s.take()
	*s.resting(m) = resting{incarnation: n.incarnation, ended: n.ended, expiry: n.expiry, name: s.names.add(string(n.receiver))}
	if n.pull {
		s.resting(m).setMode(inbox.ModePull)
	}
	return m
}

// sortByIncarnation gives sessions that were just read, and have no names yet,
// their numbers anew, in the order of their incarnations.
func (s *sessions) sortByIncarnation() {
	type numbered struct {
		incarnation incarnation
		member      inbox.Member
	}
	order := make([]numbered, 0, s.used-1)
	for m := inbox.Member(1); m < s.used; m++ {
		order = append(order, numbered{s.resting(m).incarnation, m})
	}
	slices.SortFunc(order, func(a, b numbered) int { return cmp.Compare(a.incarnation, b.incarnation) })
	// Each place takes what belongs there, and the place of that is next: round
	// and round, so that nothing is there twice.
	for m := inbox.Member(1); m < s.used; m++ {
		first := *s.resting(m)
		at := m
		for from := order[at-1].member; from != m; from = order[at-1].member {
			*s.resting(at) = *s.resting(from)
			order[at-1].member = at
			at = from
		}
		*s.resting(at) = first
		order[at-1].member = at
	}
}

// nameAll has the sessions found by their receivers.
func (s *sessions) nameAll() {
	s.byReceiver.reserve(int(s.used), s.nameOf)
	for m := inbox.Member(1); m < s.used; m++ {
		s.byReceiver.insert(m, s.nameOf)
	}
}

// groups returns the sessions of groups and streams.
func (s *sessions) groups() (all []inbox.Member) {
	for m := inbox.Member(1); m < s.used; m++ {
		if isGroup(s.nameOf(m)) {
			all = append(all, m)
		}
	}
	return all
}

// ofIncarnation returns the session of an incarnation, 0 if there is none. It is
// for sessions that were just read: members are in the order of incarnations.
func (s *sessions) ofIncarnation(inc incarnation) inbox.Member {
	m := 1 + sort.Search(int(s.used)-1, func(i int) bool { return s.resting(inbox.Member(i)+1).incarnation >= inc })
	if m == int(s.used) || s.resting(inbox.Member(m)).incarnation != inc {
		return 0
	}
	return inbox.Member(m)
}

func (s *sessions) remove(m inbox.Member) {
	r := s.resting(m)
	s.byReceiver.remove(m, s.nameOf)
	if r.extra != 0 {
		s.giveBackExtra(r.extra)
	}
	s.names.remove(r.name)
	*r = resting{timer: uint32(s.free)}
	s.free = m
	if s.names.wasteful() {
		s.packNames()
	}
}

func (s *sessions) take() inbox.Member {
	if m := s.free; m != 0 {
		s.free = inbox.Member(s.resting(m).timer)
		return m
	}
	if s.used%sessionChunk == 0 {
		s.chunks = append(s.chunks, new([sessionChunk]resting))
	}
	s.used++
	return s.used - 1
}

func (s *sessions) takeExtra() uint32 {
	if last := len(s.freeExtras) - 1; last >= 0 {
		n := s.freeExtras[last]
		s.freeExtras = s.freeExtras[:last]
		return n
	}
	s.extras = append(s.extras, extra{})
	return uint32(len(s.extras) - 1)
}

func (s *sessions) giveBackExtra(n uint32) {
	s.extras[n] = extra{}
	s.freeExtras = append(s.freeExtras, n)
}

// packNames copies the names that are in use.
func (s *sessions) packNames() {
	var packed names
	for m := inbox.Member(1); m < s.used; m++ {
		if r := s.resting(m); r.incarnation != 0 {
			r.name = packed.add(string(s.names.get(r.name)))
		}
	}
	s.names = packed
}

// sessionVersion is the version of the session record:
//
//	[version, receiver, incarnation, expiry seconds, ended ms, pull mode]
//
// Earlier records have no mode.
const sessionVersion = 1

func appendSession(dst []byte, s sessionRef) ([]byte, error) {
	return appendRecord(dst, sessionVersion, string(s.receiver()), uint64(s.incarnation), uint64(s.expiry), s.ended, s.mode() == inbox.ModePull)
}

// parseSession reads what appendSession has written. The receiver points into b.
func parseSession(b []byte) (session, error) {
	d := openRecord("session", b, sessionVersion, 5, 6)
	s := session{
		receiver:    inbox.Receiver(d.Text("receiver")),
		incarnation: incarnation(d.number("incarnation")),
		expiry:      inbox.Expiry(d.Uint("expiry", math.MaxUint32)),
		ended:       d.Int("ended"),
		stored:      true,
	}
	if d.fields > 5 {
		s.pull = d.Bool("pull mode")
	}
	return s, d.err()
}

// Sessions implements [inbox.Store]. It takes the sessions from the committer
// a thousand at a time.
func (s *Store) Sessions(ctx context.Context) iter.Seq2[inbox.Session, error] {
	return func(yield func(inbox.Session, error) bool) {
		type page struct {
			sessions []inbox.Session
			next     inbox.Member // 0 at the end
		}
		for next := inbox.Member(1); next != 0; {
			part, err := run(ctx, s, "list sessions", func(*commitGroup) (page, error) {
				p := page{next: min(next+1000, s.sessions.used)}
				for m := next; m < p.next; m++ {
					if sess := s.sessions.at(m); sess.incarnation != 0 && !isGroup(sess.receiver()) {
						p.sessions = append(p.sessions, inbox.Session{
							Receiver: sess.receiver(), Expiry: sess.expiry,
							Connected: sess.owner() != nil, Mode: sess.mode(), Ended: sess.ended,
						})
					}
				}
				if p.next == s.sessions.used {
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
