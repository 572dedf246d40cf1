package badger

import (
	"time"

	"github.com/dgraph-io/badger/v4"
)

// OpenSweeping opens a store that sweeps as often as a test wants.
func OpenSweeping(o Options, every time.Duration) (*Store, error) {
	o.sweepEvery = every
	return Open(o)
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
