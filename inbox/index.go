package inbox

import (
	"iter"
	"slices"
	"strings"
)

// Member is the engine's number for a receiver, from 1; 0 is nobody. Engines
// number densely and use numbers again: the index keeps 4 bytes for every
// number up to the highest.
type Member uint32

// Match is one receiver of a topic, all its matching subscriptions taken
// together [MQTT-3.3.4-2].
type Match struct {
	Member            Member
	QoS               byte     // the highest of the subscriptions'
	RetainAsPublished bool     // one of the subscriptions has it
	Identifiers       []uint32 // of all subscriptions that have one, ascending [MQTT-3.3.4-4]; not to be changed
}

// Index finds the receivers of a topic among the subscriptions of all sessions.
// It is plain data without a lock: one goroutine owns it, and every method,
// [Index.Match] too, is for that goroutine alone.
//
// Filters and topics must be valid MQTT: at most 65,535 bytes, "#" only as the
// last level. The caller has checked that, and has set its own limit on the
// number of levels.
//
// Memory: about 75 bytes for a subscription that adds one level of its own
// ("inbox/c1", "inbox/c1/#"), about 135 if it adds two ("device/c1/command"),
// and about 17 if others have the same filter; half of that is kept by member.
// What removed subscriptions occupied is used again; the index does not shrink.
type Index struct {
	tree    tree
	lists   lists     // the members of each filter
	filters filtersOf // the filters of each member
	len     int

	// Working space of Match.
	here, next []uint32 // nodes reached so far, and by one more level
	found      []set    // of the filters that match
	place      []uint32 // by member: where in the result it may be
	singles    []uint32 // 0, 1, 2, ...: lists of one identifier are cut from it
}

// identifiersKept is how many identifiers have a ready list. Clients count
// theirs from 1; a larger one costs an allocation of 4 bytes.
const identifiersKept = 1024

// NewIndex returns an empty index.
func NewIndex() *Index {
	x := &Index{tree: newTree(), singles: make([]uint32, identifiersKept)}
	for i := range x.singles {
		x.singles[i] = uint32(i)
	}
	return x
}

// Len returns the number of subscriptions.
func (x *Index) Len() int { return x.len }

// Subscribe adds a subscription of m, or replaces the one with the same filter
// [MQTT-3.8.4-3], and reports whether there was one.
//
// Cost: O(levels). Members of one filter are kept in order: a member above all
// others is appended, any other moves 8 bytes for each that is above it.
func (x *Index) Subscribe(m Member, s Subscription) (existed bool) {
	n, deep := uint32(root), false
	for level := range strings.SplitSeq(s.Filter, "/") {
		if deep = level == "#"; deep {
			break
		}
		n = x.tree.grow(n, level)
	}
	existed = x.lists.put(x.tree.set(n, deep), entry{m, packOptions(s)})
	if !existed {
		x.filters.add(m, refer(n, deep))
		x.len++
	}
	if int(m) >= len(x.place) {
		x.place = append(x.place, make([]uint32, int(m)+1-len(x.place))...)
	}
	return existed
}

// Unsubscribe removes the subscription of m with exactly this filter
// [MQTT-3.10.4-1] and reports whether there was one. Cost: as for Subscribe.
func (x *Index) Unsubscribe(m Member, filter string) (existed bool) {
	r, ok := x.lookUp(filter)
	return ok && x.remove(m, r)
}

// lookUp finds a filter, and reports whether some member may have it.
func (x *Index) lookUp(filter string) (filterRef, bool) {
	n, deep := uint32(root), false
	for level := range strings.SplitSeq(filter, "/") {
		if deep = level == "#"; deep {
			break
		}
		if n = x.tree.child(n, level); n == none {
			return noFilter, false
		}
	}
	return refer(n, deep), true
}

func (x *Index) remove(m Member, r filterRef) (existed bool) {
	if !x.lists.remove(x.tree.set(r.node(), r.deep()), m) {
		return false
	}
	x.filters.remove(m, r)
	x.tree.prune(r.node())
	x.len--
	return true
}

// Members returns how many members have a subscription with exactly this filter.
func (x *Index) Members(filter string) int {
	r, ok := x.lookUp(filter)
	if !ok {
		return 0
	}
	s := *x.tree.set(r.node(), r.deep())
	if s.empty() {
		return 0
	}
	return len(x.lists.entries(s))
}

