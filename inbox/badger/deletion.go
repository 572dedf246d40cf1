package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A message that was deleted may still be counted somewhere, wait in the memory of a
// receiver that is connected, or stand in an inbox as a copy. So that it is passed over
// there, its number stands apart for as long as any inbox may have it:
//
//	D sequence:8   version:1 pair:16 bytes:uvarint
//
// bytes is what it was, as [inbox.Count] has it.
const deletionVersion = 1

func deletionKey(id inbox.Position) []byte { return numberKey(prefixDeletion, uint64(id)) }

// deletion is what stands under the number of a message that was deleted.
type deletion struct {
	pair  pair
	bytes uint64
}

func deletionOf(e *inbox.Envelope) deletion {
	return deletion{pairOf(e.Sender(), e.Topic), uint64(e.Size() - emptyEnvelope)}
}

func (d deletion) append(dst []byte) []byte {
	dst = append(append(dst, deletionVersion), d.pair[:]...)
	return binary.AppendUvarint(dst, d.bytes)
}

func parseDeletion(b []byte) (d deletion, err error) {
	if len(b) == 0 {
		return d, fmt.Errorf("read deletion: empty: %w", inbox.ErrDamaged)
	}
	if err := checkVersion("deletion", int(b[0]), deletionVersion); err != nil {
		return d, err
	}
	n := 1 + copy(d.pair[:], b[1:])
	bytes, size := binary.Uvarint(b[n:])
	if size <= 0 || n+size != len(b) {
		return d, fmt.Errorf("read deletion: %d bytes: %w", len(b), inbox.ErrDamaged)
	}
	d.bytes = bytes
	return d, nil
}

// deletions tell everybody that something was deleted, after it is durable.
type deletions struct {
	count atomic.Uint64 // of groups with deletions; 0 while there are none in the store
	upTo  atomic.Uint64 // no message behind this position is deleted
}

// loadDeletions finds out whether there are any.
func (s *Store) loadDeletions(txn *badger.Txn) {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte{prefixDeletion}})
	defer it.Close()
	if it.Rewind(); it.Valid() {
		s.deletions.count.Store(1)
	}
}

// isDeleted reports whether the message with a number was deleted. Cost: nothing as
// long as none was, otherwise about 1 µs.
func (s *Store) isDeleted(txn *badger.Txn, id inbox.Position) bool {
	if s.deletions.count.Load() == 0 {
		return false
	}
	_, err := txn.Get(deletionKey(id))
	if err != nil && !errors.Is(err, badger.ErrKeyNotFound) {
		s.reportDamage("deletion", deletionKey(id), err)
	}
	return err == nil
}

// noteDeleted has everybody look who holds what was deleted. Runs on the committer, after
// the commit.
func (s *Store) noteDeleted(ids []inbox.Position) {
	s.deletions.upTo.Store(s.visible.Load())
	s.deletions.count.Add(1)
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	s.blocks.drop(ids, txn.ReadTs())
}

// lockWithoutGone takes the lock when nothing that is ready was deleted or given up. Runs on
// the goroutine that calls Next.
func (h *handle) lockWithoutGone() error {
	for {
		h.mu.Lock()
		deleted := h.deletions != h.s.deletions.count.Load()
		if !deleted && !h.unsifted {
			return nil
		}
		h.mu.Unlock() // to look without it; something may go, or come, meanwhile
		h.sift()
		if !deleted {
			continue
		}
		if err := h.lookForDeleted(); err != nil {
			return err
		}
	}
}

// lookForDeleted takes out of what is ready what was deleted since it was read. Runs on
// the goroutine that calls Next, and before that reads from disk: what is deleted
// meanwhile is found the next time.
func (h *handle) lookForDeleted() error {
	h.mu.Lock()
	count := h.s.deletions.count.Load()
	ids := make([]inbox.Position, 0, len(h.ready))
	if h.deletions != count {
		for i := range h.ready {
			ids = append(ids, h.ready[i].Envelope.ID.Sequence)
		}
	}
	h.deletions = count
	h.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	gone := map[inbox.Position]bool{}
	err := h.s.view(func(txn *badger.Txn) error {
		for _, id := range ids {
			if h.s.isDeleted(txn, id) {
				gone[id] = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		h.mu.Lock()
		h.dropLocked(func(e *inbox.Entry) bool { return gone[e.Envelope.ID.Sequence] })
		h.mu.Unlock()
	}
	return nil
}
