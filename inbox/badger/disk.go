package badger

import (
	"log/slog"
	"time"
)

// diskGuard keeps a reserve free. Badger writes through a memory map: on a full
// disk the process would die with SIGBUS, so it must never come to that. While
// the reserve is reached, messages are refused; when half of it is used up, new
// sessions and subscriptions are too. Acknowledgements and deletions, which free
// space, go on. Owned by the committer.
type diskGuard struct {
	dir     string
	reserve int64 // bytes; 0 for none
	log     *slog.Logger

	checked  time.Time
	isFull   bool // less than the reserve is free
	critical bool // less than half of it is
}

// guardInterval is how old an answer may be. At full speed less than the
// reserve is written within it, by orders of magnitude.
const guardInterval = 20 * time.Millisecond

// check reports whether the reserve is reached, and whether half of it is used
// up. It costs one system call each guardInterval.
func (d *diskGuard) check(now time.Time) (full, critical bool) {
	if d.reserve == 0 || now.Sub(d.checked) < guardInterval {
		return d.isFull, d.critical
	}
	d.checked = now
	free, err := freeBytes(d.dir)
	if err != nil {
		d.log.Error("cannot tell free disk space; messages are refused until it can be told", "error", err)
		d.isFull, d.critical = true, true
		return true, true
	}
	was := d.isFull
	d.isFull, d.critical = free < d.reserve, free < d.reserve/2
	if d.isFull && !was {
		d.log.Error("disk reserve reached: messages are refused until space is freed",
			"dir", d.dir, "free_bytes", free, "reserve_bytes", d.reserve)
	}
	if !d.isFull && was {
		d.log.Info("disk has space again: messages are taken", "dir", d.dir, "free_bytes", free)
	}
	return d.isFull, d.critical
}