// Subscribers yields every member that has a subscription with exactly this
// filter, and that subscription without its retain handling, ascending by
// member. The index must not be changed meanwhile. Cost: the look-up of the
// filter, then a few nanoseconds for each member.
func (x *Index) Subscribers(filter string) iter.Seq2[Member, Subscription] {
	return func(yield func(Member, Subscription) bool) {
		r, ok := x.lookUp(filter)
		if !ok {
			return
		}
		s := *x.tree.set(r.node(), r.deep())
		if s.empty() {
			return
		}
		if s.single() { // not by entries, whose working space yield may use
			yield(s.member, entry(s).options.subscription(filter))
			return
		}
		for _, e := range x.lists.entries(s) {
			if !yield(e.member, e.options.subscription(filter)) {
				return
			}
		}
	}
}

// Match appends to dst every member that gets a message on topic which from
// has published, each once, in no particular order. Subscriptions with No Local
// do not count for from itself [MQTT-3.8.3-3]; 0 is nobody.
//
// The appended identifiers stay as they are whatever happens to the index.
//
// Cost: one table look-up for each level and each node that the levels before
// reached, then about 2 ns for each member, 7 if several filters match. It
// allocates only if dst is too small, for identifiers from 1,024, and for
// members with several identifiers.
func (x *Index) Match(topic string, from Member, dst []Match) []Match {
	x.find(topic)
	if len(x.found) == 1 {
		return x.appendAll(dst, x.lists.entries(x.found[0]), from)
	}
	start := len(dst)
	for _, s := range x.found {
		dst = x.appendMissing(dst, start, x.lists.entries(s), from)
	}
	return dst
}

// find sets found to the sets of all filters that match topic. It goes level by
// level and holds all nodes reached: never more than the tree has at this depth.
func (x *Index) find(topic string) {
	x.found = x.found[:0]
	x.here = append(x.here[:0], root)

	// A wildcard in the first level does not match a topic with $ [MQTT-4.7.2-1].
	wild := !strings.HasPrefix(topic, "$")
	for rest, more := topic, true; more && len(x.here) > 0; wild = true {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		hash := x.tree.hash(level)
		x.next = x.next[:0]
		for _, h := range x.here {
			n := x.tree.at(h)
			if wild {
				x.add(n.deep)
				if n.plus != none {
					x.next = append(x.next, n.plus)
				}
			}
			if n.children == 0 {
				continue
			}
			if c := x.tree.find(h, level, hash); c != none {
				x.next = append(x.next, c)
			}
		}
		x.here, x.next = x.next, x.here
	}

	// What is reached by all levels matches, and so does "#" below it, which
	// includes its parent level (MQTT 5, 4.7.1.2).
	for _, h := range x.here {
		n := x.tree.at(h)
		x.add(n.exact)
		x.add(n.deep)
	}
}

func (x *Index) add(s set) {
	if !s.empty() {
		x.found = append(x.found, s)
	}
}

// appendAll appends the entries of the only filter that matches.
func (x *Index) appendAll(dst []Match, entries []entry, from Member) []Match {
	dst = slices.Grow(dst, len(entries))
	for _, e := range entries {
		if e.member != from || !e.options.noLocal() {
			dst = append(dst, x.match(e))
		}
	}
	return dst
}

// appendMissing appends the entries whose members are not in dst[start:] and
// merges the others. The place of a member is a hint that may be left over from
// an earlier call; only the member found there proves it.
func (x *Index) appendMissing(dst []Match, start int, entries []entry, from Member) []Match {
	for _, e := range entries {
		if e.member == from && e.options.noLocal() {
			continue
		}
		i := start + int(x.place[e.member])
		if i < len(dst) && dst[i].Member == e.member {
			dst[i].merge(e.options)
			continue
		}
		x.place[e.member] = uint32(len(dst) - start)
		dst = append(dst, x.match(e))
	}
	return dst
}

func (x *Index) match(e entry) Match {
	m := Match{Member: e.member, QoS: e.options.qos(), RetainAsPublished: e.options.retainAsPublished()}
	switch id := e.options.identifier(); {
	case id == 0:
	case id < identifiersKept:
		m.Identifiers = x.singles[id : id+1 : id+1] // no room behind it: appending copies
	default:
		m.Identifiers = []uint32{id}
	}
	return m
}

// merge adds one more subscription. An identifier that two subscriptions share
// is there twice, as MQTT 5 (3.3.4) has it.
func (m *Match) merge(o options) {
	m.QoS = max(m.QoS, o.qos())
	m.RetainAsPublished = m.RetainAsPublished || o.retainAsPublished()
	if id := o.identifier(); id != 0 {
		i, _ := slices.BinarySearch(m.Identifiers, id)
		m.Identifiers = slices.Insert(m.Identifiers, i, id)
	}
}
