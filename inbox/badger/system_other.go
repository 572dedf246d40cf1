//go:build !unix

package badger

import (
	"errors"
	"os"
)

// The store needs to know the free space of the disk and to lock its directory.
// Elsewhere it refuses to open rather than to run without.
var errSystem = errors.New("this operating system is not supported: run on Linux, macOS or a BSD")

func freeBytes(string) (int64, error) { return 0, errSystem }

func tryLock(*os.File) error { return errSystem }
