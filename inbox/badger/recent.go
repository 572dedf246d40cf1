package badger

import (
	"slices"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// recent is what came into an indexed inbox lately, in memory: so nobody has to look
// for it in the blocks, neither who reads nor who sorts it into lists. The committer
// adds each entry while its group is built. What is there is all that came since its
// first entry; it may be forgotten at any time, and then is to be found in the blocks.
type recent struct {
	all *recents

	mu     sync.Mutex
	kinds  listKinds
	frozen *recentPart // nil, or what is to be sorted; nothing is added to it
	live   *recentPart // nil, or what is added to
}

func newRecent(all *recents, kinds listKinds) *recent { return &recent{all: all, kinds: kinds} }

// add adds a message that was stored just now, at its own place.
func (r *recent) add(e *inbox.Envelope) {
	r.mu.Lock()
	if r.live == nil {
		r.live = &recentPart{kinds: r.kinds}
		r.live.size = partBytes
		if r.frozen != nil { // there may be as much again
			n := len(r.frozen.entries) * 9 / 8
			r.live.entries, r.live.of = make([]posting, 0, n), make([]uint32, 0, n)
		}
		r.all.filled[r] = struct{}{}
	}
	r.live.add(posting{
		position: e.ID.Sequence, id: e.ID.Sequence, bytes: uint64(e.Size() - emptyEnvelope), time: e.Time, expiry: e.Expiry,
	}, e.Sender(), e.Topic, r.live.expiresAt)
	r.mu.Unlock()
}

// closed notes that the block that has the entries added last is finished, and goes at
// expiresAt. If there is much by then it is to be sorted: closed reports that.
func (r *recent) closed(expiresAt uint64, atMost int) (full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		return false
	}
	if r.live.closed {
		expiresAt = laterExpiry(r.live.expiresAt, expiresAt)
	}
	r.live.expiresAt, r.live.closed = expiresAt, true
	r.all.bytes.Add(int64(r.live.size - r.live.counted))
	r.live.counted = r.live.size
	if r.frozen != nil || len(r.live.entries) < atMost && r.live.size < sortBytes {
		return false
	}
	r.frozen, r.live = r.live, nil
	return true
}

// forget lets go of everything.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.partsLocked() {
		r.all.bytes.Add(-int64(p.counted))
	}
	r.frozen, r.live = nil, nil
}

// partsLocked returns the parts that there are, the older one first.
func (r *recent) partsLocked() (all []*recentPart) {
	for _, p := range []*recentPart{r.frozen, r.live} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// release lets go of what has been sorted.
func (r *recent) release(p *recentPart) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p != nil && r.frozen == p {
		r.all.bytes.Add(-int64(p.counted))
		r.frozen = nil
	}
}

// has reports whether there is anything of a sender.
func (r *recent) has(sender string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.partsLocked(), func(p *recentPart) bool {
		return slices.ContainsFunc(p.names, func(names [2]string) bool { return names[0] == sender })
	})
}

// toSort returns what is to be sorted, nil if nothing is, and up to where the blocks are
// to be read for what is in front of everything. What is behind upTo, which the committer
// has not written yet, has its turn later: what is in front of it may be nowhere either.
func (r *recent) toSort(upTo inbox.Position) (frozen *recentPart, from inbox.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from = upTo; r.frozen != nil && r.frozen.last() <= upTo {
		frozen = r.frozen
	}
	if all := r.partsLocked(); len(all) > 0 {
		from = min(upTo, all[0].entries[0].position-1)
	}
	return frozen, from
}

// view returns what there is up to a position, and up to where the blocks are to be read
// for what is in front of that. Cost: 30 ns for each list of each entry that nobody has
// asked for before.
func (r *recent) view(upTo inbox.Position) (all []*recentView, from inbox.Position) {
	r.mu.Lock()
	from = upTo
	for _, p := range r.partsLocked() {
		if len(all) == 0 {
			from = min(from, p.entries[0].position-1)
		}
		all = append(all, &recentView{of: p, seen: p.arrivals})
	}
	r.mu.Unlock()
	for _, v := range all {
		v.sort()
		v.n = len(v.seen.entries) - len(behind(v.seen.entries, upTo))
	}
	return all, from
}
