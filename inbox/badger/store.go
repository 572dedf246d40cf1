package badger

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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

	// KeepQoS0 keeps messages of QoS 0 for absent receivers whose subscription
	// has QoS 1 or 2, if they are given to Append.
	KeepQoS0 bool

	// LockWait is how long Open waits for another process to let go of the
	// directory. 0 means 3 s; negative means not at all.
	LockWait time.Duration

	Log *slog.Logger // nil for slog.Default

	sweepEvery time.Duration // tests sweep more often; 0 means sweepInterval
}

const (
	memTable         = 8 << 20 // Badger holds up to four; larger ones are no faster here
	defaultRetention = 7 * 24 * time.Hour
	defaultReserve   = 256 << 20 // well over ten memtables, of which Badger may fill a few at once
	defaultWait      = 3 * time.Second
)

// Store is an [inbox.Store] in a Badger database. Create it with [Open].
type Store struct {
	db   *badger.DB
	dir  string   // absolute
	lock *os.File // of the data directory
	id   uint32   // in every message id
	log  *slog.Logger

	retention time.Duration // negative for ever
	keepQoS0  bool

	queue   *queue
	sweeper *sweeper

	background     context.Context // of the sweeper's operations
	stopBackground context.CancelFunc
	closing        chan struct{} // closed when Close begins
	committed      chan struct{} // closed when the committer has ended
	reading        sync.RWMutex  // held by readers of the database, so that Close waits for them
	closeOnce      sync.Once
	closeErr       error

	isFull   atomic.Bool // the disk reserve is reached, as the committer last saw it
	failOnce sync.Once
	failed   chan struct{}
	failure  error // set before failed is closed

	stats struct{ commits, appended, pages, expired, damaged atomic.Int64 }

	// Owned by the committer.
	sessions       *sessions
	index          *inbox.Index
	sequence       inbox.Position // given last
	sequenceEnd    inbox.Position // taken from the store up to here
	incarnation    incarnation
	incarnationEnd incarnation
	timers         timers
	disk           *diskGuard
}

var _ inbox.Store = (*Store)(nil)

// Open opens the store in o.Dir, or creates it. Errors: [inbox.ErrInUse],
// [inbox.ErrDamaged], or what the file system says. It reads every session and
// subscription, about 1 µs each, and no message.
func Open(o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Reserve == 0 {
		o.Reserve = defaultReserve
	}
	if o.Retention == 0 {
		o.Retention = defaultRetention
	}
	if o.LockWait == 0 {
		o.LockWait = defaultWait
	}
	if o.sweepEvery == 0 {
		o.sweepEvery = sweepInterval
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("find data directory: %w", err)
	}
	db, lock, err := openDB(o)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
	}
	s := &Store{
		db: db, dir: dir, lock: lock, log: o.Log, retention: o.Retention, keepQoS0: o.KeepQoS0,
		queue:   newQueue(),
		closing: make(chan struct{}), committed: make(chan struct{}), failed: make(chan struct{}),
		sessions: newSessions(), index: inbox.NewIndex(),
		disk: &diskGuard{dir: o.Dir, reserve: max(o.Reserve, 0), log: o.Log},
	}
	s.background, s.stopBackground = context.WithCancel(context.Background())
	s.sweeper = newSweeper(s)
	left, err := s.load()
	if err != nil {
		s.stopBackground()
		return nil, errors.Join(fmt.Errorf("open store in %s: %w", o.Dir, err), db.Close(), lock.Close())
	}
	go s.commitLoop()
	go s.sweeper.loop(o.sweepEvery)
	if err := s.settle(left); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
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

// leftovers are what the last process left to be settled.
type leftovers struct {
	cut     []inbox.Member              // sessions that were connected when it ended
	stale   []inbox.Member              // sessions whose time is over
	orphans map[incarnation]*inbox.Will // of sessions that were in memory only
}

// load reads what the committer keeps in memory.
func (s *Store) load() (left leftovers, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		if err := s.loadMeta(txn); err != nil {
			return err
		}
		left, err = s.loadSessions(txn)
		return err
	})
	if err == nil && s.id == 0 {
		err = s.create()
	}
	return left, translate(err)
}

// view runs read in a read-only transaction. Badger panics when it is read
// while or after it is closed, so Close waits for readers and later ones are
// refused.
func (s *Store) view(read func(*badger.Txn) error) error {
	s.reading.RLock()
	defer s.reading.RUnlock()
	select {
	case <-s.closing:
		return inbox.ErrClosed
	default:
		return translate(s.db.View(read))
	}
}

// settle treats every session that was connected as closed without a goodbye, and
// ends those whose time is over.
func (s *Store) settle(left leftovers) error {
	if len(left.cut) == 0 && len(left.stale) == 0 && len(left.orphans) == 0 {
		return nil
	}
	return s.do(context.Background(), "settle sessions", func(g *group) error {
		for _, m := range left.cut {
			if sess := s.sessions.at(m); sess.incarnation != 0 { // a timer may have been faster
				g.putSession(sess) // its time runs from now, and not again from the next start
			}
		}
		for _, m := range left.stale {
			if s.sessions.at(m).incarnation != 0 { // may have ended with another, as a group does
				g.end(m)
			}
		}
		for inc, will := range left.orphans {
			g.putLast(willKey(inc), nil)
			g.publishOwn(will.Envelope)
		}
		return nil
	})
}

