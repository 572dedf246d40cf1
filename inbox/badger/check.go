package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// openDB prepares the directory, locks it, checks what Badger would take badly,
// and opens the database. The lock is ours, because the checks look at files,
// and remove some, before Badger takes its own.
func openDB(o Options) (*badger.DB, *os.File, error) {
	if o.Dir == "" {
		return nil, nil, errors.New("no data directory given")
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("create data directory: %w", err)
	}
	if err := writable(o.Dir); err != nil {
		return nil, nil, err
	}
	lock, err := lockDir(o.Dir, o.LockWait)
	if err != nil {
		return nil, nil, err
	}
	db, err := tryOpen(o)
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return db, lock, nil
}

// lockDir takes the lock of a data directory, waiting for a process that is
// still shutting down. It ends with its holder, however that ends.
func lockDir(dir string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "mqtt-inbox.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for deadline := time.Now().Add(wait); ; {
		if err = tryLock(f); err == nil {
			return f, nil
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(50 * time.Millisecond) // a lock tells nobody when it is free
	}
	return nil, errors.Join(fmt.Errorf("%w: stop it, or choose another directory: %w", inbox.ErrInUse, err), f.Close())
}

// tryOpen opens the database once. Badger panics on some damage.
func tryOpen(o Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, inbox.ErrDamaged)
		}
	}()
	if err := checkTables(o.Dir); err != nil {
		return nil, err
	}
	if err := removeEmptyLogs(o.Dir); err != nil {
		return nil, err
	}
	if err := hasRoom(o); err != nil {
		return nil, err
	}
	db, err = badger.Open(settings(o))
	if err != nil {
		return nil, openError(o.Dir, err)
	}
	if size, _ := db.Size(); size <= verifyAtOpen {
		if err := verify(db); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

// openRoom is what must be free to open at all: Badger sizes a new log at once,
// and writes what the last process left into a table.
const openRoom = 4 * memTable

// hasRoom refuses to open where the process would die at the first write.
func hasRoom(o Options) error {
	if o.Reserve < 0 {
		return nil
	}
	free, err := freeBytes(o.Dir)
	if err != nil {
		return err
	}
	if free < openRoom {
		return fmt.Errorf("%w: %d MiB are free in %s, and %d are needed to start: free some", inbox.ErrFull, free>>20, o.Dir, openRoom>>20)
	}
	return nil
}

// verifyAtOpen is up to which size tables are verified before the store opens,
// at about 1 GiB a second. Larger stores are verified while they are used.
const verifyAtOpen = 2 << 30

// verify reads every table and compares its checksums. Badger's iterators end at
// a damaged part as if nothing came after it, so what is not found here would be
// passed over in silence. Badger panics on what it finds.
func verify(db *badger.DB) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: a table has a wrong checksum: restore a backup", inbox.ErrDamaged)
		}
	}()
	if err := db.VerifyChecksum(); err != nil {
		return fmt.Errorf("%w: a table has a wrong checksum: restore a backup; Badger says: %w", inbox.ErrDamaged, err)
	}
	return nil
}

// openError says what to do.
func openError(dir string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("give this user the right to write to %s: %w", dir, err)
	default:
		return fmt.Errorf("%w: restore a backup or move the directory away; Badger says: %w", inbox.ErrDamaged, err)
	}
}

// writable reports in plain words what would otherwise fail somewhere inside.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".write-*")
	if err != nil {
		return fmt.Errorf("data directory is not writable: %w", err)
	}
	name := f.Name()
	return errors.Join(f.Close(), os.Remove(name))
}

// removeEmptyLogs removes log files without content. A crash leaves one when it
// falls between creating and sizing it, or between emptying and removing it;
// they hold nothing, and Badger refuses to open with them.
func removeEmptyLogs(dir string) error {
	for _, pattern := range []string{"*.mem", "*.vlog"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return fmt.Errorf("list logs: %w", err)
		}
		for _, name := range names {
			st, err := os.Stat(name)
			if err == nil && st.Size() == 0 {
				err = os.Remove(name)
			}
			if err != nil {
				return fmt.Errorf("remove empty log: %w", err)
			}
		}
	}
	return nil
}

// checkTables refuses what Badger answers with a panic in another goroutine, or
// by deleting data: tables without their list, and tables that were cut.
func checkTables(dir string) error {
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	listed, err := checkManifest(dir, tables)
	if err != nil {
		return err
	}
	for id := range listed { // others are leftovers of a crash, perhaps empty, which Badger removes
		if err := checkTable(table.NewFilename(id, dir)); err != nil {
			return err
		}
	}
	return nil
}

// checkManifest refuses a list of tables that is missing or cut while there are
// tables that it does not name: Badger would take them for leftovers of a crash
// and delete them.
func checkManifest(dir string, tables []string) (map[uint64]badger.TableManifest, error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) && len(tables) == 0 {
		return nil, nil // a new directory
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there are %d tables but no MANIFEST that lists them; opening would delete them: restore MANIFEST or a backup",
			inbox.ErrDamaged, len(tables))
	}
	if err != nil {
		return nil, fmt.Errorf("open list of tables: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at list of tables: %w", err)
	}
	manifest, whole, err := badger.ReplayManifestFile(f, 0, badger.Options{})
	if err != nil {
		return nil, fmt.Errorf("%w: MANIFEST cannot be read: restore it or a backup; Badger says: %w", inbox.ErrDamaged, err)
	}
	for id := range manifest.Tables {
		name := table.NewFilename(id, dir)
		if _, err := os.Stat(name); err != nil {
			return nil, fmt.Errorf("%w: table %s is missing: restore it or a backup: %w", inbox.ErrDamaged, name, err)
		}
	}
	if whole == st.Size() {
		return manifest.Tables, nil
	}
	for _, t := range tables {
		id, ok := table.ParseFileID(t)
		if _, listed := manifest.Tables[id]; ok && !listed {
			return nil, fmt.Errorf("%w: MANIFEST is cut and does not list table %s; opening would delete it: restore MANIFEST or a backup",
				inbox.ErrDamaged, t)
		}
	}
	return manifest.Tables, nil
}

// checkTable looks at the end of a table: ... index, its length, checksum, its
// length. In a table that was cut these lengths are arbitrary bytes.
func checkTable(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open table: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at table: %w", err)
	}
	cut := fmt.Errorf("%w: table %s is cut (%d bytes): restore a backup", inbox.ErrDamaged, name, st.Size())
	rest := st.Size()
	for range 2 {
		var b [4]byte
		if rest < int64(len(b)) {
			return cut
		}
		if _, err := f.ReadAt(b[:], rest-int64(len(b))); err != nil {
			return fmt.Errorf("read table: %w", err)
		}
		n := int64(binary.BigEndian.Uint32(b[:]))
		rest -= int64(len(b)) + n
		if n == 0 || rest < 0 {
			return cut
		}
	}
	return nil
}

// translate turns Badger's errors into the contract's.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, badger.ErrDBClosed), errors.Is(err, badger.ErrBlockedWrites):
		return fmt.Errorf("%w: %w", inbox.ErrClosed, err)
	default:
		return err
	}
}

// badgerLog passes Badger's log on. Its news is our debugging.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(f string, a ...any)   { l.log.Error("badger", "message", line(f, a)) }
func (l badgerLog) Warningf(f string, a ...any) { l.log.Warn("badger", "message", line(f, a)) }
func (l badgerLog) Infof(f string, a ...any)    { l.log.Debug("badger", "message", line(f, a)) }
func (l badgerLog) Debugf(string, ...any)       {}

func line(f string, a []any) string { return strings.TrimSpace(fmt.Sprintf(f, a...)) }
