package badger

import (
	"math"
)

// deadline says which entries are over: those whose own time has come, and, but for
// copies, those that are as old as the store keeps any.
type deadline struct {
	now int64 // Unix ms
	old int64 // the time of the newest message that is kept no more, Unix ms; math.MinInt64 if all are
}

// keepsAll reports whether no message is too old.
func (d deadline) keepsAll() bool { return d.old == math.MinInt64 }

// isOver reports whether an entry is over.
func (d deadline) isOver(p *posting) bool {
	return p.expiry != 0 && p.expiry <= d.now || p.time <= d.old && !p.isCopy()
}

// passed reports whether the entry number i is over.
func (d deadline) passed(r *postings, i int) bool {
	expiry := r.expiry(i)
	return expiry != 0 && expiry <= d.now || r.time(i) <= d.old && !r.copied(i)
}

// allOver reports whether all entries are over, as far as the head of the record says.
func (r *postings) allOver(d deadline) bool {
	return r.expiring == r.n && r.latest <= d.now || r.copies == 0 && r.newest <= d.old
}

// over is what those of the entries from number i to before number j come to that
// are over. Cost: nothing if the head of the record says that none is or all are,
// otherwise about 10 ns an entry.
func (r *postings) over(i, j int, d deadline) tally {
	some := r.expiring > 0 && r.earliest <= d.now || r.copies < r.n && r.oldest <= d.old
	switch {
	case i >= j || !some:
		return tally{}
	case r.allOver(d):
		return r.tally(j).minus(r.tally(i))
	}
	var t tally
	for ; i < j; i++ {
		if !d.passed(r, i) {
			continue
		}
		p := r.at(i)
		t = t.plus(p.tally())
	}
	return t
}