// formatVersion is the version of the whole layout.
const formatVersion = 1

// create writes the records of a new store.
func (s *Store) create() error {
	var id [4]byte
	for s.id == 0 {
		if _, err := rand.Read(id[:]); err != nil {
			return fmt.Errorf("draw the store's id: %w", err)
		}
		s.id = binary.BigEndian.Uint32(id[:])
	}
	return translate(s.db.Update(func(txn *badger.Txn) error {
		if err := txn.Set(keyFormat, []byte{formatVersion}); err != nil {
			return err
		}
		return txn.Set(keyStore, id[:])
	}))
}

func (s *Store) loadMeta(txn *badger.Txn) error {
	read := func(key []byte, size int) (uint64, error) {
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		var n uint64
		err = item.Value(func(v []byte) error {
			if len(v) != size {
				return fmt.Errorf("record %s has %d bytes, not %d: %w", key, len(v), size, inbox.ErrDamaged)
			}
			for _, c := range v {
				n = n<<8 | uint64(c)
			}
			return nil
		})
		return n, err
	}
	format, err := read(keyFormat, 1)
	if err != nil {
		return err
	}
	if format > formatVersion {
		return fmt.Errorf("written by a later version of this program (format %d, this one knows %d): use that one", format, formatVersion)
	}
	id, err := read(keyStore, 4)
	if err != nil {
		return err
	}
	sequence, err := read(keySequence, 8)
	if err != nil {
		return err
	}
	inc, err := read(keyIncarnation, 8)
	if err != nil {
		return err
	}
	s.id = uint32(id)
	s.sequence, s.sequenceEnd = inbox.Position(sequence), inbox.Position(sequence)
	s.incarnation, s.incarnationEnd = incarnation(inc), incarnation(inc)
	return nil
}

// loadSessions fills the sessions and the index.
func (s *Store) loadSessions(txn *badger.Txn) (left leftovers, err error) {
	now := time.Now()
	members := map[incarnation]inbox.Member{}
	err = each(txn, []byte{prefixSession}, func(_, v []byte) error {
		sess, err := parseSession(v)
		if err != nil {
			return err
		}
		wasConnected := sess.ended == 0
		if wasConnected {
			sess.ended = now.UnixMilli()
		}
		m := s.sessions.add(sess)
		if wasConnected {
			left.cut = append(left.cut, m)
		}
		members[sess.incarnation] = m
		return nil
	})
	if err != nil {
		return left, err
	}
	err = each(txn, []byte{prefixSubscription}, func(k, v []byte) error {
		m, ok := members[keyIncarnationOf(k)]
		if !ok {
			return nil // of a session that is being purged
		}
		sub, err := parseSubscription(v)
		if err != nil {
			return err
		}
		s.index.Subscribe(m, sub)
		return nil
	})
	if err != nil {
		return left, err
	}
	if left.orphans, err = s.loadWills(txn, members); err != nil {
		return left, err
	}
	for _, m := range members {
		sess := s.sessions.at(m)
		lonely := isGroup(sess.receiver) && s.index.Members(string(sess.receiver[1:])) == 0
		if lonely || sess.over() <= now.UnixMilli() {
			left.stale = append(left.stale, m)
		} else {
			s.watch(m)
		}
	}
	return left, each(txn, []byte{prefixPurge}, func(k, _ []byte) error {
		s.sweeper.ended = append(s.sweeper.ended, incarnation(keyNumber(k)))
		return nil
	})
}

// each calls f with every key and value of a prefix; they are valid only
// during the call.
func each(txn *badger.Txn, prefix []byte, f func(k, v []byte) error) error {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix, PrefetchValues: true, PrefetchSize: 100})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if err := item.Value(func(v []byte) error { return f(item.Key(), v) }); err != nil {
			return err
		}
	}
	return nil
}

// Close implements [inbox.Store]: the reverse of Open.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.queue.close()
		<-s.committed // everything handed over is durable and answered
		close(s.closing)
		s.stopBackground()
		<-s.sweeper.done
		s.reading.Lock() // the last reader is gone; the next one sees closing
		defer s.reading.Unlock()
		s.closeErr = errors.Join(translate(s.db.Close()), s.lock.Close())
	})
	return s.closeErr
}

// Failed is closed when a commit failed. What the store's memory then holds may
// differ from the disk, so nothing is taken any more: end the process, see to
// the cause that [Store.Err] names, and start again.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err returns why the store failed, nil while it works.
func (s *Store) Err() error {
	select {
	case <-s.failed:
		return s.failure
	default:
		return nil
	}
}

func (s *Store) fail(err error) {
	s.failOnce.Do(func() {
		s.failure = fmt.Errorf("store failed, restart needed: %w", translate(err))
		s.log.Error("store failed: nothing more is acknowledged; restart after seeing to the cause", "error", err)
		close(s.failed)
	})
}

// Stats are counts since Open.
type Stats struct {
	Commits  int64 // transactions synced
	Appended int64 // messages stored or handed over
	Pages    int64 // pages read from disk
	Expired  int64 // entries met that were past the store's retention
	Damaged  int64 // records that could not be read
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	return Stats{
		Commits:  s.stats.commits.Load(),
		Appended: s.stats.appended.Load(),
		Pages:    s.stats.pages.Load(),
		Expired:  s.stats.expired.Load(),
		Damaged:  s.stats.damaged.Load(),
	}
}
