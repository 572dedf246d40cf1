package badger

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
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
	g.remove(key)
	g.size += len(key)
}

func (g *commitGroup) remove(key []byte) {
	g.retry(len(key), func() error { return g.txn.Delete(key) })
}

func (g *commitGroup) write(e *badger.Entry) {
	g.retry(len(e.Key)+len(e.Value), func() error { return g.txn.SetEntry(e) })
}

// keyOverhead is more than what Badger counts for a key beside its bytes and those
// of its value.
const keyOverhead = 32

// fits reports whether so many keys, with their values of so many bytes in all, go
// into the transaction at hand.
func (g *commitGroup) fits(keys, bytes int) bool {
	bytes += g.pendingBytes + (g.pending+keys+1)*keyOverhead
	return g.pending+keys+1 < int(g.s.db.MaxBatchCount()) && bytes < int(g.s.db.MaxBatchSize())
}

// together has what is written next go into one transaction, which is so many keys and
// bytes at most, and no more than that takes.
func (g *commitGroup) together(keys, bytes int) {
	if !g.fits(keys, bytes) {
		_ = g.separate() // what fails has failed the store
	}
}

// retry does a write of so many bytes. A transaction that is full is committed and
// another begun: the group is still answered as one, after the last.
func (g *commitGroup) retry(bytes int, do func() error) {
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
	g.pendingBytes += bytes
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
	g.pending, g.pendingBytes = 0, 0
	return nil
}

// lastWrite is a key that is written behind the messages of the group.
type lastWrite struct {
	key, value []byte // without a value the key is deleted; without a key nothing is written
	until      int64  // when it may go, Unix ms; 0 for never
}

// bodyWrite is a body, and the marks that are to be there if and only if it is.
type bodyWrite struct {
	position inbox.Position
	entry    *badger.Entry
	marks    []lastWrite
}

// putBody adds the body of the message at p. It is written behind the blocks that
// refer to it: should the group take several transactions and the process end
// between them, there are references without a body, which lead nowhere and are
// swept, and not a body that waits for references that never come.
func (g *commitGroup) putBody(p inbox.Position, value []byte, until int64) {
	key := numberKey(prefixBody, uint64(p))
	g.bodies = append(g.bodies, bodyWrite{position: p, entry: &badger.Entry{Key: key, Value: value, ExpiresAt: expiresAt(until)}})
	g.size += len(key) + len(value)
}

// putMark adds a key that says of the message at p that it was stored. If the
// message has a body the two are there together or not at all, so that a publisher
// who sends it again, since nobody told him, has it stored once.
func (g *commitGroup) putMark(p inbox.Position, key, value []byte, until int64) {
	mark := lastWrite{key, value, until}
	if last := len(g.bodies) - 1; last >= 0 && g.bodies[last].position == p {
		g.dropLast(key)
		g.bodies[last].marks = append(g.bodies[last].marks, mark)
		g.size += len(key) + len(value)
		return
	}
	g.addLast(mark)
}

// putLast adds a key that must not be durable before the messages that it
// vouches for, even if the group takes several transactions: that a will was
// published, or that a packet id brought its message. A nil value deletes it.
func (g *commitGroup) putLast(key, value []byte) {
	g.addLast(lastWrite{key: key, value: value})
}

// addLast adds a key that is written behind all bodies, in the place of what was to be
// written there before.
func (g *commitGroup) addLast(w lastWrite) {
	g.dropLast(w.key)
	if g.lastOf == nil {
		g.lastOf = map[string]int{}
	}
	g.lastOf[string(w.key)] = len(g.last)
	g.last = append(g.last, w)
	g.size += len(w.key) + len(w.value)
}

// dropLast takes a key away from what is written behind all bodies: something newer is
// written with one of them, and must not be undone.
func (g *commitGroup) dropLast(key []byte) {
	if i, ok := g.lastOf[string(key)]; ok {
		g.last[i] = lastWrite{}
		delete(g.lastOf, string(key))
	}
}

// writeLast writes what putBody, putMark and putLast were given, in that order.
func (g *commitGroup) writeLast() {
	for i := range g.bodies {
		g.writeBody(&g.bodies[i])
	}
	for i := range g.last {
		g.writeMark(&g.last[i])
	}
}

// writeBody writes a body and its marks in one transaction.
func (g *commitGroup) writeBody(b *bodyWrite) {
	if len(b.marks) > 0 {
		bytes := len(b.entry.Key) + len(b.entry.Value)
		for _, m := range b.marks {
			bytes += len(m.key) + len(m.value)
		}
		g.together(1+len(b.marks), bytes)
	}
	g.write(b.entry)
	for i := range b.marks {
		g.writeMark(&b.marks[i])
	}
}

func (g *commitGroup) writeMark(w *lastWrite) {
	if w.key == nil {
		return
	}
	if w.value == nil {
		g.remove(w.key)
		return
	}
	e := &badger.Entry{Key: w.key, Value: w.value}
	if w.until != 0 {
		e.ExpiresAt = expiresAt(w.until)
	}
	g.write(e)
}
