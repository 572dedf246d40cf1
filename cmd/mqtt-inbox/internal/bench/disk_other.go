//go:build !linux

package bench

import "os"

// syncData makes what was written durable.
func syncData(f *os.File) error { return f.Sync() }

// InMemory reports whether a directory is on a file system in memory, as far
// as that is known.
func InMemory(string) bool { return false }

// allocated reports false: what files occupy is not known here.
func allocated(string) (int64, bool) { return 0, false }
