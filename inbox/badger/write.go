package badger

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// put adds a key to the group's transaction. Key and value must not change
// before the commit.
func (g *commitGroup) put(key, value []byte) { g.putUntil(key, value, never) }

// putUntil adds a key that may go after a time, Unix milliseconds.
func (g *commitGroup) putUntil(key, value []byte, until int64) {
	g.write(&badger.Entry{Key: key, Value: value, ExpiresAt: expiresAt(until)})
	g.size += len(key) + len(value)
}

// expiryMargin is how many seconds the clock may be set back without an effect.
const expiryMargin = 24 * 60 * 60

// expiresAt returns Badger's time for a key that may go after until: Badger
// drops it when it compacts. That only gives back space; whoever reads decides
// by the deadline itself, so the key stays a little longer.
func expiresAt(until int64) uint64 {
	if until == never {
		return 0
	}
	return uint64(until/1000) + expiryMargin
}

func (g *commitGroup) delete(key []byte) {
	g.retry(func() error { return g.txn.Delete(key) })
	g.size += len(key)
}

func (g *commitGroup) write(e *badger.Entry) { g.retry(func() error { return g.txn.SetEntry(e) }) }

// retry does a write. A transaction that is full is committed and another begun:
// the group is still answered as one, after the last.
func (g *commitGroup) retry(do func() error) {
	if g.s.Err() != nil {
		return
	}
	err := do()
	if errors.Is(err, badger.ErrTxnTooBig) {
		if err = g.separate(); err == nil {
			err = do()
		}
	}
	if err != nil {
		g.s.fail(fmt.Errorf("write: %w", err))
		return
	}
	g.pending++
}

// separate begins a new transaction, so that what follows is in one, if it is
// no more than that takes.
func (g *commitGroup) separate() error {
	if g.pending == 0 {
		return nil
	}
	if err := g.commit(); err != nil {
		g.s.fail(err)
		return err
	}
	g.txn = g.s.db.NewTransaction(true)
	g.pending = 0
	return nil
}

// lastWrite is a key that is written behind the messages of the group.
type lastWrite struct {
	key, value []byte // without a value the key is deleted
	until      int64  // when it may go, Unix ms; 0 for never
}

// putBody adds a body. It is written behind the blocks that refer to it: should
// the group take several transactions and the process end between them, there
// are references without a body, which lead nowhere and are swept, and not a
// body that waits for references that never come.
func (g *commitGroup) putBody(key, value []byte, until int64) {
	g.bodies = append(g.bodies, &badger.Entry{Key: key, Value: value, ExpiresAt: expiresAt(until)})
	g.size += len(key) + len(value)
}

// putLast adds a key that must not be durable before the messages that it
// vouches for, even if the group takes several transactions: that a will was
// published, or that a packet id brought its message. A nil value deletes it.
func (g *commitGroup) putLast(key, value []byte) {
	g.last = append(g.last, lastWrite{key: key, value: value})
	g.size += len(key) + len(value)
}

// putLastUntil is putLast for a key that may go after a time, Unix milliseconds.
func (g *commitGroup) putLastUntil(key, value []byte, until int64) {
	g.last = append(g.last, lastWrite{key, value, until})
	g.size += len(key) + len(value)
}

// writeLast writes what putBody and putLast were given, in that order.
func (g *commitGroup) writeLast() {
	for _, e := range g.bodies {
		g.write(e)
	}
	for _, w := range g.last {
		if w.value == nil {
			g.retry(func() error { return g.txn.Delete(w.key) })
		} else {
			e := &badger.Entry{Key: w.key, Value: w.value}
			if w.until != 0 {
				e.ExpiresAt = expiresAt(w.until)
			}
			g.write(e)
		}
	}
}
