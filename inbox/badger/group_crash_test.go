package badger_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// copySparse copies a file without writing its zeros: Badger's logs are large and
// nearly empty.
func copySparse(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buf, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	size := int64(0)
	for {
		n, err := io.ReadFull(in, buf)
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := out.WriteAt(buf[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}
