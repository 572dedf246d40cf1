package badger

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// recordPool holds buffers for encoded envelopes between Append and commit.
var recordPool = sync.Pool{New: func() any { return new([]byte) }}

// maxRecord bounds the stored form of a message: Badger takes values up to 1 MiB
// inline, and only inline values give their space back.
const maxRecord = 1<<20 - 1<<10

// Append implements [inbox.Store]. The caller's goroutine encodes; what is left
// for the committer is matching, copying the record into a block, and one key
// per receiver and group. Cost for one absent receiver and 256 bytes: about
// 0.3 µs on the caller and 0.5 µs on the committer, and a share of one sync.
func (s *Store) Append(ctx context.Context, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	s.enqueue(ctx, e, operation{stored: done})
}

// enqueue encodes e and hands it to the committer in op.
func (s *Store) enqueue(ctx context.Context, e *inbox.Envelope, op operation) {
	record := recordPool.Get().(*[]byte)
	*record = inbox.AppendEnvelope((*record)[:0], e)
	if len(*record) > maxRecord {
		recordPool.Put(record)
		s.refuseLater(op.stored, inbox.ErrTooLarge)
		return
	}
	op.envelope, op.record = e, record
	if err := s.queue.put(ctx, op); err != nil {
		recordPool.Put(record)
		s.refuseLater(op.stored, err)
	}
}

// refuseLater calls done in its turn: behind the operations that the same
// goroutine put before.
func (s *Store) refuseLater(done func(inbox.Receipt, error), err error) {
	refusal := operation{
		apply:   func(*commitGroup) {},
		applied: func(error) { done(inbox.Receipt{}, err) },
	}
	if !s.queue.force(refusal) {
		<-s.committed // the store is closed: whatever came before has been answered
		done(inbox.Receipt{}, inbox.ErrClosed)
	}
}

// append applies one message: it gets its number, its receivers are found, and
// it is put where each of them will read it.
func (g *commitGroup) append(e *inbox.Envelope, record []byte) (inbox.Receipt, error) {
	s := g.s
	if g.full && (e.QoS > 0 || e.Retain || s.keepQoS0) {
		return inbox.Receipt{}, inbox.ErrFull
	}
	e.ID = inbox.MessageID{Sequence: g.nextSequence(), Store: s.id}
	g.matches = g.matches[:0]
	if !strings.HasPrefix(e.Topic, inbox.SharePrefix) { // what is there are filters of members, not of topics
		g.matches = s.index.Match(e.Topic, s.sessions.member(inbox.Receiver(e.Client)), g.matches)
	}

	g.kept, g.streams = g.kept[:0], g.streams[:0]
	matched := len(g.matches)
	for i := range g.matches {
		if m := &g.matches[i]; m.QoS == streamQoS {
			st := s.streams.byMember[m.Member]
			g.giveStream(st, e)
			g.streams = append(g.streams, st)
			matched += s.streams.members.Members(st.filter) - 1
		}
	}
	for i := range g.matches {
		m := &g.matches[i]
		if m.QoS == streamQoS {
			continue
		}
		grant := inbox.Grant{
			QoS:         min(e.QoS, m.QoS),
			Retain:      e.Retain && m.RetainAsPublished,
			Identifiers: m.Identifiers,
		}
		if m.QoS == 0 && e.QoS > 0 && g.reads(m.Member, e) {
			g.kept = append(g.kept, kept{member: m.Member, grant: grant}) // for what else is granted; see isAside
		}
		g.give(m.Member, e, e.ID.Sequence, grant, s.keepQoS0 && m.QoS > 0 && s.sessions.at(m.Member).owner().isBehind())
	}
	g.archived = g.archive(e)
	g.keep(e.ID.Sequence, e, record, e.Time)
	if e.Retain {
		g.retain(e, record)
	}
	s.stats.appended.Add(1)
	return inbox.Receipt{ID: e.ID, Matched: matched}, nil
}

// give decides how one receiver gets a message at p in its inbox: live at QoS 0,
// from memory, or kept on disk (and, if it is connected, handed over as well).
// With keep it is kept at QoS 0 too.
func (g *commitGroup) give(m inbox.Member, e *inbox.Envelope, p inbox.Position, grant inbox.Grant, keep bool) {
	sess := g.s.sessions.at(m)
	h := sess.owner()
	if grant.QoS == 0 && !keep {
		if h != nil && h.live != nil {
			g.handOver(h, inbox.Entry{Envelope: e, Grant: grant}, false)
		}
		return
	}
	inMemory := !sess.stored() && h.reserve(e.Size())
	if !inMemory {
		g.spill(sess)
		g.kept = append(g.kept, kept{member: m, grant: grant})
	}
	if h != nil {
		g.handOver(h, inbox.Entry{Position: p, Envelope: e, Grant: grant}, inMemory)
	}
}

// spill notes that a session which is in memory has something on disk from now on:
// after a restart that is to be purged.
func (g *commitGroup) spill(sess sessionRef) {
	if !sess.stored() && !sess.spilled() {
		sess.setSpilled()
		g.put(numberKey(prefixPurge, uint64(sess.incarnation)), nil)
	}
}

