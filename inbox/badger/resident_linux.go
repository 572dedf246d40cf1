package badger

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"golang.org/x/sys/unix"
)

// releaseMapped takes the tables out of the process's resident memory. Badger
// maps every table whole, and compaction touches all of it, so that the process
// would seem as large as the backlog. The pages stay in the system's cache as
// long as it has room; touching one again costs a soft page fault.
//
// It costs one read of the list of mappings and one system call a table; nothing while there
// are no tables.
func (s *Store) releaseMapped() error {
	before := tableIDs(s.db)
	if len(before) == 0 {
		return nil
	}
	return s.view(func(txn *badger.Txn) error {
		// An iterator over everything holds every table. Those that were there
		// before and are there now are among them, so they stay mapped until
		// it is closed, and no other mapping can be in their place.
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		held := tableIDs(s.db)
		for id := range held {
			if !before[id] {
				delete(held, id)
			}
		}
		return adviseTables(s.dir, held)
	})
}

func tableIDs(db *badger.DB) map[uint64]bool {
	ids := map[uint64]bool{}
	for _, t := range db.Tables() {
		ids[t.ID] = true
	}
	return ids
}

// adviseTables drops the pages of mapped tables. A line of the list of mappings
// is: from-to permissions offset device inode path.
func adviseTables(dir string, tables map[uint64]bool) error {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("read mappings: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 || filepath.Dir(fields[5]) != dir {
			continue
		}
		id, ok := table.ParseFileID(fields[5])
		if !ok || !tables[id] {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return fmt.Errorf("read mappings: %q: %w", fields[0], err)
		}
		// For a shared mapping of a file this drops no data.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 && !errors.Is(errno, unix.EINVAL) {
			return fmt.Errorf("release table %d: %w", id, errno)
		}
	}
	return lines.Err()
}
