package inbox

import "strings"

// The numbers of the two nodes that are not children of another.
const (
	root = 0 // stands before the first level
	none = 0 // the root is nobody's child
)

// node is a run of levels of the filters that begin with the levels above it:
// as many as all of them have in common, so that a filter that shares only its
// beginning with others has one node of its own. 24 bytes. A filter that ends
// with "#" has no node for it: its members are in the deep set of the level
// before, which it matches as well.
type node struct {
	parent uint32
	inner  uint32 // number of what only few nodes have, or 0; see leafDeep
	label  span   // the levels with the slashes between them, in tree.text
	set    set    // members of the filter that ends here
}

// leafDeep stands in node.inner if nothing follows and no filter ends here, but
// the same with "/#" after it: the node's set is the deep one.
const leafDeep = ^uint32(0)

// inner is what a node has that other levels follow, or that has both sets.
type inner struct {
	plus     uint32 // the child whose first level is "+", or none
	children uint32 // how many others there are; 0 in a free one, where plus links the next
	deep     set    // members of the filter with "/#" after this node
}

// chunk is how many nodes are allocated at once. Nodes never move, so that
// growing does not copy them all while publishers wait.
const chunk = 1024

// tree holds the levels of all filters. Nodes are found by parent and first
// level in one table rather than in a map for each: that is most of what a
// subscription costs less here than in a tree of maps.
type tree struct {
	chunks []*[chunk]node
	used   uint32 // numbers given so far, free ones too
	free   uint32 // the first node to use again, or none; parent links the next
	inners inners
	table  table
	text   text
}

func newTree() tree {
	t := tree{table: newTable()}
	t.take() // the root
	return t
}

func (t *tree) at(n uint32) *node { return &t.chunks[n/chunk][n%chunk] }

// label returns the text of n itself, not a copy.
func (t *tree) label(n *node) []byte { return t.text.get(n.label) }

// isLeaf reports whether nothing follows n, and it has one set at most.
func (n *node) isLeaf() bool { return n.inner == 0 || n.inner == leafDeep }

// exact returns the set of the filter that ends at n.
func (t *tree) exact(n *node) set {
	if n.inner == leafDeep {
		return set{}
	}
	return n.set
}

// deep returns the set of the filter that has "/#" after n.
func (t *tree) deep(n *node) set {
	switch n.inner {
	case 0:
		return set{}
	case leafDeep:
		return n.set
	default:
		return t.inners.at(n.inner).deep
	}
}

// get returns the set of a filter.
func (t *tree) get(r filterRef) set {
	if r.deep() {
		return t.deep(t.at(r.node()))
	}
	return t.exact(t.at(r.node()))
}

// set returns the set of a filter to be changed, which makes room for it. It
// stays where it is until the tree changes.
func (t *tree) set(r filterRef) *set {
	n := t.at(r.node())
	switch {
	case n.isLeaf() && n.set.empty():
		n.inner = 0
		if r.deep() {
			n.inner = leafDeep
		}
		return &n.set
	case n.isLeaf() && r.deep() == (n.inner == leafDeep):
		return &n.set
	case r.deep():
		return &t.open(n).deep
	default:
		t.open(n)
		return &n.set
	}
}

// open returns what n has as an inner node, and makes it one.
func (t *tree) open(n *node) *inner {
	switch n.inner {
	case 0:
		n.inner = t.inners.take()
	case leafDeep:
		n.inner = t.inners.take()
		t.inners.at(n.inner).deep, n.set = n.set, set{}
	}
	return t.inners.at(n.inner)
}

// split takes a filter apart: the levels before "#", and whether it ends so.
// The filter "#" alone has none, which is not the same as one empty level.
func split(filter string) (path string, levels, deep bool) {
	if filter == "#" {
		return "", false, true
	}
	path, deep = strings.CutSuffix(filter, "/#")
	return path, true, deep
}

// lookUp finds a filter, and reports whether some member may have it.
func (t *tree) lookUp(filter string) (filterRef, bool) {
	rest, more, deep := split(filter)
	n := uint32(root)
	for more {
		level := firstLevel(rest)
		if n = t.child(n, level, t.hash(level)); n == none {
			return noFilter, false
		}
		label := t.label(t.at(n))
		if common(label, rest) < len(label) {
			return noFilter, false
		}
		rest, more = after(rest, len(label))
	}
	return refer(n, deep), true
}

// grow finds a filter and makes the nodes that it needs.
func (t *tree) grow(filter string) filterRef {
	rest, more, deep := split(filter)
	n := uint32(root)
	for more {
		level := firstLevel(rest)
		hash := t.hash(level)
		c := t.child(n, level, hash)
		if c == none {
			c = t.take()
			t.at(c).label = t.text.add(rest)
			t.adopt(n, c, level, hash)
			return refer(c, deep)
		}
		label := t.label(t.at(c))
		same := common(label, rest)
		if same < len(label) {
			c = t.cut(c, same, level, hash)
		}
		n = c
		rest, more = after(rest, same)
	}
	return refer(n, deep)
}

