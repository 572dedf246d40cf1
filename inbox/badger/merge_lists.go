package badger

import "container/heap"

// mergedLists goes over several lists as over one, all forwards or all backwards.
// What stands at the same position in two of them is met once.
type mergedLists struct {
	heads heads
	in    []*postingList // those that have the posting that was met last
}

// head is the next posting of one list.
type head struct {
	posting
	walk *walk
}

// heads is a heap: the one that comes first is the first.
type heads struct {
	all  []head
	back bool
}

func (h *heads) Len() int { return len(h.all) }
func (h *heads) Less(i, j int) bool {
	if h.back {
		i, j = j, i
	}
	return h.all[i].position < h.all[j].position
}
func (h *heads) Swap(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *heads) Push(x any)    { h.all = append(h.all, x.(head)) }
func (h *heads) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return last
}

func mergeLists(back bool, walks ...*walk) *mergedLists {
	m := &mergedLists{heads: heads{back: back, all: make([]head, 0, len(walks))}}
	for _, w := range walks {
		if p, ok := w.next(); ok {
			m.heads.all = append(m.heads.all, head{p, w})
		}
	}
	heap.Init(&m.heads)
	return m
}

// next returns the next posting, or false at the end; in has the lists that it is in.
// Cost: a comparison for each doubling of the lists.
func (m *mergedLists) next() (posting, bool) {
	m.in = m.in[:0]
	if len(m.heads.all) == 0 {
		return posting{}, false
	}
	p := m.heads.all[0].posting
	for len(m.heads.all) > 0 && m.heads.all[0].position == p.position {
		first := &m.heads.all[0]
		m.in = append(m.in, first.walk.list)
		if next, ok := first.walk.next(); ok {
			first.posting = next
			heap.Fix(&m.heads, 0)
		} else {
			heap.Pop(&m.heads)
		}
	}
	return p, true
}
