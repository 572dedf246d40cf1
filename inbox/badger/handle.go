package badger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of what one connected receiver holds in memory: entries read ahead
// from disk, or handed over by the committer and not taken yet.
const (
	readyEntries = 1024
	readyBytes   = 1 << 20
)

// handle is an inbox in the hands of its owner: the reading side of one
// session, until the owner closes it or is fenced.
//
// Entries come to it in two ways. While it is behind, Next reads pages from
// disk. Once a page comes back empty it has caught up, and the committer hands
// new entries over directly, so that a receiver that keeps up never reads. When
// what was handed over exceeds the bounds, it is behind again, and the rest
// waits on disk. A session without a record has nothing on disk while it has
// caught up; when it falls behind, its entries are written like everybody's.
type handle struct {
	s           *Store
	receiver    inbox.Receiver
	incarnation incarnation
	member      inbox.Member
	stored      bool
	mode        inbox.Mode
	state       func() inbox.State
	live        func(inbox.Entry)

	// As found when it was opened.
	isResumed       bool
	resumed         inbox.State
	resumedReceived []uint16
	again           *again         // what is to be unread again; nil for nothing
	before          inbox.Position // up to here everything was stored before it was opened

	received map[uint16]bool                   // QoS 2 packet ids recorded; owned by the committer
	given    map[inbox.Position]struct{}       // see Give; owned by the committer
	gifts    []inbox.Position                  // see noteGift; ascending, owned by the committer
	brought  map[inbox.Position]inbox.Position // messages of history, of a session in memory, by their places; owned by the committer
	attached bool                              // it has had a stream; owned by the committer
	handed   inbox.Position                    // of the last entry that it is to be handed; owned by the committer
	saved    inbox.State                       // of a session in memory; owned by the committer
	back     goBack                            // owned by the committer
	due      bool                              // its state is written at the end of the group; owned by the committer
	gathered int                               // owned by the fan-out

	dirty  atomic.Bool   // a lazy save is queued
	wake   chan struct{} // holds one; a hint that the fields below changed
	fenced chan struct{} // closed when a newer owner opened the inbox, or this one closed it

	mu           sync.Mutex
	subscribed   []inbox.Subscription // as it was opened, until somebody has asked or changed that
	sources      []*source            // the streams it reads; replaced or added to, never changed
	leavings     []leaving            // what it is not to get; replaced, never changed
	unsifted     bool                 // some of that may be in ready
	position     inbox.Position       // everything up to here was returned by Next or is in ready
	returned     inbox.Position       // the last entry that was returned by Next
	held         bool                 // Next waits until it is said where it begins
	waiting      inbox.Spans          // what waits to be pulled; replaced, never changed
	sent         inbox.Position       // State.Sent as it is stored
	open         inbox.Position       // the first of State.Open as it is stored, 0 if it is empty
	last         inbox.Position       // everything up to here is visible; nothing beyond is read
	ready        []inbox.Entry        // to be returned next
	bytes        int                  // size of the envelopes in ready
	caughtUp     bool                 // everything up to last is in ready or was returned
	acked        bool                 // something was acknowledged by itself before it was opened, or when it went back
	acks         atomic.Uint64        // how often something was acknowledged by itself; may be read without mu
	ackedTo      inbox.Position       // up to where
	returnedLast []inbox.Position     // messages, of a session in memory
	deletions    uint64               // of deletions.count, when what is in ready was looked at last
	promised     int                  // entries that were reserved and are not handed over yet
	reserved     int                  // their size
}

// take takes an entry after its commit: one that is live, that is on disk, or that
// was promised to be in memory. Runs on the committer, or on the fan-out for those
// that have had a stream, in ascending order; never blocks.
func (h *handle) take(e inbox.Entry, promised bool) {
	if e.Position == 0 {
		if h.live != nil {
			h.live(e)
		}
		return
	}
	h.mu.Lock()
	size := e.Envelope.Size()
	if promised {
		h.promised--
		h.reserved -= size
	}
	if uint64(e.Position) <= h.s.deletions.upTo.Load() { // it has been on its way for so long that it may be deleted
		h.deletions = 0
	}
	h.unsifted = h.unsifted || mayDrop(h.leavings, e.Position)
	switch {
	case promised || h.promised > 0 || h.caughtUp && h.hasRoomLocked(size) && e.Position > h.ackedTo: // before one that was promised everything is in memory
		h.last, h.position = e.Position, e.Position
		h.ready = append(h.ready, e)
		h.bytes += size
	default:
		h.last, h.caughtUp = e.Position, false
	}
	h.mu.Unlock()
	h.hint()
}

// pass notes that the entry at p of a stream is not for this receiver. Runs on
// the fan-out.
func (h *handle) pass(p inbox.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passLocked(p)
}

func (h *handle) passLocked(p inbox.Position) {
	if h.last = max(h.last, p); h.caughtUp {
		h.position = h.last
	}
}

// fallBehind notes that there may be entries up to p on disk that were not handed
// over.
func (h *handle) fallBehind(p inbox.Position) {
	h.mu.Lock()
	h.last, h.caughtUp = max(h.last, p), false
	h.mu.Unlock()
	h.hint()
}

// reserve promises room for an entry that will not be on disk, or reports that
// it has to be. Runs on the committer, while the group is built.
func (h *handle) reserve(size int) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.caughtUp || !h.hasRoomLocked(size) {
		h.caughtUp = false
		return false
	}
	h.promised++
	h.reserved += size
	return true
}

// isBehind reports whether the receiver is away, or has not caught up. Runs on
// the committer.
func (h *handle) isBehind() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.caughtUp
}

