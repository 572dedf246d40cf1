package inbox

// The numbers of the two nodes that are not children of another.
const (
	root = 0 // stands before the first level
	none = 0 // the root is nobody's child
)

// node is one level of the filters that begin with the levels above it, in 36
// bytes. A filter that ends with "#" has no node for it: its members are in the
// deep set of the parent level, which it matches as well.
type node struct {
	parent   uint32
	plus     uint32 // the child "+", or none
	children uint32 // how many others there are
	level    span   // the text of the level, in tree.text
	exact    set    // members of the filter that ends here
	deep     set    // members of the same filter with "/#" after it
}

func (n *node) bare() bool {
	return n.children == 0 && n.plus == none && n.exact.empty() && n.deep.empty()
}

// chunk is how many nodes are allocated at once. Nodes never move, so that
// growing does not copy them all while publishers wait.
const chunk = 1024

// tree holds the levels of all filters. Nodes are found by parent and level in
// one table rather than in a map for each: that is most of what a subscription
// costs less here than in a tree of maps.
type tree struct {
	chunks []*[chunk]node
	used   uint32 // numbers given so far, free ones too
	free   uint32 // the first node to use again, or none; parent links the next
	table  table
	text   text
}

func newTree() tree {
	t := tree{table: newTable()}
	t.take() // the root
	return t
}

func (t *tree) at(n uint32) *node { return &t.chunks[n/chunk][n%chunk] }

// set returns the set of the filter that ends at n, or of the one that has "/#" after it.
func (t *tree) set(n uint32, deep bool) *set {
	if deep {
		return &t.at(n).deep
	}
	return &t.at(n).exact
}

// child returns the child of n for one level of a filter, or none.
func (t *tree) child(n uint32, level string) uint32 {
	if level == "+" {
		return t.at(n).plus
	}
	return t.find(n, level, t.hash(level))
}

func (t *tree) hash(level string) uint64 { return t.table.hash(level) }

// find returns the child of n that has the same level as a topic, whose hash is
// given, or none.
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
		if c := t.at(s.node); c.parent == n && string(t.text.get(c.level)) == level {
			return s.node
		}
	}
}

// grow returns the child of n for one level of a filter and makes it if there
// is none.
func (t *tree) grow(n uint32, level string) uint32 {
	if c := t.child(n, level); c != none {
		return c
	}
	c := t.take()
	child, parent := t.at(c), t.at(n)
	child.parent = n
	if level == "+" {
		parent.plus = c
		return c
	}
	child.level = t.text.add(level)
	parent.children++
	t.table.insert(slot{mix(n, t.hash(level)), c})
	return c
}

// prune gives up n and the nodes above it that lead to no member any more.
func (t *tree) prune(n uint32) {
	for n != root && t.at(n).bare() {
		gone := t.at(n)
		above := gone.parent
		if parent := t.at(above); parent.plus == n {
			parent.plus = none
		} else {
			t.table.remove(slot{mix(above, t.hash(string(t.text.get(gone.level)))), n})
			t.text.dead += gone.level.len()
			parent.children--
		}
		*gone = node{parent: t.free}
		t.free = n
		n = above
	}
	if t.text.wasteful() {
		t.pack()
	}
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

// pack copies the text that is in use. Free nodes and "+" have none.
func (t *tree) pack() {
	packed := text{bytes: make([]byte, 0, len(t.text.bytes)-t.text.dead)}
	for n := range t.used {
		if l := t.at(n).level; l.len() > 0 {
			t.at(n).level = packed.add(string(t.text.get(l)))
		}
	}
	t.text = packed
}
