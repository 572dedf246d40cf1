package badger

import (
	"sync"
)

// recentPart is a part of what came in lately. Entries are added to it under recent.mu;
// readers sort those that they find there into lists, once for all of them.
type recentPart struct {
	arrivals
	closed  bool // a block of its entries is finished, so that expiresAt is known
	counted int  // what it takes in memory, as far as it is counted in recents
	kinds   listKinds

	mu     sync.Mutex
	sorted int // so many of the entries are in lists
	lists  map[listID]*recentList
	byPair [][]*recentList // by the number of the pair
	clock  messageClock    // of those that are in lists
	oldest int64           // likewise, the time of the oldest, Unix ms
}

// partBytes is what a part is estimated to take in memory beside its entries and pairs.
const partBytes = 512

// recentList is one list of the part. To read it costs little, whatever its length:
// what has been read once is kept as records.
type recentList struct {
	names   [2]string
	entries []uint32    // the numbers of its entries
	records []*postings // each of recordEntries of them; what is before them begins with the part
}

// recordEntries is how many entries a record has that is kept in memory.
const recordEntries = 512

// view returns all of a part that is frozen.
func (p *recentPart) view() *recentView {
	v := &recentView{of: p, seen: p.arrivals, n: len(p.entries)}
	v.sort()
	return v
}
