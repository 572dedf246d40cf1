package bench

import (
	"os"
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
