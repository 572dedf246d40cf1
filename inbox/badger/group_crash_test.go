package badger_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// copyRunning copies the directory of a store while it is open, and nothing is in
// flight: what a process finds there that starts after this one was killed.
func copyRunning(t *testing.T, s inbox.Store, from, to string) {
	t.Helper()
	release := gated(t, s) // the sweeper writes by the committer too
	defer release()
	for range 100 {
		err := copyDir(from, to)
		if err == nil {
			return
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the directory is never still")
}

// errMoved says that Badger has written or put together tables meanwhile.
var errMoved = errors.New("the tables have changed")

// copyDir copies the logs before the tables: what has gone from one is in the
// other.
func copyDir(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	before, err := os.ReadFile(filepath.Join(from, badgerdb.ManifestFilename))
	if err != nil {
		return err
	}
	for _, pattern := range []string{"*.mem", "*.vlog", "[A-Z]*", "*.sst"} {
		names, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		slices.Sort(names)
		for _, name := range names {
			if err := copySparse(name, filepath.Join(to, filepath.Base(name))); err != nil {
				return err
			}
		}
	}
	after, err := os.ReadFile(filepath.Join(from, badgerdb.ManifestFilename))
	if err == nil && !bytes.Equal(before, after) {
		err = errMoved
	}
	return err
}

// seekData is the whence with which a file is sought for what is not a hole, where the
// system has that.
const seekData = 3

// copySparse copies a file without reading its holes or writing its zeros: Badger's logs
// are large and nearly empty.
func copySparse(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	end, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buf, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < end; {
		data, err := in.Seek(at, seekData)
		if errors.Is(err, syscall.ENXIO) {
			break // all that follows is a hole
		}
		if err == nil {
			at = data
		}
		n, err := in.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := out.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		if at += int64(n); n == 0 {
			break // it has become shorter
		}
	}
	return out.Truncate(end)
}