// reads reports whether m gets the message at hand from one of the streams that it
// is in.
func (g *commitGroup) reads(m inbox.Member, e *inbox.Envelope) bool {
	return slices.ContainsFunc(g.streams, func(st *stream) bool {
		sub, ok := g.s.streams.members.Subscription(m, st.filter)
		return ok && (!sub.NoLocal || e.Client != string(g.s.sessions.at(m).receiver()))
	})
}

// isAside reports whether a receiver's own entry is there only for what it adds to
// one in a stream: the subscription has QoS 0, so that the receiver is to have the
// message live or by another subscription, and then with the identifiers of both.
func isAside(e inbox.Entry) bool { return e.QoS == 0 && e.Envelope.QoS > 0 }

// handOver has a connected receiver get an entry after the commit.
func (g *commitGroup) handOver(h *handle, e inbox.Entry, inMemory bool) {
	g.size += handoverSize
	h.handed = max(h.handed, e.Position)
	if h.attached {
		g.fan = append(g.fan, fanItem{to: h, entry: e})
		return
	}
	g.handover = append(g.handover, handover{to: h, entry: e, inMemory: inMemory})
}

// giveStream puts a message into a stream: once, whoever and how many its members
// are. Cost: that of one receiver.
func (g *commitGroup) giveStream(st *stream, e *inbox.Envelope) {
	p := e.ID.Sequence
	g.size += handoverSize
	if e.QoS == 0 && !g.s.keepQoS0 {
		g.fan = append(g.fan, fanItem{stream: st, entry: inbox.Entry{Envelope: e}})
		return
	}
	st.head.Store(uint64(p))
	g.s.streams.unswept[st] = struct{}{}
	g.kept = append(g.kept, kept{member: st.member, grant: inbox.Grant{QoS: e.QoS, Retain: e.Retain}})
	g.fan = append(g.fan, fanItem{stream: st, entry: inbox.Entry{Position: p, Envelope: e}})
}

// keep writes a message at p for the receivers in g.kept: into the one's block,
// or once as a body with a reference in each block. They have it since a time,
// Unix milliseconds, from which the store's retention counts. Histories are the
// last of them; how long they keep it is up to the sweeper.
func (g *commitGroup) keep(p inbox.Position, e *inbox.Envelope, record []byte, since int64) {
	if len(g.kept) == 0 {
		return
	}
	until := g.s.keepUntil(e, since)
	archived := g.kept[len(g.kept)-1].history != nil
	if len(g.kept) > 1 || archived {
		value := binary.AppendUvarint(make([]byte, 0, len(record)+binary.MaxVarintLen32), uint64(len(g.kept)))
		bodyUntil := until
		if archived {
			bodyUntil = ownExpiry(e)
		}
		g.putBody(p, append(value, record...), bodyUntil)
		record = nil
	}
	for _, k := range g.kept {
		if k.history != nil {
			until = ownExpiry(e)
		}
		b := g.block(k.member)
		if len(b.buf) > 0 && len(b.buf)+len(record) > maxBlock {
			g.closeBlock(b) // and with it, no value is larger than one record and its header
			b = g.block(k.member)
		}
		b.until = max(b.until, until)
		before := len(b.buf)
		b.add(p, e.ID.Sequence, k.grant, record)
		if b.index != nil {
			b.index.noteIndexed(p, e, k.grant)
		}
		g.size += len(b.buf) - before
	}
}

// handoverSize is what an entry for a connected receiver counts towards the size
// of the group, beside what is written of it.
const handoverSize = 64

// keepUntil returns until when a message is delivered, in Unix milliseconds: its
// own expiry or the store's retention, whichever is earlier; never if neither is set.
func (s *Store) keepUntil(e *inbox.Envelope, since int64) int64 {
	until := ownExpiry(e)
	if s.retention > 0 {
		until = min(until, since+s.retention.Milliseconds())
	}
	return until
}

// block returns the block that the group builds for m.
func (g *commitGroup) block(m inbox.Member) *block {
	sess := g.s.sessions.at(m)
	i, ok := sess.block()
	if !ok {
		i = len(g.blocks)
		g.blocks = append(g.blocks, block{member: m, incarnation: sess.incarnation, index: g.s.indexes[sess.incarnation]})
		sess.setBlock(i)
	}
	b := &g.blocks[i]
	if last := len(g.spare) - 1; b.buf == nil && last >= 0 {
		b.buf, g.spare = g.spare[last], g.spare[:last]
	}
	return b
}

// sequenceLease is how many numbers are taken from the store at once: one more
// key in so many messages, and that many skipped at a restart.
const sequenceLease = 1 << 20

func (g *commitGroup) nextSequence() inbox.Position {
	s := g.s
	s.sequence++
	if s.sequence >= s.sequenceEnd {
		s.sequenceEnd = s.sequence + sequenceLease
		g.put(keySequence, binary.BigEndian.AppendUint64(nil, uint64(s.sequenceEnd)))
	}
	return s.sequence
}