// cut divides the run of n behind some bytes and returns the new node of the
// first part. n keeps its number, its members and what follows it.
func (t *tree) cut(n uint32, at int, level string, hash uint64) uint32 {
	upper := t.take()
	u, lower := t.at(upper), t.at(n)
	parent := lower.parent
	if level == "+" {
		t.inners.at(t.at(parent).inner).plus = upper
	} else {
		t.table.replace(slot{mix(parent, hash), n}, upper)
	}
	u.parent = parent
	u.label, lower.label = lower.label.cut(at)
	t.text.dead++ // the slash between them
	level = firstLevel(string(t.label(lower)))
	t.adopt(upper, n, level, t.hash(level))
	return upper
}

// adopt makes c a child of n.
func (t *tree) adopt(n, c uint32, level string, hash uint64) {
	t.at(c).parent = n
	in := t.open(t.at(n))
	if level == "+" {
		in.plus = c
		return
	}
	in.children++
	t.table.insert(slot{mix(n, hash), c})
}

// child returns the child of n that begins with one level of a filter, whose
// hash is given, or none.
func (t *tree) child(n uint32, level string, hash uint64) uint32 {
	if level != "+" {
		return t.find(n, level, hash)
	}
	if t.at(n).isLeaf() {
		return none
	}
	return t.inners.at(t.at(n).inner).plus
}

func (t *tree) hash(level string) uint64 { return t.table.hash(level) }

// find returns the child of n that begins with the same level as a topic, whose
// hash is given, or none.
func (t *tree) find(n uint32, level string, hash uint64) uint32 {
	key := mix(n, hash)
	for i := t.table.home(key); ; i = t.table.after(i) {
		s := t.table.slots[i]
		if s.node == none {
			return none
		}
		if s.key != key {
			continue
		}
		if c := t.at(s.node); c.parent == n && begins(t.label(c), level) {
			return s.node
		}
	}
}

// prune gives up n and the nodes above it that lead to no member any more. Of a
// node that leads to one only it may leave two, until that one goes.
func (t *tree) prune(n uint32) {
	for n != root && t.isBare(n) {
		gone := t.at(n)
		above := gone.parent
		level := firstLevel(string(t.label(gone)))
		in := t.inners.at(t.at(above).inner)
		if level == "+" {
			in.plus = none
		} else {
			t.table.remove(slot{mix(above, t.hash(level)), n})
			in.children--
		}
		t.text.dead += gone.label.len()
		*gone = node{parent: t.free}
		t.free = n
		n = above
	}
	if t.text.wasteful() {
		t.pack()
	}
}

// isBare reports whether n leads to no member. A node that could be a leaf is
// made one.
func (t *tree) isBare(n uint32) bool {
	nd := t.at(n)
	if nd.isLeaf() {
		return nd.set.empty()
	}
	in := *t.inners.at(nd.inner)
	if in.plus != none || in.children > 0 || !nd.set.empty() && !in.deep.empty() {
		return false
	}
	t.inners.giveBack(nd.inner)
	nd.inner = 0
	if !in.deep.empty() {
		nd.set, nd.inner = in.deep, leafDeep
	}
	return nd.set.empty()
}

// take returns an unused node.
func (t *tree) take() uint32 {
	if n := t.free; n != none {
		t.free = t.at(n).parent
		*t.at(n) = node{}
		return n
	}
	if t.used%chunk == 0 {
		t.chunks = append(t.chunks, new([chunk]node))
	}
	t.used++
	return t.used - 1
}

// pack copies the text that is in use. Free nodes and the root have none.
func (t *tree) pack() {
	var packed text
	for n := range t.used {
		if nd := t.at(n); nd.label.len() > 0 {
			nd.label = packed.add(string(t.label(nd)))
		}
	}
	t.text = packed
}

// inners holds the inner parts of nodes, by number from 1.
type inners struct {
	chunks []*[chunk]inner
	used   uint32
	free   uint32 // the first to use again, or 0
}

func (in *inners) at(i uint32) *inner { return &in.chunks[i/chunk][i%chunk] }

func (in *inners) take() uint32 {
	if i := in.free; i != 0 {
		in.free = in.at(i).plus
		*in.at(i) = inner{}
		return i
	}
	if in.used++; in.used/chunk == uint32(len(in.chunks)) {
		in.chunks = append(in.chunks, new([chunk]inner))
	}
	return in.used
}

func (in *inners) giveBack(i uint32) {
	*in.at(i) = inner{plus: in.free}
	in.free = i
}
