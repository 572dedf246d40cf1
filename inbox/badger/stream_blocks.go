package badger

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of what is kept of the blocks of all streams together, and of what is
// decoded of one at a time: a block of references may stand for very much.
const (
	streamBlockBytes = 8 << 20
	streamBlockPart  = 2 * pageBytes
)

// streamBlocks keeps the blocks of streams that were read last, decoded, so that
// members who read the same at about the same time share the work and the memory.
// What a block holds changes only when a message is deleted; one that the sweeper
// has deleted is asked for by nobody, for everyone has finished it.
type streamBlocks struct {
	mu    sync.Mutex
	of    map[incarnation][]*list.Element // of *streamBlock, ascending
	used  list.List                       // the block used last in front
	bytes int
	since uint64 // transactions that read before this may have seen what is deleted now
}

// streamBlock is everything that a stream has after one position and up to
// another: a block, or a part of one.
type streamBlock struct {
	incarnation incarnation
	after, last inbox.Position
	entries     []inbox.Entry // without grants: those are the members' own
	bytes       int
}

// streamEntryBytes is what an entry takes beside its message, or the block itself.
const streamEntryBytes = 256

func newStreamBlocks() *streamBlocks { return &streamBlocks{of: map[incarnation][]*list.Element{}} }

// find returns the block that has what a stream has next at or behind p, or nil.
// Cost: a search among the stream's blocks.
func (c *streamBlocks) find(inc incarnation, p inbox.Position) *streamBlock {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.of[inc]
	i, _ := searchBlock(all, p)
	if i == len(all) {
		return nil
	}
	b := blockOf(all[i])
	if p <= b.after {
		return nil
	}
	c.used.MoveToFront(all[i])
	return b
}

// add keeps a block, for as long as others are not used more, and returns it, or
// the one that holds the same and more. readAt is the transaction's that it was read in.
func (c *streamBlocks) add(b *streamBlock, readAt uint64) *streamBlock {
	c.mu.Lock()
	defer c.mu.Unlock()
	if readAt < c.since {
		return b
	}
	all := c.of[b.incarnation]
	i, known := searchBlock(all, b.last)
	if known {
		was := blockOf(all[i])
		c.used.MoveToFront(all[i])
		if was.after <= b.after {
			return was
		}
		c.bytes += b.bytes - was.bytes
		all[i].Value = b
		return b
	}
	c.of[b.incarnation] = slices.Insert(all, i, c.used.PushFront(b))
	for c.bytes += b.bytes; c.bytes > streamBlockBytes && c.used.Len() > 1; {
		c.removeLocked(c.used.Back())
	}
	return b
}

// drop forgets the blocks that have deleted messages. No transaction that is older than
// the one given adds any from now on.
func (c *streamBlocks) drop(ids []inbox.Position, readAt uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = readAt
	ids = slices.Sorted(slices.Values(ids))
	var gone []*list.Element
	for _, all := range c.of {
		for _, e := range all {
			b := blockOf(e)
			if i, _ := slices.BinarySearch(ids, b.after+1); i < len(ids) && ids[i] <= b.last {
				gone = append(gone, e)
			}
		}
	}
	for _, e := range gone {
		c.removeLocked(e)
	}
}

func (c *streamBlocks) removeLocked(e *list.Element) {
	b := blockOf(e)
	c.used.Remove(e)
	c.bytes -= b.bytes
	all := c.of[b.incarnation]
	i, _ := searchBlock(all, b.last)
	if all = slices.Delete(all, i, i+1); len(all) > 0 {
		c.of[b.incarnation] = all
		return
	}
	delete(c.of, b.incarnation)
}

// searchBlock returns where the block is that ends at p or behind it, and whether
// it ends at p.
func searchBlock(all []*list.Element, p inbox.Position) (int, bool) {
	return slices.BinarySearchFunc(all, p, func(e *list.Element, p inbox.Position) int { return cmp.Compare(blockOf(e).last, p) })
}

func blockOf(e *list.Element) *streamBlock { return e.Value.(*streamBlock) }

// readStreamBlock decodes a block of a stream, the first that has something at or
// behind p, from there on.
func (s *Store) readStreamBlock(txn *badger.Txn, inc incarnation, item *badger.Item, p inbox.Position) *streamBlock {
	b := &streamBlock{incarnation: inc, after: p - 1, last: inbox.Position(keyNumber(item.Key())), bytes: streamEntryBytes}
	stored := s.readEntries(item)
	for e, ok := stored.next(); ok; e, ok = stored.next() {
		if e.position < p {
			continue
		}
		if b.bytes > streamBlockPart {
			b.last = e.position - 1
			break
		}
		if entry, ok := s.decode(txn, e); ok {
			entry.Grant = inbox.Grant{}
			b.entries = append(b.entries, entry)
			b.bytes += streamEntryBytes + entry.Envelope.Size()
		}
	}
	return b
}
