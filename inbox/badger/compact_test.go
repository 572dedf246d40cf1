package badger

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Deletions are compacted once they are in tables, and written out once, however much
// is published between the rounds in which that is looked at.
func TestDeletionsAreCompactedOnce(t *testing.T) {
	o := everythingOptions(t.TempDir())
	o.sweepEvery = time.Hour
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enter(t, s, "a", nil, sub("#", 1))
	round := func() (commits int64) {
		before := s.Stats().Commits
		s.sweeper.compactWhenIdle()
		return s.Stats().Commits - before
	}
	store(t, s, "t")
	s.sweeper.deleted = flattenAfter
	if n := round(); n != 0 {
		t.Errorf("%d commits in a round that was not idle", n)
	}
	if n := round(); n < memTable>>20 {
		t.Errorf("%d commits to write out the deletions", n)
	}
	waits := filepath.Join(o.Dir, "99999.mem") // as of a memtable that is not written out yet
	if err := os.WriteFile(waits, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		store(t, s, "t")
		if n := round() + round(); n != 0 {
			t.Errorf("%d commits after the deletions were written out", n)
		}
		if !s.sweeper.flushing {
			t.Error("compacted while there is something to be written out")
		}
	}
	if err := os.Remove(waits); err != nil {
		t.Fatal(err)
	}
	for s.sweeper.flushing {
		if n := round(); n != 0 {
			t.Errorf("%d commits while the deletions are on their way", n)
		}
	}
	if s.hasMemtables() {
		t.Error("compacted before Badger had written out the deletions")
	}
	if n := round() + round(); n != 0 {
		t.Errorf("%d commits when nothing was deleted", n)
	}
}
