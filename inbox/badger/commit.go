package badger

import (
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
		rest := g.run(ops, lazy)
		for len(rest) > 0 {
			rest = g.run(rest, nil)
		}
		clear(lazy)
	}
}

// run makes one group of operations and lazy saves, and returns the operations
// that it had no room for.
func (g *commitGroup) run(ops []operation, lazy []*handle) (rest []operation) {
	if err := g.s.Err(); err != nil {
		refuse(ops, err)
		return nil
	}
	g.begin()

	// Give each message its number, find its receivers, and put it where they
	// will read it.
	rest = g.build(ops)

	// Add the delivery states that are due.
	g.saveDue()
	g.saveLazily(lazy)

	// Publish the wills that are due, and end the sessions whose time is over.
	g.runTimers()

	// Write the blocks, and then what must not be durable before them.
	g.closeBlocks()
	g.writeLast()

	// Sync. Before this nothing is promised.
	err := g.commit()

	// Hand over what is visible now, and then acknowledge.
	g.finish(err)
	clear(ops[:len(ops)-len(rest)]) // lets go of the messages
	return rest
}

// commit makes the group durable. This is the line of the store: before it
// nothing is promised, after it everything is on stable storage.
func (g *commitGroup) commit() error {
	if g.pending == 0 {
		g.txn.Discard() // only connected receivers that end with their link: nothing to sync
		return nil
	}
	if err := g.txn.Commit(); err != nil { // returns after the sync
		return fmt.Errorf("commit: %w", err)
	}
	g.s.stats.commits.Add(1)
	g.s.afterCommit()
	return nil
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

// commitGroup is the operations that share one commit. Its slices are used again
// for the next group. Owned by the committer.
type commitGroup struct {
	s            *Store
	txn          *badger.Txn
	pending      int // keys written and not committed yet
	size         int // bytes of keys, values and unfinished blocks
	pendingBytes int // of those keys and their values
	now          time.Time
	full         bool // the disk reserve is reached: messages are refused
	critical     bool // half of it is used up: new sessions and subscriptions are refused too

	blocks   []block
	spare    [][]byte                  // buffers of earlier blocks, to be used again
	written  [][]byte                  // buffers that Badger holds until the commit
	bodies   []bodyWrite               // written behind the blocks
	last     []lastWrite               // written behind everything
	lastOf   map[string]int            // where in last each key is
	names    map[string]inbox.Position // of the messages in the group that have one
	matches  []inbox.Match
	archives []inbox.Match // the histories that have it
	kept     []kept
	archived bool      // a history keeps the message being applied
	streams  []*stream // that the message being applied is in
	handover []handover
	fan      []fanItem
	answers  []answer
	records  []*[]byte        // to give back to the pool
	due      []*handle        // whose delivery states are to be written
	saved    []saved          // delivery states written
	deleted  []inbox.Position // messages that were deleted
	ended    []ended          // sessions that ended
	behind   []incarnation    // those whose index is behind by so much that it is time to go on

	acked map[incarnation]struct{} // inboxes of which it was written what is acknowledged
	news  []ackNews                // for owners

	settling map[incarnation]inbox.Member // inboxes that may be finished further than their state says
}

// kept is one receiver of the message being applied that gets it from disk.
type kept struct {
	member  inbox.Member
	grant   inbox.Grant
	history *history // whose member it is, nil if it is none's
}

// saved is a delivery state that the group wrote.
type saved struct {
	member      inbox.Member
	incarnation incarnation
	swept       inbox.Position // if the sweeper may not know
	state       inbox.State
	closed      bool // the inbox has no owner any more
}

// handover is an entry for a connected receiver, handed over after the commit; or,
// without a message, that there is something on disk up to its position.
type handover struct {
	to       *handle
	entry    inbox.Entry
	inMemory bool // it is not on disk
}

func (h *handover) give() {
	if h.entry.Position != 0 && h.entry.Envelope == nil {
		h.to.fallBehind(h.entry.Position)
		return
	}
	h.to.take(h.entry, h.inMemory)
}

// answer is what is called after the commit, in the order of the operations.
type answer struct {
	op      operation
	receipt inbox.Receipt
	err     error
}

func newGroup(s *Store) *commitGroup { return &commitGroup{s: s} }

func (g *commitGroup) begin() {
	g.txn = g.s.db.NewTransaction(true)
	g.pending, g.pendingBytes, g.size = 0, 0, 0
	g.now = time.Now()
	g.full, g.critical = g.s.disk.check(g.now)
	g.s.isFull.Store(g.full)
}

// build applies operations in order until the group is full or nothing is left,
// and returns the rest.
func (g *commitGroup) build(ops []operation) []operation {
	n := 0
	for n < len(ops) && n < groupOperations && g.size < groupBytes {
		op := ops[n]
		n++
		a := answer{op: op}
		switch {
		case op.from != nil:
			a.receipt, a.err = g.publishOnce(&op)
		case op.envelope != nil:
			a.receipt, a.err = g.appendOnce(op.envelope, *op.record)
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
func (g *commitGroup) closeBlocks() {
	for i := range g.blocks {
		g.closeBlock(&g.blocks[i])
	}
}

// closeBlock writes a finished block.
func (g *commitGroup) closeBlock(b *block) {
	if len(b.buf) == 0 {
		return
	}
	e := &badger.Entry{Key: blockKey(b.incarnation, b.last), Value: b.buf, ExpiresAt: expiresAt(b.until)}
	if b.references {
		e.UserMeta = metaReferences
	}
	if b.behind != (idRange{}) {
		e.UserMeta |= metaBehind
		g.putUntil(behindKey(b.incarnation, b.last), b.behind.append(nil), b.until)
	}
	if b.given {
		e.UserMeta |= metaGiven
	}
	g.write(e)
	g.written = append(g.written, b.buf)
	g.blockIndexed(b)
	b.buf, b.entries, b.references, b.behind, b.until = nil, 0, false, idRange{}, 0
}

// finish hands over and answers, in the order of the operations: first what
// became visible, then the acknowledgements.
func (g *commitGroup) finish(err error) {
	if err != nil {
		g.s.fail(err)
	}
	err = g.s.Err()
	for i := range g.blocks {
		g.s.sessions.at(g.blocks[i].member).noBlock()
	}
	if err == nil {
		g.s.visible.Store(uint64(g.s.sequence))
		for i := range g.handover {
			g.handover[i].give()
		}
		g.s.fanout.put(g.fan)
		for _, n := range g.news {
			n.to.acknowledged(n)
		}
		if len(g.deleted) > 0 {
			g.s.noteDeleted(g.deleted)
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
		// Whoever opens an inbox in the group that closes it may have told the sweeper already;
		// and whoever ends it has given its member number away.
		for i := range g.saved {
			st := &g.saved[i]
			st.closed = st.closed && g.s.sessions.owner(st.member, st.incarnation) == nil
		}
		g.s.sweeper.committed(g.saved, g.ended)
		g.s.sweeper.acknowledged(g.settling)
		g.s.indexer.hint(indexWork{index: true}, g.behind...)
	}
	for _, r := range g.records {
		recordPool.Put(r)
	}
	g.reset()
}

// reset forgets the group's content and keeps its slices.
func (g *commitGroup) reset() {
	clear(g.handover)
	if clear(g.fan); cap(g.fan) > 2*fanoutItems {
		g.fan = nil
	}
	clear(g.answers)
	clear(g.due)
	clear(g.saved)
	clear(g.kept)
	clear(g.last)
	clear(g.lastOf)
	clear(g.names)
	clear(g.bodies)
	clear(g.acked)
	clear(g.settling)
	clear(g.news)
	for i := 0; i < len(g.written) && len(g.spare) < spareBuffers; i++ {
		g.spare = append(g.spare, g.written[i][:0])
	}
	clear(g.written)
	g.blocks, g.written = g.blocks[:0], g.written[:0]
	g.handover, g.fan, g.answers = g.handover[:0], g.fan[:0], g.answers[:0]
	g.records, g.kept = g.records[:0], g.kept[:0]
	g.due, g.saved, g.ended, g.news = g.due[:0], g.saved[:0], g.ended[:0], g.news[:0]
	g.bodies, g.last = g.bodies[:0], g.last[:0]
	g.behind, g.deleted = g.behind[:0], g.deleted[:0]
}
