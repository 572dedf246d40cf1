package badger

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// reading is where a receiver's entries are: in blocks of its own, and in those of
// its streams.
type reading struct {
	receiver    inbox.Receiver
	incarnation incarnation
	sources     []*source
	leavings    []leaving
	memory      []inbox.Entry // what is nowhere else, ascending
	acked       bool          // some may be acknowledged
}

func (h *handle) readingLocked() reading {
	return reading{
		receiver: h.receiver, incarnation: h.incarnation, sources: h.sources, leavings: h.leavings,
		acked: h.hasAckedLocked(),
	}
}

// apart returns the reading for one who reads beside the goroutine that calls Next: how
// far that has come in a stream is its own.
func (r reading) apart() reading {
	sources := make([]*source, len(r.sources))
	for i, s := range r.sources {
		sources[i] = &source{stream: s.stream, segment: s.segment}
	}
	r.sources = sources
	return r
}

// readAgain has the streams looked at again for what is behind a position. Runs on the
// goroutine that calls Next.
func (r *reading) readAgain(after inbox.Position) {
	for _, src := range r.sources {
		src.next = min(src.next, after+1)
	}
}

// hasAcked reports whether something may be acknowledged without PUBACK.
func (h *handle) hasAcked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hasAckedLocked()
}

func (h *handle) hasAckedLocked() bool { return h.acked || h.acks.Load() > 0 }

// noteAcked notes that something may be, without anything being withdrawn from the owner.
func (h *handle) noteAcked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked = true
}

func (h *handle) allSources() []*source {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sources
}

// setSources replaces what h reads of a stream. Runs on the committer, before the
// commit: what h may read, up to last, the change does not touch. Cost: a look at
// each source; a copy of all only if the stream was read already.
func (h *handle) setSources(st *stream, sources []*source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	isOld := func(s *source) bool { return s.stream == st }
	if slices.ContainsFunc(h.sources, isOld) {
		h.sources = slices.DeleteFunc(slices.Clone(h.sources), isOld)
	}
	h.sources = append(h.sources, sources...) // behind what its readers see
}

// durable notes how far the inbox has come, which is being stored. Runs on the
// committer; what follows from it is written behind the state, or deleted after the
// commit.
func (h *handle) durable(r progressRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durableLocked(r)
}

func (h *handle) durableLocked(r progressRecord) {
	h.sent, h.open, h.waiting = r.Sent, 0, r.waiting
	if len(r.Open) > 0 {
		h.open = r.Open[0].Position
	}
}

// finishedDurably returns up to where everything is finished by what is stored.
func (h *handle) finishedDurably() inbox.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.finishedDurablyLocked()
}

func (h *handle) finishedDurablyLocked() inbox.Position {
	base := h.sent
	if h.open != 0 {
		base = h.open - 1
	}
	if len(h.waiting) > 0 {
		base = min(base, h.waiting[0].After)
	}
	return base
}

// finished returns up to where nothing is left for the receiver to get or to
// acknowledge. That may be more than was sent, if all that was found since is for
// others: a member with No Local does not hold up its own messages.
func (h *handle) finished() inbox.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == 0 && len(h.ready) == 0 && h.sent >= h.returned && len(h.waiting) == 0 {
		return max(h.sent, h.position)
	}
	return h.finishedDurablyLocked()
}
