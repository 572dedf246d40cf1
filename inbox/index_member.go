package inbox

import (
	"slices"
	"strings"
)

// filterRef names a filter in 4 bytes: its last node, and whether "/#" comes
// after it.
type filterRef uint32

func refer(n uint32, deep bool) filterRef {
	r := filterRef(n) << 1
	if deep {
		r |= 1
	}
	return r
}

func (r filterRef) node() uint32 { return uint32(r >> 1) }
func (r filterRef) deep() bool   { return r&1 != 0 }

// filtersOf holds the filters of each member: 4 bytes for a member with one,
// as most have, and a list for those with more.
type filtersOf struct {
	one  []*[chunk]filterRef    // by member, nil where none has any; [manyFilters] if it has a list, noFilter if it has none
	many map[Member][]filterRef // of at least two
}

// References that no filter has: the root ends only the filter "#".
const (
	noFilter    filterRef = 0
	manyFilters filterRef = ^filterRef(0)
)

func (f *filtersOf) at(m Member) *filterRef { return &f.one[m/chunk][m%chunk] }

func (f *filtersOf) add(m Member, r filterRef) {
	for int(m/chunk) >= len(f.one) {
		f.one = append(f.one, nil)
	}
	if f.one[m/chunk] == nil {
		f.one[m/chunk] = new([chunk]filterRef)
	}
	switch one := f.at(m); *one {
	case noFilter:
		*one = r
	case manyFilters:
		f.many[m] = append(f.many[m], r)
	default:
		if f.many == nil {
			f.many = map[Member][]filterRef{}
		}
		f.many[m] = []filterRef{*one, r}
		*one = manyFilters
	}
}

// remove takes r out, which is there.
func (f *filtersOf) remove(m Member, r filterRef) {
	one := f.at(m)
	if *one != manyFilters {
		*one = noFilter
		return
	}
	list := f.many[m]
	i := slices.Index(list, r)
	list[i] = list[len(list)-1]
	if list = list[:len(list)-1]; len(list) > 1 {
		f.many[m] = list
		return
	}
	*one = list[0]
	delete(f.many, m)
}

// of returns a copy of m's filters.
func (f *filtersOf) of(m Member) []filterRef {
	if int(m/chunk) >= len(f.one) || f.one[m/chunk] == nil {
		return nil
	}
	switch one := *f.at(m); one {
	case noFilter:
		return nil
	case manyFilters:
		return slices.Clone(f.many[m])
	default:
		return []filterRef{one}
	}
}

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

// Subscriptions returns the subscriptions of m, in no particular order, without
// their retain handling, which counts only when they are made.
func (x *Index) Subscriptions(m Member) []Subscription {
	refs := x.filters.of(m)
	subs := make([]Subscription, 0, len(refs))
	for _, r := range refs {
		if o, ok := x.lists.of(x.tree.get(r), m); ok {
			subs = append(subs, o.subscription(x.tree.filter(r)))
		}
	}
	return subs
}

// RemoveAll removes every subscription of m. Cost: as for Unsubscribe, each.
func (x *Index) RemoveAll(m Member) {
	for _, r := range x.filters.of(m) {
		x.remove(m, r)
	}
}

// filter returns the text of a filter. It allocates nothing else, unless there
// are very many levels.
func (t *tree) filter(r filterRef) string {
	var room [16][]byte
	runs, size := room[:0], 0
	if r.deep() {
		runs, size = append(runs, []byte("#")), 1
	}
	for n := r.node(); n != root; n = t.at(n).parent {
		runs = append(runs, t.label(t.at(n)))
		size += len(t.label(t.at(n))) + len("/")
	}
	var text strings.Builder
	text.Grow(size)
	for i, run := range slices.Backward(runs) {
		text.Write(run)
		if i > 0 {
			text.WriteByte('/')
		}
	}
	return text.String()
}
