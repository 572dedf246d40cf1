package bench

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// syncData makes what was written durable, without what is not needed to read it.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// InMemory reports whether a directory is on a file system in memory, where
// syncing costs nothing and figures mean little.
func InMemory(dir string) bool {
	const tmpfs = 0x01021994
	var fs syscall.Statfs_t
	return syscall.Statfs(dir, &fs) == nil && fs.Type == tmpfs
}

// allocated returns how many bytes of the disk the files below a directory
// occupy. Holes do not count: a database makes files larger than what it has
// written to them.
func allocated(dir string) (bytes int64, ok bool) {
	const block = 512 // the unit of st_blocks, whatever the file system
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += stat.Blocks * block
		}
		return nil
	})
	return bytes, err == nil
}
