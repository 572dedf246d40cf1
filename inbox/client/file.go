package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// What files and directories of this package are made with: they hold messages.
const (
	fileMode = 0o600
	dirMode  = 0o700
)

// writeFile makes a file that is there as a whole or not at all, and is on stable
// storage when this returns. It writes a temporary file beside it first, whose name is
// path and temporary; one that a crash has left is written over.
func writeFile(path string, data []byte) error {
	temporary := path + temporaryEnd
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write a file: %w", err), os.Remove(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(fmt.Errorf("put a file in place: %w", err), os.Remove(temporary))
	}
	return syncDir(filepath.Dir(path))
}

// How names of files end that are not complete, and of those that were set aside.
const (
	temporaryEnd = ".new"
	damagedEnd   = ".damaged"
)

// syncDir has the names of files in a directory on stable storage. Windows has no
// such call: there the file system's own journal must do.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	return nil
}

// setAside renames a file that cannot be read, so that it is met once and kept for
// who wants to look at it; one of that name that was set aside before is gone. It
// returns the new name.
func setAside(path string) (string, error) {
	aside := path + damagedEnd
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set a file aside: %w", err)
	}
	return aside, nil
}
