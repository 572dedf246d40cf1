package inbox

import (
	"bytes"
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
// Memory: about 40 bytes for a subscription whose filter shares only its
// beginning with others, and the text that it does not share ("c1/command" of
// "device/c1/command"); about 12 if others have the same filter.
// What removed subscriptions occupied is used again; the index does not shrink.
type Index struct {
	tree    tree
	lists   lists     // the members of each filter
	filters filtersOf // the filters of each member
	len     int

	// Working space of Match.
	reached []reached    // nodes to go on from
	levels  []topicLevel // of the topic, as far as they were looked at
	found   []set        // of the filters that match
	place   []uint32     // by member: where in the result it may be
	space   space        // of the set at hand
	singles []uint32     // 0, 1, 2, ...: lists of one identifier are cut from it
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
// Cost: O(levels), and for a filter of many members a search among them.
func (x *Index) Subscribe(m Member, s Subscription) (existed bool) {
	r := x.tree.grow(s.Filter)
	existed = x.lists.put(x.tree.set(r), entry{m, packOptions(s)})
	if !existed {
		x.filters.add(m, r)
		x.len++
	}
	return existed
}

// Unsubscribe removes the subscription of m with exactly this filter
// [MQTT-3.10.4-1] and reports whether there was one. Cost: as for Subscribe.
func (x *Index) Unsubscribe(m Member, filter string) (existed bool) {
	r, ok := x.tree.lookUp(filter)
	return ok && x.remove(m, r)
}

func (x *Index) remove(m Member, r filterRef) (existed bool) {
	if x.tree.get(r).empty() || !x.lists.remove(x.tree.set(r), m) {
		return false
	}
	x.filters.remove(m, r)
	x.tree.prune(r.node())
	x.len--
	return true
}

// Members returns how many members have a subscription with exactly this filter.
func (x *Index) Members(filter string) int {
	r, ok := x.tree.lookUp(filter)
	if !ok {
		return 0
	}
	return x.lists.len(x.tree.get(r))
}

// Subscribers yields every member that has a subscription with exactly this
// filter, and that subscription without its retain handling, ascending by
// member. The index must not be changed meanwhile. Cost: the look-up of the
// filter, then a few nanoseconds for each member.
func (x *Index) Subscribers(filter string) iter.Seq2[Member, Subscription] {
	return func(yield func(Member, Subscription) bool) {
		r, ok := x.tree.lookUp(filter)
		if !ok {
			return
		}
		var own space // for yield may call other methods
		for _, p := range x.lists.parts(x.tree.get(r), &own) {
			for _, e := range p {
				if !yield(e.member, e.options.subscription(filter)) {
					return
				}
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
// Cost: one table look-up for each node that the topic reaches and other levels
// follow, then about 2 ns for each member, 7 if several filters match. It
// allocates only if dst is too small, for identifiers from 1,024, and for
// members with several identifiers.
func (x *Index) Match(topic string, from Member, dst []Match) []Match {
	x.find(topic)
	if len(x.found) == 1 {
		return x.appendAll(dst, x.found[0], from)
	}
	start := len(dst)
	for _, s := range x.found {
		dst = x.appendMissing(dst, start, s, from)
	}
	return dst
}

// reached is a node that the first levels of a topic lead to and other levels
// follow, and the level of the topic that comes next: which it is, and its first
// byte.
type reached struct {
	node  uint32
	level uint32
	from  int
}

// topicLevel is one level of a topic.
type topicLevel struct {
	end    int // 0 before it is known
	hash   uint64
	hashed bool
}

// find sets found to the sets of all filters that match topic. It comes to a
// node at most once, so never to more of them than there are.
func (x *Index) find(topic string) {
	x.found, x.levels, x.reached = x.found[:0], x.levels[:0], x.reached[:0]
	x.branch(reached{node: root}, topic)
	for last := len(x.reached) - 1; last >= 0; last = len(x.reached) - 1 {
		r := x.reached[last]
		x.reached = x.reached[:last]
		x.branch(r, topic)
	}
}

// branch goes on from a node by the next level of the topic.
func (x *Index) branch(r reached, topic string) {
	n := x.tree.at(r.node)
	if n.isLeaf() { // the root without any filter but "#"
		x.end(n, false, !strings.HasPrefix(topic, "$"))
		return
	}
	in := x.tree.inners.at(n.inner)
	level := x.level(topic, r)
	if r.level > 0 || !strings.HasPrefix(topic, "$") { // [MQTT-4.7.2-1]
		x.add(in.deep)
		if in.plus != none {
			x.follow(in.plus, len("+"), topic, r.level, level.end)
		}
	}
	if in.children == 0 {
		return
	}
	name := topic[r.from:level.end]
	if !level.hashed {
		level.hash, level.hashed = x.tree.hash(name), true
	}
	if c := x.tree.find(r.node, name, level.hash); c != none {
		x.follow(c, len(name), topic, r.level, level.end)
	}
}

// level returns the level that comes next. It is looked for and hashed once,
// however many nodes need it.
func (x *Index) level(topic string, r reached) *topicLevel {
	for len(x.levels) <= int(r.level) {
		x.levels = append(x.levels, topicLevel{})
	}
	l := &x.levels[r.level]
	if l.end == 0 {
		l.end = r.from + len(firstLevel(topic[r.from:]))
	}
	return l
}

// follow goes on to a child if the topic does, level by level. The first level of
// the child, of so many bytes, fits the one of the topic that has this end.
func (x *Index) follow(child uint32, first int, topic string, level uint32, end int) {
	n := x.tree.at(child)
	next := end + 1
	if n.label.len() > first {
		label := x.tree.label(n)[first+1:]
		var ok bool
		if next, ok = follow(label, topic, next); !ok {
			return
		}
		level += 1 + uint32(bytes.Count(label, slash))
	}
	switch {
	case next > len(topic):
		x.end(n, true, true) // "#" includes its parent level (MQTT 5, 4.7.1.2)
	case n.isLeaf():
		x.end(n, false, true)
	default:
		x.reached = append(x.reached, reached{child, level + 1, next})
	}
}

// end adds the sets of a node from which the topic does not go on.
func (x *Index) end(n *node, exact, deep bool) {
	if exact {
		x.add(x.tree.exact(n))
	}
	if deep {
		x.add(x.tree.deep(n))
	}
}

func (x *Index) add(s set) {
	if !s.empty() {
		x.found = append(x.found, s)
	}
}

// appendAll appends the members of the only filter that matches.
func (x *Index) appendAll(dst []Match, s set, from Member) []Match {
	if s.single() {
		if s.member == from && s.options.noLocal() {
			return dst
		}
		return append(dst, x.match(entry(s)))
	}
	dst = slices.Grow(dst, x.lists.len(s))
	for _, p := range x.lists.parts(s, &x.space) {
		dst = x.appendPart(dst, p, from)
	}
	return dst
}

func (x *Index) appendPart(dst []Match, part []entry, from Member) []Match {
	for _, e := range part {
		if e.member != from || !e.options.noLocal() {
			dst = append(dst, x.match(e))
		}
	}
	return dst
}

// appendMissing appends the members that are not in dst[start:] and merges the
// others.
func (x *Index) appendMissing(dst []Match, start int, s set, from Member) []Match {
	for _, p := range x.lists.parts(s, &x.space) {
		if highest := int(p[len(p)-1].member); highest >= len(x.place) {
			x.place = append(x.place, make([]uint32, highest+1-len(x.place))...)
		}
		dst = x.mergePart(dst, start, p, from)
	}
	return dst
}

// mergePart does what appendMissing does with a part. The place of a member is a
// hint that may be left over from an earlier call; only the member found there
// proves it.
func (x *Index) mergePart(dst []Match, start int, part []entry, from Member) []Match {
	for _, e := range part {
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
