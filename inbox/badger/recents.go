package badger

import (
	"sync/atomic"
)

// recents is what came lately into all inboxes. It is bounded.
type recents struct {
	bytes  atomic.Int64         // as estimated
	filled map[*recent]struct{} // those that may have something; the committer's
	most   int64
}

// recentBytes bounds what came in lately, as estimated.
const recentBytes = 24 << 20

func newRecents() *recents { return &recents{filled: map[*recent]struct{}{}, most: recentBytes} }

// isMuch reports whether it is time to sort also those inboxes into which less came.
func (all *recents) isMuch() bool { return all.bytes.Load() > all.most/2 }

// shrink has some inboxes forget what they have if it is too much in all. Runs on the
// committer.
func (all *recents) shrink() {
	if all.bytes.Load() <= all.most {
		return
	}
	for r := range all.filled {
		all.remove(r)
		if all.bytes.Load() <= all.most/4*3 {
			return
		}
	}
}

// remove forgets what came into an inbox that has no such index any more. Runs on the
// committer.
func (all *recents) remove(r *recent) {
	r.forget()
	delete(all.filled, r)
}
