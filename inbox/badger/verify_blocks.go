package badger

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// counted is a body, or a counter, and how many entries refer to it.
type counted struct {
	position  inbox.Position
	expected  uint64 // by its counter or its first count; unknownCount if that cannot be read
	seen      uint64 // of a counter: 1 if it has a body
	expiresAt uint64
	held      bool // a history refers to it
}

const unknownCount = math.MaxUint64

func findCounted(all []counted, p inbox.Position) (*counted, bool) {
	i, ok := slices.BinarySearchFunc(all, p, func(c counted, p inbox.Position) int { return cmp.Compare(c.position, p) })
	if !ok {
		return nil, false
	}
	return &all[i], true
}

// counts reads the counters and the bodies.
func (v *verifier) counts() error {
	err := v.each(prefixCount, 9, func(r verified) {
		c := counted{position: inbox.Position(keyNumber(r.key)), expected: unknownCount, expiresAt: r.expiresAt}
		if n, size := binary.Uvarint(r.value); size > 0 && size == len(r.value) {
			c.expected = n
		} else {
			v.damaged(r.key, fmt.Errorf("read counter: %w", inbox.ErrDamaged))
		}
		v.counters = append(v.counters, c)
	})
	if err != nil {
		return err
	}
	err = v.each(prefixBody, 9, func(r verified) {
		v.sum.Bodies++
		v.bodies = append(v.bodies, v.body(r))
	})
	slices.Sort(v.deleted)
	return err
}

func (v *verifier) body(r verified) counted {
	c := counted{position: inbox.Position(keyNumber(r.key)), expected: unknownCount, expiresAt: r.expiresAt}
	v.taken(r.key, "message", c.position)
	references, record, err := parseBody(r.value)
	var e *inbox.Envelope
	if err == nil {
		e, err = inbox.ParseEnvelope(record)
	}
	if err != nil {
		v.damaged(r.key, err)
	} else {
		c.expected = references
		v.clock.add(c.position, e.Time)
		if e.Deleted {
			v.deleted = append(v.deleted, c.position)
		}
	}
	if n, ok := findCounted(v.counters, c.position); ok {
		n.seen, c.expected = 1, n.expected
	}
	return c
}

// compareCounts compares how many entries refer to a body with how many should.
func (v *verifier) compareCounts() {
	for i := range v.bodies {
		c := &v.bodies[i]
		key := numberKey(prefixBody, uint64(c.position))
		switch {
		case c.expected == unknownCount || v.gone(c.expiresAt):
		case c.seen > c.expected:
			v.fault(FaultEarly, key, "%d entries refer to message %d, which goes with the %dth", c.seen, c.position, c.expected)
		case c.seen < c.expected && !v.unreadable[prefixBlock] && !v.outlives(c):
			v.fault(FaultStays, key, "%d entries refer to message %d, which goes with the %dth", c.seen, c.position, c.expected)
		}
	}
	for i := range v.counters {
		c := &v.counters[i]
		if v.missing[c.position] == nil && c.seen == 0 && !v.gone(c.expiresAt) {
			v.fault(FaultStays, numberKey(prefixCount, uint64(c.position)), "counter of message %d, which is not there", c.position)
		}
	}
}

// outlives reports whether a body may have fewer references than it counts: a history
// keeps it, or did, beyond the time of those in inboxes, which go without being counted.
func (v *verifier) outlives(c *counted) bool {
	return (c.held || c.expiresAt != 0) && v.mayBeOver(c.position)
}

// inboxRead is the inbox whose blocks are being read.
type inboxRead struct {
	incarnation incarnation
	owner       *owner // nil if it is nobody's
	progress    progressRecord
}

func (v *verifier) blocks() error {
	v.placeReaders()
	var in inboxRead
	return v.each(prefixBlock, 17, func(r verified) {
		if inc := keyIncarnationOf(r.key); in.incarnation != inc || in.owner == nil {
			in = inboxRead{incarnation: inc, owner: v.owner(r.key, "block")}
			if o := in.owner; o != nil && !o.unreadable {
				in.progress, _ = readProgress(v.txn, inc) // it was read before
			}
		}
		if err := v.block(&in, r); err != nil {
			v.damaged(r.key, err)
		}
	})
}

// block reads one block, and counts what it refers to.
func (v *verifier) block(in *inboxRead, r verified) error {
	last := inbox.Position(keyNumber(r.key))
	v.taken(r.key, "position", last)
	b, err := readBlock(r.value)
	if err != nil {
		return err
	}
	open, references, n, ids := 0, false, 0, idRange{}
	for before := inbox.Position(0); ; n++ {
		e, ok, err := b.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if e.position <= before || e.id > e.position {
			return fmt.Errorf("read block: entry at %d after %d: %w", e.position, before, inbox.ErrDamaged)
		}
		before = e.position
		if e.id != e.position {
			ids.add(e.id)
		}
		finished := in.finished(e.position)
		if !finished {
			open++
		}
		if e.reference {
			references = true
			v.refer(in, r, e.id, finished, len(b.rest) == 0 && n == 0)
			continue
		}
		env, err := inbox.ParseEnvelope(e.record)
		if err != nil {
			return err
		}
		if n == 0 && e.id == e.position {
			v.clock.add(e.position, env.Time)
		}
	}
	if b.last != last {
		return fmt.Errorf("read block: it ends at %d, its key says %d: %w", b.last, last, inbox.ErrDamaged)
	}
	v.sum.Entries += n
	v.compareEarlier(r.key, ids, r.userMeta&metaBehind != 0)
	if references && r.userMeta&metaReferences == 0 {
		v.fault(FaultStays, r.key, "block of %s is not marked as referring to messages: they would stay", in.owner)
	}
	v.place(in, r.key, last, open == 0)
	return nil
}

