package badger

// compactWhenIdle lets Badger drop what was deleted: it does so by itself only
// while more is written. It takes two idle rounds, since the deletions have to
// be in tables first, and Badger writes a memtable out only when it is full.
func (w *sweeper) compactWhenIdle() {
	commits := w.s.stats.commits.Load()
	idle := commits == w.commits
	w.commits = commits
	switch {
	case !idle:
		w.flushed = false
	case w.flushed:
		w.flushed = false
		w.deleted = 0
		if err := w.s.db.Flatten(2); err != nil {
			w.s.log.Warn("compaction failed; disk space comes back later", "error", err)
		}
	case w.deleted >= flattenAfter && !w.s.isFull.Load(): // compaction needs room itself
		w.flushed = w.fillMemtable()
		w.commits = w.s.stats.commits.Load()
	}
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
