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

// part is how many members are in one piece of memory at most: what is moved to
// make room for one more stays small, however many members a filter has.
const part = 512

// lists are the members of the filters that have at least two, ascending: up to
// a part in one slice, more in several.
type lists struct {
	all   [][]entry            // by number; 0 is not used, and nil stands for one in large
	large map[uint32][][]entry // by number; no part is empty, and two next to each other have more than half of one
	free  []uint32             // numbers to use again
}

// space holds what is read from a set without a list of its own.
type space struct {
	entry [1]entry
	parts [1][]entry
}

// parts returns the members of a set, in parts that are not empty. They are
// valid until the set changes, or the space is used again.
func (l *lists) parts(s set, in *space) [][]entry {
	switch {
	case s.empty():
		return nil
	case s.single():
		in.entry[0] = entry(s)
		in.parts[0] = in.entry[:]
		return in.parts[:]
	}
	if list := l.all[s.options]; list != nil {
		in.parts[0] = list
		return in.parts[:]
	}
	return l.large[uint32(s.options)]
}

// len returns how many members a set has.
func (l *lists) len(s set) (n int) {
	switch {
	case s.empty():
		return 0
	case s.single():
		return 1
	}
	if list := l.all[s.options]; list != nil {
		return len(list)
	}
	for _, p := range l.large[uint32(s.options)] {
		n += len(p)
	}
	return n
}

// of returns the options of a member, and whether it is in the set.
func (l *lists) of(s set, m Member) (options, bool) {
	if s.empty() || s.single() {
		return s.options, s.single() && s.member == m
	}
	list := l.all[s.options]
	if list == nil {
		parts := l.large[uint32(s.options)]
		i := partOf(parts, m)
		if i == len(parts) {
			return 0, false
		}
		list = parts[i]
	}
	i, ok := slices.BinarySearchFunc(list, m, entry.compare)
	if !ok {
		return 0, false
	}
	return list[i].options, true
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
	number := uint32(s.options)
	list := l.all[number]
	if list == nil {
		return l.putLarge(number, e)
	}
	if list, existed = putSorted(list, e); len(list) <= part {
		l.all[number] = list
		return existed
	}
	if l.large == nil {
		l.large = map[uint32][][]entry{}
	}
	l.all[number], l.large[number] = nil, halve([][]entry{list}, 0)
	return existed
}

func (l *lists) putLarge(number uint32, e entry) (existed bool) {
	parts := l.large[number]
	i := partOf(parts, e.member)
	if i == len(parts) {
		if i--; len(parts[i]) == part { // the usual case leaves full parts behind it
			l.large[number] = append(parts, []entry{e})
			return false
		}
	}
	if parts[i], existed = putSorted(parts[i], e); len(parts[i]) > part {
		l.large[number] = halve(parts, i)
	}
	return existed
}

// partOf returns the first of some parts that may have m, or could take it: the
// number of parts if m is above all.
func partOf(parts [][]entry, m Member) int {
	i, _ := slices.BinarySearchFunc(parts, m, func(p []entry, m Member) int { return p[len(p)-1].compare(m) })
	return i
}

// halve makes two parts of one. One that was appended to keeps all but the last.
func halve(parts [][]entry, i int) [][]entry {
	p := parts[i]
	middle := len(p) / 2
	if i == len(parts)-1 {
		middle = len(p) - 1
	}
	parts = slices.Insert(parts, i+1, slices.Clone(p[middle:]))
	parts[i] = slices.Clone(p[:middle])
	return parts
}

// putSorted puts e where it belongs.
func putSorted(list []entry, e entry) (_ []entry, existed bool) {
	if list[len(list)-1].member < e.member { // the usual case
		return append(list, e), false
	}
	i, existed := slices.BinarySearchFunc(list, e.member, entry.compare)
	if existed {
		list[i] = e
		return list, true
	}
	return slices.Insert(list, i, e), false
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
	number := uint32(s.options)
	list := l.all[number]
	if list == nil {
		return l.removeLarge(number, m)
	}
	if list, existed = removeSorted(list, m); len(list) == 1 {
		*s = l.end(s.options)
		return existed
	}
	l.all[number] = list
	return existed
}

func (l *lists) removeLarge(number uint32, m Member) (existed bool) {
	parts := l.large[number]
	i := partOf(parts, m)
	if i == len(parts) {
		return false
	}
	if parts[i], existed = removeSorted(parts[i], m); !existed {
		return false
	}
	switch {
	case len(parts[i]) == 0:
		parts = slices.Delete(parts, i, i+1)
	case i+1 < len(parts) && len(parts[i])+len(parts[i+1]) <= part/2:
		parts = join(parts, i)
	case i > 0 && len(parts[i-1])+len(parts[i]) <= part/2:
		parts = join(parts, i-1)
	}
	if len(parts) == 1 && len(parts[0]) <= part/2 {
		l.all[number] = parts[0]
		delete(l.large, number)
		return true
	}
	l.large[number] = parts
	return true
}

// join makes one part of two.
func join(parts [][]entry, i int) [][]entry {
	parts[i] = append(parts[i], parts[i+1]...)
	return slices.Delete(parts, i+1, i+2)
}

func removeSorted(list []entry, m Member) (_ []entry, existed bool) {
	i, existed := slices.BinarySearchFunc(list, m, entry.compare)
	if !existed {
		return list, false
	}
	list = slices.Delete(list, i, i+1)
	if len(list) < cap(list)/4 {
		list = slices.Clone(list)
	}
	return list, true
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
