package badger

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A stream keeps the messages of one filter once, however many sessions are
// subscribed to it. Like the group of a shared subscription it is a session of
// its own without a client, with blocks like any other; the index has it in the
// place of its members. What a member has read of it is said by the position
// that it has anyway: all positions are numbers of the one sequence, so an inbox
// is the merge of the member's own blocks and those of its streams, and an
// acknowledgement moves one position whatever the message came from.
//
// Members are the durable sessions that want QoS 1 or 2. Whoever else subscribes
// to the same filter stands in the index and is served like before.
type stream struct {
	filter      string
	member      inbox.Member // of the stream's own session
	incarnation incarnation

	// No entry is behind head; headUnknown until somebody has looked. A reader
	// that has come to it need not read.
	head atomic.Uint64

	// Owned by the committer.
	open    bool // new messages are put here
	readers readers
	past    map[inbox.Member]*past // of those readers who have one
	slowest place                  // of the one that holds the stream up, as last looked for; nobody at first
	known   bool                   // the readers' positions have been read from disk since the start
	swept   inbox.Position         // blocks up to here are deleted

	audience audience // the fan-out's
}

const headUnknown = ^uint64(0)

// place is how far one session has read a stream.
type place struct {
	member   inbox.Member
	position inbox.Position
}

// segment is a part of a stream that was stored while a session was a member with
// these options: the entries after one position and up to another.
type segment struct {
	since, until inbox.Position
	sub          inbox.Subscription
}

// endless is the end of a segment that goes on.
const endless = ^inbox.Position(0)

// past is what a session has still to read of a stream under options that it has
// had before, or as the member that it was.
type past struct {
	segments []segment
	since    inbox.Position // where its present membership begins, if it has one
}

// mostSegments bounds how many changes of options a session may be behind: it is
// refused another until it has read on.
const mostSegments = 256

// isFull reports whether there is no room for another change, if everything up to a
// position is finished.
func (p *past) isFull(finished inbox.Position) bool {
	return p != nil && len(p.segments) >= mostSegments && p.segments[len(p.segments)-mostSegments].until > finished
}

// streamQoS marks the subscription of a stream in the index: no client can have
// it.
const streamQoS = 3

// streams are the streams of a store, and who decides that there is one. Owned
// by the committer.
type streams struct {
	from       int // sessions; never if not above 0
	push, pull []string

	byFilter map[string]*stream
	byMember map[inbox.Member]*stream
	members  *inbox.Index               // the subscriptions that streams serve; matched with no topic
	pasts    map[inbox.Member][]*stream // those of which a session has a past
	unswept  map[*stream]struct{}       // those that may have something to delete, or a reader to forget
}

func newStreams(o Options) *streams {
	return &streams{
		from: o.StreamFrom, push: o.Push, pull: o.Pull,
		byFilter: map[string]*stream{}, byMember: map[inbox.Member]*stream{},
		members: inbox.NewIndex(), pasts: map[inbox.Member][]*stream{}, unswept: map[*stream]struct{}{},
	}
}

// streamReceiver is the receiver of a stream's own session. No client can have
// its name, and no group has, whose filter begins with [inbox.SharePrefix].
func streamReceiver(filter string) inbox.Receiver { return inbox.Receiver("\x00" + filter) }

// streamFilter returns the filter of a stream's own session, and whether it is one.
func streamFilter(r inbox.Receiver) (string, bool) {
	if _, ok := historyFilter(r); ok || !isGroup(r) || strings.HasPrefix(string(r[1:]), inbox.SharePrefix) {
		return "", false
	}
	return string(r[1:]), true
}

// forced reports whether the operator has decided how the messages of a filter
// are kept.
func (t *streams) forced(filter string) (push, pull bool) {
	names := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return p == filter || inbox.MatchTopic(p, filter) })
	}
	if len(t.push) > 0 && names(t.push) {
		return true, false
	}
	return false, len(t.pull) > 0 && names(t.pull)
}

// put makes m a reader of what comes after a position. One that reads already is
// where it was.
func (st *stream) put(m inbox.Member, since inbox.Position) {
	if st.readers.of(m) == nil {
		st.readers.add(m, since)
	}
}

// advance notes that m has finished everything up to p.
func (st *stream) advance(m inbox.Member, p inbox.Position) {
	if r := st.readers.of(m); r != nil {
		r.set(max(r.position(), p))
	}
}

// position returns what m has finished of the stream.
func (st *stream) position(m inbox.Member) inbox.Position {
	if r := st.readers.of(m); r != nil {
		return r.position()
	}
	return 0
}

// since is where the present membership of m begins, or a later position up to
// which it has finished everything.
func (st *stream) since(m inbox.Member) inbox.Position {
	if p := st.past[m]; p != nil {
		return max(p.since, st.position(m))
	}
	return st.position(m)
}

// joined is where the present membership of m begins, as far as it is known: or a later
// position up to which it has finished everything.
func (st *stream) joined(m inbox.Member) inbox.Position {
	if p := st.past[m]; p != nil {
		return p.since
	}
	return st.position(m)
}

// of returns the streams that m reads.
func (t *streams) of(m inbox.Member) []*stream {
	all := slices.Clone(t.pasts[m])
	for _, sub := range t.members.Subscriptions(m) {
		if st := t.byFilter[sub.Filter]; st.past[m] == nil {
			all = append(all, st)
		}
	}
	return all
}

// pastOf returns m's past in a stream, to be added to.
func (t *streams) pastOf(m inbox.Member, st *stream) *past {
	p := st.past[m]
	if p == nil {
		p = &past{}
		st.past[m] = p
		t.pasts[m] = append(t.pasts[m], st)
		t.unswept[st] = struct{}{}
	}
	return p
}

// forget takes m's past in a stream away.
func (t *streams) forget(m inbox.Member, st *stream) {
	if st.past[m] == nil {
		return
	}
	delete(st.past, m)
	t.pasts[m] = slices.DeleteFunc(t.pasts[m], func(other *stream) bool { return other == st })
	if len(t.pasts[m]) == 0 {
		delete(t.pasts, m)
	}
}

// all returns the streams, in no particular order.
func (t *streams) all() []*stream { return slices.Collect(maps.Values(t.byFilter)) }
