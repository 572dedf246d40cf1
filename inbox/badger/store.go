package badger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Store is an [inbox.Store] in a Badger database. Create it with [Open].
type Store struct {
	db   *badger.DB
	dir  string   // absolute
	lock *os.File // of the data directory
	id   uint32   // in every message id
	log  *slog.Logger

	retention time.Duration // negative for ever
	rewind    time.Duration // 0 for not at all
	keepQoS0  bool

	queue   *queue
	fanout  *fanout
	sweeper *sweeper
	indexer *indexer
	sizes   indexSizes
	blocks  *streamBlocks
	turns   *turns // of acknowledging

	visible        atomic.Uint64   // a reader that begins now finds everything that will ever be at this position or before
	keepFrom       atomic.Uint64   // see keptBehind
	background     context.Context // of the sweeper's operations, and the indexer's
	stopBackground context.CancelFunc
	closing        chan struct{} // closed when Close begins
	committed      chan struct{} // closed when the committer has ended
	reading        sync.RWMutex  // held by readers of the database, so that Close waits for them
	closeOnce      sync.Once
	closeErr       error

	deletions deletions

	isFull   atomic.Bool // the disk reserve is reached, as the committer last saw it
	failOnce sync.Once
	failed   chan struct{}
	failure  error // set before failed is closed

	stats struct{ commits, appended, pages, expired, damaged atomic.Int64 }

	afterCommit func() // see Options.committed

	// Owned by the committer.
	sessions       *sessions
	index          *inbox.Index
	streams        *streams
	histories      histories // but all of it, once the store is open
	leavings       map[inbox.Member][]leaving
	lookouts       lookouts
	recounts       map[uint64]struct{} // bodies with a new reference since the sweeper began to count; nil while it does not
	wentBack       int                 // how often a session has gone back to what it had finished
	stamps         []stamp             // ascending
	recents        *recents
	indexes        map[incarnation]*indexing // of those inboxes and streams that have one
	sequence       inbox.Position            // given last
	sequenceEnd    inbox.Position            // taken from the store up to here
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
	o = o.withDefaults()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("find data directory: %w", err)
	}
	named, err := newHistories(o.History)
	if err != nil {
		return nil, err
	}
	db, lock, err := openDB(o)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
	}
	s := &Store{
		db: db, dir: dir, lock: lock, log: o.Log, retention: o.Retention, rewind: o.Rewind, keepQoS0: o.KeepQoS0,
		queue: newQueue(), fanout: newFanout(), blocks: newStreamBlocks(), turns: newTurns(),
		streams: newStreams(o), histories: named, leavings: map[inbox.Member][]leaving{}, indexes: map[incarnation]*indexing{}, recents: newRecents(), sizes: o.sizes, afterCommit: o.committed,
		closing: make(chan struct{}), committed: make(chan struct{}), failed: make(chan struct{}),
		sessions: newSessions(), index: inbox.NewIndex(),
		disk: &diskGuard{dir: o.Dir, reserve: max(o.Reserve, 0), log: o.Log},
	}
	s.background, s.stopBackground = context.WithCancel(context.Background())
	s.sweeper, s.indexer = newSweeper(s), newIndexer(s)
	left, err := s.load()
	if err != nil {
		s.stopBackground()
		return nil, errors.Join(fmt.Errorf("open store in %s: %w", o.Dir, err), db.Close(), lock.Close())
	}
	go s.commitLoop()
	go s.fanout.loop()
	err = s.settle(left)
	go s.sweeper.loop(o.sweepEvery) // reads histories, which stay as they are from now on
	go s.indexer.loop()             // likewise
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
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

// ID implements [inbox.Store].
func (s *Store) ID() uint32 { return s.id }

// Close implements [inbox.Store]: the reverse of Open.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.queue.close()
		<-s.committed // everything handed over is durable and answered
		s.fanout.close()
		close(s.closing)
		s.stopBackground()
		<-s.sweeper.done
		<-s.indexer.done
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
		s.failure = fmt.Errorf("store failed, restart needed: %w: %w", inbox.ErrClosed, err)
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
