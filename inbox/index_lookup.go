package inbox

// Subscription returns the subscription of m with exactly this filter, without
// its retain handling, and whether there is one. Cost: as for Unsubscribe.
func (x *Index) Subscription(m Member, filter string) (Subscription, bool) {
	r, ok := x.tree.lookUp(filter)
	if !ok {
		return Subscription{}, false
	}
	o, ok := x.lists.of(x.tree.get(r), m)
	return o.subscription(filter), ok
}
