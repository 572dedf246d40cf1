package badger

import "path/filepath"

// compactWhenIdle lets Badger drop what was deleted: it does so by itself only
// while more is written. It takes two idle rounds at least, since the deletions have to
// be in tables first, and Badger writes a memtable out only when it is full, and then
// beside everything else. What is written meanwhile changes nothing of that.
func (w *sweeper) compactWhenIdle() {
	commits := w.s.stats.commits.Load()
	idle := commits == w.commits
	w.commits = commits
	switch {
	case !idle:
	case w.flushing:
		if w.s.hasMemtables() {
			return
		}
		w.flushing = false
		if err := w.s.db.Flatten(2); err != nil {
			w.s.log.Warn("compaction failed; disk space comes back later", "error", err)
		}
	case w.deleted >= flattenAfter && !w.s.isFull.Load(): // compaction needs room itself
		if w.flushing = w.fillMemtable(); w.flushing {
			w.deleted = 0
		}
		w.commits = w.s.stats.commits.Load()
	}
}

// hasMemtables reports whether Badger has memtables to be written out, beside the one
// that it writes to: each has a log.
func (s *Store) hasMemtables() bool {
	logs, err := filepath.Glob(filepath.Join(s.dir, "*.mem"))
	return err == nil && len(logs) > 1
}

// fillMemtable writes as much as a memtable takes under one key, so that Badger
// writes it out. It reports whether it did.
func (w *sweeper) fillMemtable() bool {
	padding := make([]byte, 1<<20-1)
	for range memTable>>20 + 1 {
		err := w.s.do(w.s.background, "write out deletions", func(g *commitGroup) error {
			g.put(keyPadding, padding)
			return nil
		})
		if err != nil {
			return false
		}
	}
	return w.s.do(w.s.background, "write out deletions", func(g *commitGroup) error {
		g.delete(keyPadding)
		return nil
	}) == nil
}
