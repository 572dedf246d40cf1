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
	o.sizes = indexSizes{few: 1, tell: 20, sort: 100}
	return OpenSweeping(o, every)
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
