package badger

import (
	"context"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// OpenSweeping opens a store that sweeps as often as a test wants.
func OpenSweeping(o Options, every time.Duration) (*Store, error) {
	o.sweepEvery = every
	return Open(o)
}

// OpenSorting opens a store like OpenSweeping, which indexes every inbox that is asked, and
// sorts its entries when there are a few.
func OpenSorting(o Options, every time.Duration) (*Store, error) {
	o.sizes = indexSizes{few: 1, tell: 20, sort: 100, keys: indexDefaults.keys}
	return OpenSweeping(o, every)
}

// OpenInSteps opens a store like OpenSorting, which does as little as it may in one
// transaction, and calls committed after each, on the committer.
func OpenInSteps(o Options, every time.Duration, committed func()) (*Store, error) {
	o.sizes, o.committed = indexSizes{few: 1, tell: 5, sort: 70, keys: 2}, committed
	return OpenSweeping(o, every)
}

// Patience is how long a test waits for what is done in the background. What takes so long
// on a busy machine never comes.
const Patience = 3 * time.Minute

// Eventually waits until something is so that changes with a commit, and fails the test
// with what there is if it never is.
func (s *Store) Eventually(t testing.TB, is func() bool, what func() string) {
	t.Helper()
	committed := make(chan struct{}, 1)
	err := s.do(context.Background(), "watch", func(*commitGroup) error {
		s.afterCommit = func() {
			select {
			case committed <- struct{}{}:
			default:
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	over := time.NewTimer(Patience)
	defer over.Stop()
	for !is() {
		select {
		case <-committed:
		case <-over.C:
			t.Fatalf("not within %s: %s", Patience, what())
		}
	}
}

// Keys counts the keys of each kind, by prefix.
func (s *Store) Keys() map[string]int {
	n := map[string]int{}
	err := s.db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			n[string(it.Item().Key()[:1])]++
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return n
}

// Expiries returns when Badger may drop the keys of one kind, in seconds; 0 for
// never.
func (s *Store) Expiries(kind byte) (at []uint64) {
	err := s.db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte{kind}})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			at = append(at, it.Item().ExpiresAt())
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return at
}

// ExpiryMargin is how much longer a key stays than its message is delivered.
const ExpiryMargin = expiryMargin

// DropBodies deletes every body, as if their time were over.
func (s *Store) DropBodies() error {
	return s.do(context.Background(), "drop bodies", func(g *commitGroup) error {
		return each(g.txn, []byte{prefixBody}, func(k, _ []byte) error {
			g.delete(append([]byte(nil), k...))
			return nil
		})
	})
}

// Timers returns how many timers are set.
func (s *Store) Timers() (n int) {
	err := s.do(context.Background(), "count timers", func(*commitGroup) error {
		n = len(s.timers)
		return nil
	})
	if err != nil {
		panic(err)
	}
	return n
}

// PublishSplit publishes a message under a packet id, and the will of the same
// inbox, in a group that takes several transactions, and returns the keys that
// were on disk before the last of them.
func PublishSplit(in inbox.Inbox, id uint16, e *inbox.Envelope) (early map[string]int, err error) {
	h := in.(*handle)
	record := inbox.AppendEnvelope(nil, e)
	err = h.s.do(context.Background(), "publish", func(g *commitGroup) error {
		if _, err := g.publishOnce(&operation{from: h, packetID: id, envelope: e, record: &record}); err != nil {
			return err
		}
		g.publishWill(h.member)
		for range 5 {
			g.put(keyPadding, make([]byte, 1<<20-1))
		}
		early = h.s.Keys()
		return nil
	})
	return early, err
}

// MostSegments is how many parts of a stream a session may have a past in.
const MostSegments = mostSegments

// Groups is what a store has of streams.
type Groups struct {
	Open, Closed int                    // streams that messages are put into, and that are only read
	Pasts        map[inbox.Receiver]int // how many parts of streams, or subscriptions given up, a session has not finished, if any
}

// Groups describes the streams.
func (s *Store) Groups() Groups {
	all := Groups{Pasts: map[inbox.Receiver]int{}}
	err := s.do(context.Background(), "describe streams", func(*commitGroup) error {
		note := func(m inbox.Member, n int) {
			r := s.sessions.at(m).receiver()
			all.Pasts[r] = max(all.Pasts[r], n)
		}
		for _, st := range s.streams.byFilter {
			if st.open {
				all.Open++
			} else {
				all.Closed++
			}
			for m, p := range st.past {
				note(m, len(p.segments))
			}
		}
		for m, l := range s.leavings {
			note(m, len(l))
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return all
}

// FreeBytes is what may still be written on dir's file system.
func FreeBytes(dir string) (int64, error) { return freeBytes(dir) }

// FanoutLoad returns how many steps wait for the fan-out, and what their messages
// take.
func (s *Store) FanoutLoad() (items, bytes int) {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	return len(s.fanout.items), s.fanout.bytes
}

// The bounds of what waits for the fan-out.
const (
	FanoutItems = fanoutItems
	FanoutBytes = fanoutBytes
)

// FillGroup fills a new store with the sessions of n devices that are away and
// subscribed to one filter, and returns it.
func FillGroup(t testing.TB, dir string, n int) (filter string) {
	f := fleets[1]
	f.fill(t, dir, n)
	return f.filter("")
}

// AppendSplit stores a message in a group that takes several transactions if its
// receivers are many, and calls between when all but the last of those with
// references are on disk, and when that is.
func (s *Store) AppendSplit(e *inbox.Envelope, between func()) error {
	return s.do(context.Background(), "append", func(g *commitGroup) error {
		if _, err := g.append(e, inbox.AppendEnvelope(nil, e)); err != nil {
			return err
		}
		g.closeBlocks()
		between()
		err := g.separate()
		between()
		return err
	})
}

// EndSplit ends the session of a receiver in a group whose first transaction takes
// no more than so many of the writes, and calls between when it is on disk.
func (s *Store) EndSplit(r inbox.Receiver, writes int, between func()) error {
	return s.do(context.Background(), "end", func(g *commitGroup) error {
		if err := g.separate(); err != nil {
			return err
		}
		for range int(s.db.MaxBatchCount()) - 2 - writes {
			g.put(keyPadding, nil)
		}
		g.end(s.sessions.member(r))
		between()
		return nil
	})
}

// Together has the operations that queue queues share one group.
func (s *Store) Together(queue func()) {
	release := s.hold()
	queue()
	release()
}

// hold keeps the committer from what is queued until release is called.
func (s *Store) hold() (release func()) {
	held, free := make(chan struct{}), make(chan struct{})
	s.later(func(*commitGroup) error {
		close(held)
		<-free
		return nil
	}, func(error) {})
	<-held
	return func() { close(free) }
}

// Hold has held closed when everything is committed and answered that is queued by now. What is
// queued later is one group, which waits for release.
func (s *Store) Hold() (held <-chan struct{}, release func()) {
	answered, free := make(chan struct{}), make(chan struct{})
	s.later(func(*commitGroup) error { return nil }, func(error) {
		close(answered)
		<-free
	})
	return answered, func() { close(free) }
}

// Queued returns how many operations wait for the committer.
func (s *Store) Queued() int { return s.queued() }

// queued returns how many operations wait for the committer.
func (s *Store) queued() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return len(s.queue.ops)
}

// SaveAndOpen has a newer owner open an inbox in the group in which the state is saved.
func SaveAndOpen(in inbox.Inbox, o inbox.OpenOptions) (inbox.Inbox, error) {
	h := in.(*handle)
	next, err := run(context.Background(), h.s, "open inbox", func(g *commitGroup) (*handle, error) {
		g.saveOnce(h)
		return g.open(h.receiver, o)
	})
	if err != nil {
		return nil, err
	}
	return next, next.restore()
}

// Passed notes that everything so far was stored so long ago. The sweeper reads that in
// its next round: what is kept to be had again for less than that is no more kept then.
func (s *Store) Passed(d time.Duration) error {
	return s.do(context.Background(), "pass time", func(g *commitGroup) error {
		for _, t := range s.stamps {
			g.delete(stampKey(t.time))
		}
		t := stamp{g.now.Add(-d).UnixMilli(), s.sequence}
		s.stamps = []stamp{t}
		g.put(stampKey(t.time), t.value())
		return nil
	})
}

// Sweep does a round of the sweeper, of a store that is opened so that it does none by itself.
func (s *Store) Sweep() { s.sweeper.sweep() }

// AwaitIndexes returns when everything is indexed that was stored before.
func (s *Store) AwaitIndexes(t *testing.T) {
	t.Helper()
	for inc := range s.indexes { // nobody changes them now
		if err := s.indexer.await(t.Context(), inc); err != nil {
			t.Fatal(err)
		}
	}
}

// Saying returns the keys of records that have a text.
func (s *Store) Saying(t *testing.T, text string) []string { return s.saying(t, text) }
