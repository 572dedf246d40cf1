package badger

import (
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of one group. A transaction takes 1.2 MiB and 13,000 keys; what does not
// fit goes into another of the same group.
const (
	groupOperations = 2048
	groupBytes      = 1 << 20
	groupKeys       = 8 << 10 // before what must be in one transaction
)

// spareBuffers is how many buffers of blocks are kept for later groups: enough
// for those of a few busy receivers, and little memory after very many.
const spareBuffers = 64

// commitLoop is the committer. It owns the sessions, the subscription index and
// the sequence, and is the only one that writes to the database.
func (s *Store) commitLoop() {
	defer close(s.committed)
	var (
		ops  []operation
		lazy []*handle
		more bool
	)
	g := newGroup(s)
	for {
		ops, lazy, more = s.queue.take(ops, lazy, s.timers.next(time.Now()))
		if !more {
			return
		}
		rest := ops
		for first := true; first || len(rest) > 0; first = false {
			if s.Err() != nil {
				refuse(rest, s.Err())
				break
			}
			g.begin()
			before := rest
			rest = g.build(rest)
			if first {
				g.saveLazily(lazy)
				g.runTimers()
			}
			g.closeBlocks()
			g.writeLast()
			g.finish(g.commit())
			clear(before[:len(before)-len(rest)]) // lets go of the messages
		}
		clear(ops)
		clear(lazy)
	}
}

// refuse answers operations that will not be carried out.
func refuse(ops []operation, err error) {
	for _, op := range ops {
		op.answer(inbox.Receipt{}, err)
	}
}

func (op *operation) answer(r inbox.Receipt, err error) {
	if op.stored != nil {
		op.stored(r, err)
	}
	if op.applied != nil {
		op.applied(err)
	}
}

// group is the operations that share one commit. Its slices are used again for
// the next group. Owned by the committer.
type group struct {
	s        *Store
	txn      *badger.Txn
	pending  int // keys written and not committed yet
	size     int // bytes of keys, values and unfinished blocks
	now      time.Time
	full     bool // the disk reserve is reached: messages are refused
	critical bool // half of it is used up: what is refused too is sessions and subscriptions

	blocks   []block
	spare    [][]byte        // buffers of earlier blocks, to be used again
	written  [][]byte        // buffers that Badger holds until the commit
	bodies   []*badger.Entry // written behind the blocks
	last     []lastWrite     // written behind everything
	matches  []inbox.Match
	kept     []kept
	handover []handover
	answers  []answer
	records  []*[]byte     // to give back to the pool
	saved    []saved       // delivery states written
	ended    []incarnation // sessions that ended
}

// kept is one receiver of the message being applied that gets it from disk.
type kept struct {
	member inbox.Member
	grant  inbox.Grant
}

// saved is a delivery state that the group wrote.
type saved struct {
	incarnation incarnation
	state       inbox.State
	closed      bool // the inbox was closed with it
}

// lastWrite is a key that is written behind the messages of the group.
type lastWrite struct{ key, value []byte } // without a value the key is deleted

// handover is an entry for a connected receiver, handed over after the commit.
type handover struct {
	to       *handle
	entry    inbox.Entry
	inMemory bool // it is not on disk
}

// answer is what is called after the commit, in the order of the operations.
type answer struct {
	op      operation
	receipt inbox.Receipt
	err     error
}

func newGroup(s *Store) *group { return &group{s: s} }

func (g *group) begin() {
	g.txn = g.s.db.NewTransaction(true)
	g.pending, g.size = 0, 0
	g.now = time.Now()
	g.full, g.critical = g.s.disk.check(g.now)
	g.s.isFull.Store(g.full)
}

// build applies operations in order until the group is full or nothing is left,
// and returns the rest.
func (g *group) build(ops []operation) []operation {
	n := 0
	for n < len(ops) && n < groupOperations && g.size < groupBytes {
		op := ops[n]
		n++
		a := answer{op: op}
		switch {
		case op.from != nil:
			a.receipt, a.err = g.publishOnce(&op)
		case op.envelope != nil:
			a.receipt, a.err = g.append(op.envelope, *op.record)
		default:
			op.apply(g)
		}
		if op.record != nil {
			g.records = append(g.records, op.record)
		}
		g.answers = append(g.answers, a)
	}
	return ops[n:]
}

// closeBlocks writes the blocks of the group.
func (g *group) closeBlocks() {
	for i := range g.blocks {
		g.closeBlock(&g.blocks[i])
	}
}

// putBody adds a body. It is written behind the blocks that refer to it: should
// the group take several transactions and the process end between them, there
// are references without a body, which lead nowhere and are swept, and not a
// body that waits for references that never come.
func (g *group) putBody(key, value []byte, until int64) {
	g.bodies = append(g.bodies, &badger.Entry{Key: key, Value: value, ExpiresAt: expiresAt(until)})
	g.size += len(key) + len(value)
}

// putLast adds a key that must not be durable before the messages that it
// vouches for, even if the group takes several transactions: that a will was
// published, or that a packet id brought its message. A nil value deletes it.
func (g *group) putLast(key, value []byte) {
	g.last = append(g.last, lastWrite{key, value})
	g.size += len(key) + len(value)
}

// writeLast writes what putBody and putLast were given, in that order.
func (g *group) writeLast() {
	for _, e := range g.bodies {
		g.write(e)
	}
	for _, w := range g.last {
		if w.value == nil {
			g.retry(func() error { return g.txn.Delete(w.key) })
		} else {
			g.write(&badger.Entry{Key: w.key, Value: w.value})
		}
	}
}

// separate begins a new transaction, so that what follows is in one, if it is
// no more than that takes.
func (g *group) separate() error {
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

// commit makes the group durable. This is the line of the store: before it
// nothing is promised, after it everything is on stable storage.
func (g *group) commit() error {
	if g.pending == 0 {
		g.txn.Discard() // only connected receivers that end with their link: nothing to sync
		return nil
	}
	if err := g.txn.Commit(); err != nil { // returns after the sync
		return fmt.Errorf("commit: %w", err)
	}
	g.s.stats.commits.Add(1)
	return nil
}

// put adds a key to the group's transaction. Key and value must not change
// before the commit. A transaction that is full is committed and another begun:
// the group is still answered as one, after the last.
func (g *group) put(key, value []byte) {
	g.write(&badger.Entry{Key: key, Value: value})
	g.size += len(key) + len(value)
}

// expiryMargin is how many seconds the clock may be set back without an effect.
const expiryMargin = 24 * 60 * 60

// putUntil adds a key that may go after a time, Unix milliseconds.
func (g *group) putUntil(key, value []byte, until int64) {
	g.write(&badger.Entry{Key: key, Value: value, ExpiresAt: expiresAt(until)})
	g.size += len(key) + len(value)
}

// expiresAt returns Badger's time for a key that may go after until: Badger
// drops it when it compacts. That only gives back space; whoever reads decides
// by the deadline itself, so the key stays a little longer.
func expiresAt(until int64) uint64 {
	if until == never {
		return 0
	}
	return uint64(until/1000) + expiryMargin
}

func (g *group) delete(key []byte) {
	g.retry(func() error { return g.txn.Delete(key) })
	g.size += len(key)
}

func (g *group) write(e *badger.Entry) { g.retry(func() error { return g.txn.SetEntry(e) }) }

func (g *group) retry(do func() error) {
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

// closeBlock writes a finished block.
func (g *group) closeBlock(b *block) {
	if len(b.buf) == 0 {
		return
	}
	e := &badger.Entry{Key: blockKey(b.incarnation, b.last), Value: b.buf, ExpiresAt: expiresAt(b.until)}
	if b.references {
		e.UserMeta = metaReferences
	}
	g.write(e)
	g.written = append(g.written, b.buf)
	b.buf, b.references, b.until = nil, false, 0
}

// finish hands over and answers, in the order of the operations: first what
// became visible, then the acknowledgements.
func (g *group) finish(err error) {
	if err != nil {
		g.s.fail(err)
	}
	err = g.s.Err()
	for i := range g.blocks {
		g.s.sessions.at(g.blocks[i].member).building = 0
	}
	if err == nil {
		for i := range g.handover {
			g.handover[i].to.deliver(&g.handover[i])
		}
	}
	for i := range g.answers {
		a := &g.answers[i]
		if a.err == nil && err != nil {
			a.err = fmt.Errorf("%w: %w", inbox.ErrUncertain, err)
		}
		a.op.answer(a.receipt, a.err)
	}
	if err == nil {
		g.s.sweeper.committed(g.saved, g.ended)
	}
	for _, r := range g.records {
		recordPool.Put(r)
	}
	g.reset()
}

// reset forgets the group's content and keeps its slices.
func (g *group) reset() {
	clear(g.handover)
	clear(g.answers)
	clear(g.saved)
	clear(g.kept)
	clear(g.last)
	clear(g.bodies)
	for i := 0; i < len(g.written) && len(g.spare) < spareBuffers; i++ {
		g.spare = append(g.spare, g.written[i][:0])
	}
	clear(g.written)
	g.blocks, g.written = g.blocks[:0], g.written[:0]
	g.handover, g.answers = g.handover[:0], g.answers[:0]
	g.records, g.kept = g.records[:0], g.kept[:0]
	g.saved, g.ended = g.saved[:0], g.ended[:0]
	g.bodies, g.last = g.bodies[:0], g.last[:0]
}
