package client

import (
	"errors"
	"fmt"
	"os"
)

// lock is held by the one process that uses files. It ends with the process, however
// that ends.
type lock struct{ file *os.File }

// takeLock takes the lock that a file stands for, and makes the file if there is none.
// Error: ErrInUse.
func takeLock(path string) (lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return lock{}, fmt.Errorf("open the lock: %w", err)
	}
	if err := lockFile(f); err != nil {
		return lock{}, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return lock{f}, nil
}

func (l lock) release() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("release the lock: %w", err)
	}
	return nil
}