// finished reports whether everybody is done with an entry.
func (in *inboxRead) finished(p inbox.Position) bool {
	switch o := in.owner; {
	case o == nil || o.ended:
		return true
	case o.history:
		return p <= o.swept
	case o.stream != nil:
		return !o.stream.needs(p)
	case o.unreadable || p > in.progress.Sent || in.progress.waiting.Contains(p):
		return false
	default:
		_, open := slices.BinarySearchFunc(in.progress.Open, p, func(d inbox.Delivery, p inbox.Position) int { return cmp.Compare(d.Position, p) })
		return !open
	}
}

// place compares where a block is with how far the sweeper has come, and counts
// those that it will delete.
func (v *verifier) place(in *inboxRead, key []byte, last inbox.Position, finished bool) {
	o := in.owner
	switch {
	case o == nil || o.unreadable && !o.ended:
	case o.ended:
		v.sum.Waiting++
	case last <= o.swept:
		v.fault(FaultStays, key, "block of %s up to %d, which is swept up to %d", o, last, o.swept)
	case o.stream != nil && last <= o.stream.least, o.stream == nil && finished:
		v.sum.Waiting++
	}
}

// missing is a message that entries refer to and that is not there.
type missing struct {
	entries int
	owner   *owner // the first that has not finished it
	key     []byte // of its block
	alone   bool   // in that block, which expires with it and has not
}

// refer notes that an entry refers to the body of message p.
func (v *verifier) refer(in *inboxRead, r verified, p inbox.Position, finished, alone bool) {
	if c, ok := findCounted(v.bodies, p); ok {
		c.seen++
		c.held = c.held || in.owner != nil && in.owner.history
		return
	}
	if finished {
		return
	}
	m := v.missing[p]
	if m == nil {
		m = &missing{owner: in.owner, key: slices.Clone(r.key)}
		v.missing[p] = m
	}
	m.entries++
	m.alone = m.alone || alone && !v.gone(r.expiresAt)
}

// judgeMissing tells messages that are lost from those that nobody misses.
func (v *verifier) judgeMissing() {
	for _, p := range slices.Sorted(maps.Keys(v.missing)) {
		m := v.missing[p]
		_, counter := findCounted(v.counters, p)
		switch {
		case counter: // it was there, and its time is not over
			v.lost(p, m)
		case !v.storedAfter(p):
			v.sum.Torn += m.entries
		case m.alone || v.clock.notBefore(p)/1000+expiryMargin > v.now.Unix():
			v.lost(p, m)
		default:
			v.sum.Expired += m.entries
		}
	}
}

func (v *verifier) lost(p inbox.Position, m *missing) {
	v.fault(FaultLost, m.key, "message %d is gone, and %d entries refer to it, the first in %s", p, m.entries, m.owner)
}

// storedAfter reports whether a body after p was stored by the same process. Then
// the one of p had been stored too: bodies are written in order. The numbers of a
// process end at a multiple of the lease, plus one for each process so far, so
// that the first few behind such a multiple may be of either of two.
func (v *verifier) storedAfter(p inbox.Position) bool {
	processes := v.sequence % sequenceLease
	if in := p % sequenceLease; p > sequenceLease && in > 0 && in <= processes {
		return false
	}
	end := (p + sequenceLease - 1) / sequenceLease * sequenceLease
	i, _ := slices.BinarySearchFunc(v.bodies, p, func(c counted, p inbox.Position) int { return cmp.Compare(c.position, p) })
	return i < len(v.bodies) && v.bodies[i].position <= end
}

// clock tells when numbers were given, by the messages that are there.
type clock struct {
	ticks  []tick
	sorted bool
}

type tick struct {
	position inbox.Position
	time     int64 // Unix milliseconds
}

func (c *clock) add(p inbox.Position, time int64) { c.ticks = append(c.ticks, tick{p, time}) }

// notBefore returns a time before which p was not given, Unix milliseconds; 0 if
// that is not known. Nothing is added later.
func (c *clock) notBefore(p inbox.Position) int64 {
	if !c.sorted {
		c.sorted = true
		slices.SortFunc(c.ticks, func(a, b tick) int { return cmp.Compare(a.position, b.position) })
		for i := 1; i < len(c.ticks); i++ {
			c.ticks[i].time = max(c.ticks[i].time, c.ticks[i-1].time)
		}
	}
	i, _ := slices.BinarySearchFunc(c.ticks, p+1, func(t tick, p inbox.Position) int { return cmp.Compare(t.position, p) })
	if i == 0 {
		return 0
	}
	return c.ticks[i-1].time
}
