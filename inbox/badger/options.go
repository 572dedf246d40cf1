package badger

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Options of a store.
type Options struct {
	Dir string // data directory; created if it does not exist

	// Reserve is how many bytes of the file system stay free: below it messages
	// are refused. 0 means 256 MiB; negative means none, for tests only.
	Reserve int64

	// Retention is how long an undelivered message is kept that does not expire
	// earlier by itself. 0 means 7 days; negative means for ever.
	Retention time.Duration

	// KeepQoS0 keeps messages of QoS 0, if they are given to Append, for
	// receivers that are away or still get what waited for them, and whose
	// subscription has QoS 1 or 2.
	KeepQoS0 bool

	// StreamFrom is how many durable sessions must be subscribed to one filter for
	// its messages to be stored once, in a stream that each of them reads from its
	// own position, rather than as a reference for each. 0 means 32; negative
	// means never.
	StreamFrom int

	// Push and Pull name filters for which it is not the number that decides:
	// those of Push have references always, those of Pull a stream from the first
	// session on. An element is a filter as clients subscribe to it, or a pattern
	// that matches such filters as if they were topics. Push has precedence.
	Push, Pull []string

	// History names the filters whose messages are kept whoever has read them, see
	// [inbox.Archive]: those of QoS 1 and 2, and with KeepQoS0 those of QoS 0 too.
	// One that is new begins empty. The history of one that was named when the store
	// was last open, and is not now, is deleted.
	History []inbox.Kept

	// Rewind is how long after it was stored what a receiver has acknowledged is kept,
	// so that it can be had again by one that starts again, see
	// [inbox.OpenOptions.From], but no longer than Retention. 0 means not at all.
	Rewind time.Duration

	// LockWait is how long Open waits for another process to let go of the
	// directory. 0 means 3 s; negative means not at all.
	LockWait time.Duration

	Log *slog.Logger // nil for slog.Default

	// What tests do more often, and what they are told.
	sweepEvery time.Duration // 0 means sweepInterval
	sizes      indexSizes    // the zero value means indexDefaults
	committed  func()        // runs on the committer after each transaction; nil for nothing
}

const (
	memTable         = 8 << 20 // Badger holds up to four; larger ones are no faster here
	defaultRetention = 7 * 24 * time.Hour
	defaultReserve   = 256 << 20 // well over ten memtables, of which Badger may fill a few at once
	defaultWait      = 3 * time.Second
	defaultStream    = 32
)

// withDefaults returns o with every zero field that has a default set to it.
func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Reserve = cmp.Or(o.Reserve, defaultReserve)
	o.Retention = cmp.Or(o.Retention, defaultRetention)
	o.StreamFrom = cmp.Or(o.StreamFrom, defaultStream)
	o.LockWait = cmp.Or(o.LockWait, defaultWait)
	o.sweepEvery = cmp.Or(o.sweepEvery, sweepInterval)
	o.sizes = cmp.Or(o.sizes, indexDefaults)
	if o.committed == nil {
		o.committed = func() {}
	}
	return o
}

// settings are what was measured to suit queues: one sync per transaction,
// values inline (a value log gives no space back), small memtables (they are
// the memory), no compression and no cache (a page is read once). Tables are as
// large as a memtable on every level: Badger builds each in a buffer of twice
// the size to be expected, keeps eight of these, and doubles those that prove
// too small.
func settings(o Options) badger.Options {
	b := badger.DefaultOptions(o.Dir).
		WithSyncWrites(true).WithDetectConflicts(false).WithMetricsEnabled(false).
		WithCompression(options.None).WithBlockCacheSize(0).WithIndexCacheSize(0).
		WithMemTableSize(memTable).WithNumMemtables(3).WithNumLevelZeroTables(3).WithNumCompactors(2).
		WithBaseTableSize(memTable).
		WithValueThreshold(1 << 20).WithValueLogFileSize(64 << 20).WithNumVersionsToKeep(1).
		WithChecksumVerificationMode(options.OnBlockRead).
		WithLogger(badgerLog{o.Log})
	b.TableSizeMultiplier = 1
	return b
}
