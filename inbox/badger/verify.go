package badger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// FaultKind says what follows from a fault.
type FaultKind string

// The kinds of faults.
const (
	FaultDamaged FaultKind = "damaged" // a record cannot be read, or is not what its key says
	FaultLost    FaultKind = "lost"    // what somebody is to get is gone, or will be passed over
	FaultEarly   FaultKind = "early"   // a message will be deleted while somebody still refers to it
	FaultStays   FaultKind = "stays"   // something is of no use to anybody, and nothing will delete it
)

// Fault is one thing that is wrong in a store.
type Fault struct {
	Kind FaultKind
	Key  []byte // of the record that it was found by
	Text string // what is wrong
}

func (f Fault) String() string { return fmt.Sprintf("%s: %s (key %x)", f.Kind, f.Text, f.Key) }

// Summary counts what is in a store.
type Summary struct {
	Sessions      int // of clients
	Groups        int // of shared subscriptions
	Streams       int
	Histories     int // kept filters
	Subscriptions int
	Entries       int // in all inboxes and streams
	Bodies        int // messages that several entries refer to
	Retained      int
	Bytes         int64 // of keys and values, without what Badger adds

	Faults int

	// These are not faults: a store in use sees to them in the background.
	Waiting int // blocks that can be deleted: finished, or of a session that has ended
	Expired int // entries whose message is gone, perhaps because its time was over
	Torn    int // entries whose message was never stored, as after a crash inside a commit
}

// Verify goes through a store that is not in use, and proves that nothing is gone
// that somebody refers to, and that nothing stays to which nobody does. It calls
// report with every fault.
//
// Dir, Retention, LockWait and Log count, as for [Open], and the errors are the
// same; [fs.ErrNotExist] if there is no store. The database is opened for reading
// only. After a crash it is opened as for use, which moves what is in Badger's logs
// to tables.
//
// Cost: all tables are read twice; half a million sessions take 3 s. It takes about
// 100 bytes of memory for a session, 250 for a reader of a stream, 32 for a body,
// 16 for a block, and 100 for one with messages that were stored before.
func Verify(ctx context.Context, o Options, report func(Fault)) (Summary, error) {
	o = o.withDefaults()
	v := &verifier{ctx: ctx, report: report, retention: o.Retention, now: time.Now()}
	if err := v.run(o); err != nil {
		return v.sum, fmt.Errorf("verify store in %s: %w", o.Dir, err)
	}
	return v.sum, nil
}

// run opens the database, goes through it, and closes it.
func (v *verifier) run(o Options) error {
	if _, err := os.Stat(filepath.Join(o.Dir, badger.ManifestFilename)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no store: %w", err)
	}
	lock, err := lockDir(o.Dir, o.LockWait)
	if err != nil {
		return err
	}
	db, err := openToRead(o)
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	if err = verify(db); err == nil { // else iterators would end early, in silence
		err = db.View(v.all)
	}
	return errors.Join(err, db.Close(), lock.Close())
}

// openToRead opens a database for reading only, unless a process has left logs
// behind: Badger does not read those without writing.
func openToRead(o Options) (db *badger.DB, err error) {
	logs, err := filepath.Glob(filepath.Join(o.Dir, "*.mem"))
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	if len(logs) > 0 || runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		return tryOpen(o)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, inbox.ErrDamaged)
		}
	}()
	if err := checkTables(o.Dir); err != nil {
		return nil, err
	}
	if db, err = badger.Open(settings(o).WithReadOnly(true)); err != nil {
		return nil, openError(o.Dir, err)
	}
	return db, nil
}

// verifier goes through a store kind by kind: first what owns something, then
// what is owned.
type verifier struct {
	ctx       context.Context
	txn       *badger.Txn
	report    func(Fault)
	sum       Summary
	retention time.Duration
	now       time.Time

	sequence    inbox.Position // numbers are taken up to here
	incarnation incarnation    // likewise
	owners      []owner        // ascending by incarnation
	streams     map[string]*verifiedStream
	shared      map[string]bool  // whole filters of shared subscriptions that have members
	deleted     []inbox.Position // messages, ascending
	counters    []counted        // ascending, as bodies
	bodies      []counted
	missing     map[inbox.Position]*missing // bodies that are not there, by those who refer to them
	earlier     map[blockID]earlier
	clock       clock

	stray      [9]byte   // kind and incarnation of the owner that was last found to be missing
	unreadable [256]bool // kinds of which a record could not be read, so that what depends on it is not known
}

// all goes through everything.
func (v *verifier) all(txn *badger.Txn) error {
	v.txn = txn
	v.streams, v.shared, v.missing = map[string]*verifiedStream{}, map[string]bool{}, map[inbox.Position]*missing{}
	v.earlier = map[blockID]earlier{}
	for _, step := range []func() error{
		v.meta, v.sessions, v.subscriptions, v.states, v.marks, v.retained, v.acknowledged, v.stamps, v.behind, v.counts, v.blocks,
		v.indexes, v.others,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	v.compareOwners()
	v.compareStreams()
	v.compareCounts()
	v.judgeMissing()
	v.compareNotes()
	return nil
}

// verified is one record. Its bytes are valid only until the next.
type verified struct {
	key, value []byte
	userMeta   byte
	expiresAt  uint64
}

// each calls do with the records of one kind whose keys have the length that they
// must have, or at least so if it is negative.
func (v *verifier) each(kind byte, length int, do func(verified)) error {
	it := v.txn.NewIterator(badger.IteratorOptions{Prefix: []byte{kind}})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		item := it.Item()
		r := verified{key: item.Key(), userMeta: item.UserMeta(), expiresAt: item.ExpiresAt()}
		err := item.Value(func(value []byte) error {
			r.value = value
			v.sum.Bytes += int64(len(r.key) + len(value))
			if len(r.key) != length && (length > 0 || len(r.key) < -length) {
				v.damaged(r.key, fmt.Errorf("key of %d bytes: %w", len(r.key), inbox.ErrDamaged))
				return nil
			}
			do(r)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read record %x: %w", r.key, err)
		}
	}
	return nil
}

func (v *verifier) fault(kind FaultKind, key []byte, format string, a ...any) {
	v.sum.Faults++
	v.report(Fault{kind, slices.Clone(key), fmt.Sprintf(format, a...)})
}

func (v *verifier) damaged(key []byte, err error) {
	v.unreadable[key[0]] = true
	v.fault(FaultDamaged, key, "%v", err)
}

// taken reports a number that the store will give again, to something else.
func (v *verifier) taken(key []byte, what string, p inbox.Position) {
	if p > v.sequence {
		v.fault(FaultLost, key, "%s %d is beyond the numbers that are taken, %d: what comes next is passed over", what, p, v.sequence)
	}
}

// gone reports whether a record that expires at a time, in Badger's seconds, may
// have gone while others were read.
func (v *verifier) gone(expiresAt uint64) bool {
	return expiresAt != 0 && expiresAt <= uint64(time.Now().Unix())
}
