package inbox

import "slices"

// Subscription returns the subscription of m with exactly this filter, without
// its retain handling, and whether there is one. Cost: as for Unsubscribe.
func (x *Index) Subscription(m Member, filter string) (Subscription, bool) {
	r, ok := x.lookUp(filter)
	if !ok {
		return Subscription{}, false
	}
	s := *x.tree.set(r.node(), r.deep())
	if s.empty() {
		return Subscription{}, false
	}
	entries := x.lists.entries(s)
	i, ok := slices.BinarySearchFunc(entries, m, entry.compare)
	if !ok {
		return Subscription{}, false
	}
	return entries[i].options.subscription(filter), true
}