func (h *handle) hasRoomLocked(size int) bool {
	n := len(h.ready) + h.promised
	return n < readyEntries && (n == 0 || h.bytes+h.reserved+size <= readyBytes)
}

func (h *handle) hint() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Next implements [inbox.Inbox]. A receiver that has caught up costs a lock
// and a copy of the entries; one that is behind reads a page from disk every
// 200 entries or 256 KiB (see readPage for its cost).
func (h *handle) Next(ctx context.Context, max, maxBytes int) ([]inbox.Entry, error) {
	for {
		entries, behind, err := h.takeReady(max, maxBytes)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		if behind {
			if err := h.readAhead(); err != nil {
				return nil, err
			}
			continue
		}
		if h.isHeld() {
			h.Save(nil) // what is open may be finished without a word of its owner
		}
		select {
		case <-h.wake:
		case <-h.fenced:
		case <-h.s.closing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (h *handle) isHeld() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

// takeReady returns entries from memory, or reports whether there may be some
// on disk.
func (h *handle) takeReady(max, maxBytes int) (entries []inbox.Entry, behind bool, err error) {
	if err := h.usable(); err != nil {
		return nil, false, err
	}
	if err := h.lockWithoutGone(); err != nil {
		return nil, false, err
	}
	defer h.mu.Unlock()
	if h.held {
		return nil, false, nil
	}
	n, bytes := 0, 0
	for n < len(h.ready) && n < max {
		size := h.ready[n].Envelope.Size()
		if n > 0 && bytes+size > maxBytes {
			break
		}
		bytes += size
		n++
	}
	if n == 0 {
		return nil, !h.caughtUp, nil
	}
	h.returned = h.ready[n-1].Position
	h.bytes -= bytes
	h.noteReturnedLocked(h.ready[:n])
	if n == len(h.ready) { // as for those that keep up
		entries, h.ready = h.ready, nil
		return entries, false, nil
	}
	entries = slices.Clone(h.ready[:n])
	clear(h.ready[:n])
	h.ready = h.ready[n:]
	return entries, false, nil
}

// noteReturnedLocked notes what is on its way to the owner of a session in memory, which may
// be nowhere else.
func (h *handle) noteReturnedLocked(entries []inbox.Entry) {
	if h.stored {
		return
	}
	h.returnedLast = h.returnedLast[:0]
	for i := range entries {
		h.returnedLast = append(h.returnedLast, entries[i].Envelope.ID.Sequence)
	}
}

// aheadPart is a part of an inbox that is read before it is asked for.
type aheadPart struct {
	from        reading
	after, upTo inbox.Position
	acks        uint64
}

// readAhead reads the next page into ready, or finds that there is none and
// that the receiver has caught up. No lock is held while it reads.
func (h *handle) readAhead() error {
	p := h.nextPart()
	page, size, err := h.s.readPage(p.from, p.after, p.upTo)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	h.keepPage(p, page, size)
	return nil
}

func (h *handle) nextPart() aheadPart {
	h.mu.Lock()
	defer h.mu.Unlock()
	return aheadPart{from: h.readingLocked(), after: h.position, upTo: h.last, acks: h.acks.Load()}
}

// keepPage puts what was read of a part into ready. Runs on the goroutine that calls
// Next.
func (h *handle) keepPage(p aheadPart, page []inbox.Entry, size int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.acks.Load() != p.acks { // some of it may be acknowledged: it is read again
		p.from.readAgain(p.after)
		return
	}
	if len(page) > 0 {
		// Nothing was handed over meanwhile: whoever is behind gets nothing.
		h.ready = append(h.ready, page...)
		h.bytes += size
		h.position = page[len(page)-1].Position
		h.unsifted = len(h.leavings) > 0 // a subscription may have been given up meanwhile
		return
	}
	h.caughtUp = h.last == p.upTo
	h.position = max(h.position, p.upTo) // what is between is not for this receiver, or gone: not to be looked for again
}

// Read implements [inbox.Inbox]. It costs one seek for each block.
func (h *handle) Read(_ context.Context, at []inbox.Position) ([]inbox.Entry, error) {
	if err := h.usable(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	from := h.readingLocked()
	h.mu.Unlock()
	entries, err := h.s.readAt(from, at)
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	return entries, nil
}

// Withdrawn implements [inbox.Inbox].
func (h *handle) Withdrawn() uint64 {
	if !h.stored {
		return 0
	}
	return h.acks.Load() + h.s.deletions.count.Load()
}

// State implements [inbox.Inbox].
func (h *handle) State() inbox.State { return h.resumed }

// Save implements [inbox.Inbox]. A lazy save costs an atomic load while another
// is queued. Others that share a commit are one write of the state.
func (h *handle) Save(done func(error)) {
	if done == nil {
		if h.state != nil && !h.dirty.Load() && h.dirty.CompareAndSwap(false, true) {
			h.s.queue.putLazy(h)
		}
		return
	}
	h.s.later(func(g *commitGroup) error {
		if !h.owns() {
			return inbox.ErrFenced
		}
		g.saveOnce(h)
		return nil
	}, done)
}

// usable returns why h can no longer be used, nil if it can.
func (h *handle) usable() error {
	select {
	case <-h.s.closing:
		return inbox.ErrClosed
	case <-h.fenced:
		return inbox.ErrFenced
	default:
		return nil
	}
}

func (h *handle) isFenced() bool {
	select {
	case <-h.fenced:
		return true
	default:
		return false
	}
}

// owns reports whether h is still the owner of its session. Runs on the
// committer, which decides that.
func (h *handle) owns() bool {
	return !h.isFenced() && h.s.sessions.at(h.member).owner() == h
}

// fence ends h. Runs on the committer.
func (h *handle) fence() {
	close(h.fenced)
	h.hint()
}
