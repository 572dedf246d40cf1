package inbox

import (
	"cmp"
	"slices"
)

// options are those of a subscription that count for matching, in 32 bits:
//
//	31         4  3         2   1 0
//	identifier    retain as  no  QoS
//	              published  local
type options uint32

func packOptions(s Subscription) options {
	o := options(s.Identifier)<<4 | options(s.QoS&3)
	if s.NoLocal {
		o |= 1 << 2
	}
	if s.RetainAsPublished {
		o |= 1 << 3
	}
	return o
}

func (o options) qos() byte               { return byte(o & 3) }
func (o options) noLocal() bool           { return o&(1<<2) != 0 }
func (o options) retainAsPublished() bool { return o&(1<<3) != 0 }
func (o options) identifier() uint32      { return uint32(o >> 4) } // 28 bits, as in MQTT

// subscription returns the subscription that has these options, without its
// retain handling, which counts only when it is made.
func (o options) subscription(filter string) Subscription {
	return Subscription{
		Filter:            filter,
		QoS:               o.qos(),
		NoLocal:           o.noLocal(),
		RetainAsPublished: o.retainAsPublished(),
		Identifier:        o.identifier(),
	}
}

// entry is one member of a filter.
type entry struct {
	member  Member
	options options
}

func (e entry) compare(m Member) int { return cmp.Compare(e.member, m) }

// set is the members of one filter, in 8 bytes: the zero set is empty, one
// member is in the set itself, and for more the set has no member and the
// number of a list in place of the options.
type set entry

func (s set) empty() bool { return s == set{} }

func (s set) single() bool { return s.member != 0 }

// lists are the members of the filters that have at least two, ascending.
type lists struct {
	all  [][]entry // by number; 0 is not used
	free []uint32  // numbers to use again
	one  [1]entry  // working space of entries
}

// entries returns the members of a set that is not empty, valid until the next
// call of any method.
func (l *lists) entries(s set) []entry {
	if s.single() {
		l.one[0] = entry(s)
		return l.one[:]
	}
	return l.all[s.options]
}

// put adds e to the set, or replaces the entry of the same member and reports
// that there was one.
func (l *lists) put(s *set, e entry) (existed bool) {
	switch {
	case s.empty(), s.member == e.member:
		existed = !s.empty()
		*s = set(e)
		return existed
	case s.single():
		*s = l.start(entry(*s))
	}
	list := &l.all[s.options]
	if (*list)[len(*list)-1].member < e.member { // the usual case
		*list = append(*list, e)
		return false
	}
	i, existed := slices.BinarySearchFunc(*list, e.member, entry.compare)
	if existed {
		(*list)[i] = e
	} else {
		*list = slices.Insert(*list, i, e)
	}
	return existed
}

// remove takes m out of the set and reports whether it was in it.
func (l *lists) remove(s *set, m Member) (existed bool) {
	if s.empty() {
		return false
	}
	if s.single() {
		if existed = s.member == m; existed {
			*s = set{}
		}
		return existed
	}
	list := &l.all[s.options]
	i, existed := slices.BinarySearchFunc(*list, m, entry.compare)
	if !existed {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	switch {
	case len(*list) == 1:
		*s = l.end(s.options)
	case len(*list) < cap(*list)/4:
		*list = slices.Clone(*list)
	}
	return true
}

// start makes a list that begins with e and returns its set.
func (l *lists) start(e entry) set {
	if len(l.all) == 0 {
		l.all = append(l.all, nil)
	}
	if n := len(l.free); n > 0 {
		number := l.free[n-1]
		l.free = l.free[:n-1]
		l.all[number] = []entry{e}
		return set{options: options(number)}
	}
	l.all = append(l.all, []entry{e})
	return set{options: options(len(l.all) - 1)}
}

// end gives up the list with this number and returns the set of its last entry.
func (l *lists) end(number options) set {
	last := l.all[number][0]
	l.all[number] = nil
	l.free = append(l.free, uint32(number))
	return set(last)
}
