package badger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// quiet reads what is in a store and says nothing of damage, which was found before.
var quiet = &Store{log: slog.New(slog.DiscardHandler)}

// verifiedIndex is the index of one inbox, whose records are being read.
type verifiedIndex struct {
	incarnation incarnation
	owner       *owner // nil if it is nobody's
	indexed
	exists bool // there is a record that says so
	inbox  inboxRead
	until  deadline
	gone   []inbox.Position // messages that were deleted, ascending
	first  inbox.Position   // in front of this the inbox has nothing any more, whether that is noted or not

	lists   map[listID]*verifiedList
	of      map[[2]string][]*verifiedList
	topics  map[string]bool // that are found by their names
	noted   map[pair]bool   // pairs that are found by their topics
	damaged bool
}

// verifiedList is what is counted of one list: what somebody may still ask for.
type verifiedList struct {
	sender, topic  string
	total          tally          // up to the last record so far
	last           inbox.Position // of that record
	begun          origin         // of the first record
	whole          bool           // nothing is in front of that
	until          uint64         // when that record may go, in Badger's seconds; 0 for never
	entries        int
	digest         uint64 // of all entries, in any order
	wanted         int    // as the inbox itself has it
	digestOfWanted uint64
}

// indexes compares what is indexed with what is in the inboxes.
func (v *verifier) indexes() error {
	all := map[incarnation]*verifiedIndex{}
	at := func(key []byte, what string) *verifiedIndex {
		inc := keyIncarnationOf(key)
		x := all[inc]
		if x == nil {
			x = v.verifiedIndex(inc, v.owner(key, what))
			all[inc] = x
		}
		return x
	}
	err := v.each(prefixIndexed, 9, func(r verified) {
		x := at(r.key, "index")
		var err error
		if x.indexed, err = parseIndexed(r.value); err != nil {
			v.damaged(r.key, err)
			x.damaged = true
		}
		x.exists = true
		v.taken(r.key, "indexed position", x.sorted)
	})
	if err != nil {
		return err
	}
	err = v.each(prefixTopic, -10, func(r verified) {
		x := at(r.key, "topic")
		topic := topicOf(r.key, r.value)
		if x.topics[topic] = true; !bytes.Equal(r.key, topicKey(x.incarnation, topic)) {
			v.damaged(r.key, fmt.Errorf("topic %q under another key: %w", topic, inbox.ErrDamaged))
		}
		if x.owner != nil && !x.exists && !x.owner.ended {
			v.fault(FaultStays, r.key, "topic of %s, which is not indexed", x.owner)
		}
	})
	if err != nil {
		return err
	}
	current := (*verifiedIndex)(nil) // keys come in the order of incarnations
	err = v.each(prefixList, listKeyLength, func(r verified) {
		if current == nil || current.incarnation != keyIncarnationOf(r.key) {
			v.compareIndex(current)
			current = at(r.key, "postings")
			if current.owner != nil && !current.exists && !current.owner.ended {
				v.fault(FaultStays, r.key, "postings of %s, which is not indexed", current.owner)
			}
		}
		if err := v.postings(current, r); err != nil {
			current.damaged = true
			v.damaged(r.key, err)
		}
	})
	if err != nil {
		return err
	}
	for _, x := range all {
		v.compareIndex(x)
	}
	return nil
}

func (v *verifier) verifiedIndex(inc incarnation, o *owner) *verifiedIndex {
	x := &verifiedIndex{incarnation: inc, owner: o, lists: map[listID]*verifiedList{}, of: map[[2]string][]*verifiedList{}, noted: map[pair]bool{}, topics: map[string]bool{}}
	x.inbox = inboxRead{incarnation: inc, owner: o}
	if o != nil && !o.unreadable {
		x.inbox.progress, _ = readProgress(v.txn, inc) // it was read before
	}
	x.gone = v.deleted
	if first, ok := quiet.firstEntry(v.txn, inc, 0); ok {
		x.first = first
	} else {
		x.first = endless
	}
	x.until = deadline{now: v.now.UnixMilli(), old: math.MinInt64}
	if v.retention >= 0 && (o == nil || !o.history) {
		x.until.old = v.now.Add(-v.retention).UnixMilli()
	}
	return x
}

func (x *verifiedIndex) list(id listID) *verifiedList {
	l := x.lists[id]
	if l == nil {
		l = &verifiedList{}
		x.lists[id] = l
	}
	return l
}

// postings reads one record of a list.
func (v *verifier) postings(x *verifiedIndex, r verified) error {
	id := listOf(r.key)
	if x.exists && x.phase == indexNew {
		return nil // which is going to be deleted
	}
	if id.kind == listOfTopic {
		x.noted[id.name.swapped()] = true
		return nil
	}
	record, err := parsePostings(r.value)
	if err != nil {
		return err
	}
	l := x.list(id)
	first := l.last == 0
	defer func() { l.total, l.until = record.total(), r.expiresAt }() // whatever is wrong with it, once
	named := slices.Contains(kindsOf(id.kind).lists(string(record.sender), string(record.topic)), id)
	switch {
	case !first && record.before != l.total:
		return fmt.Errorf("read postings: %v before them, after %v: %w", record.before, l.total, inbox.ErrDamaged)
	case !first && (l.until == 0 && r.expiresAt != 0 || r.expiresAt != 0 && r.expiresAt < l.until):
		return fmt.Errorf("read postings: they go before those in front of them: %w", inbox.ErrDamaged)
	case isOpen(r.key) != (keyNumber(r.key) == uint64(endless)), !isOpen(r.key) && uint64(record.last()) != keyNumber(r.key), !named:
		return fmt.Errorf("read postings: of %q in %q up to %d, under another key: %w", record.sender, record.topic, record.last(), inbox.ErrDamaged)
	}
	if first {
		l.begun, l.whole = origin{record.at(0), r.expiresAt}, record.before.messages == 0
	}
	if !l.begun.allows(record.origin, l.whole) {
		return fmt.Errorf("read postings: the first is %v, not %v: %w", l.begun, record.origin, inbox.ErrDamaged)
	}
	var of tally
	for i := range record.n {
		p := record.at(i)
		if p.position <= l.last || p.id > p.position {
			return fmt.Errorf("read postings: one at %d after %d: %w", p.position, l.last, inbox.ErrDamaged)
		}
		l.last = p.position
		of = of.plus(p.tally())
		if x.counts(&p) {
			l.entries++
			l.digest += digestOf(&p)
		}
	}
	if record.before.plus(of) != record.total() {
		return fmt.Errorf("read postings: they come to %v, not %v: %w", of, record.total().minus(record.before), inbox.ErrDamaged)
	}
	l.sender, l.topic = string(record.sender), string(record.topic)
	return nil
}

// allows reports whether an open record may say that its list has begun at another place than
// this, where what is there begins: the whole list, or what is left of it.
func (o origin) allows(said origin, whole bool) bool {
	switch {
	case said.position == 0:
		return true
	case !whole:
		return said.position < o.position
	}
	longer := o.goes != 0 && (said.goes == 0 || said.goes > o.goes)
	return said.posting == o.posting && !longer
}

// listsOf returns the lists that have the messages of a sender in a topic. It keeps
// copies of the names.
func (x *verifiedIndex) listsOf(names [2]string) []*verifiedList {
	all, ok := x.of[names]
	if ok {
		return all
	}
	names = [2]string{strings.Clone(names[0]), strings.Clone(names[1])}
	for _, id := range x.kinds.lists(names[0], names[1]) {
		l := x.list(id)
		l.sender, l.topic = id.kind.names(names[0], names[1])
		all = append(all, l)
	}
	x.of[names] = all
	return all
}

// counts reports whether somebody may still ask for an entry. What is finished or
// over, or was deleted, may be gone from the inbox, and not yet from the index.
func (x *verifiedIndex) counts(p *posting) bool {
	if _, deleted := slices.BinarySearch(x.gone, p.id); deleted {
		return false
	}
	return p.position >= x.first && !x.inbox.finished(p.position) && !x.until.isOver(p)
}

var digestSeed = maphash.MakeSeed()

func digestOf(p *posting) uint64 {
	b := make([]byte, 0, 40)
	for _, n := range [...]uint64{uint64(p.position), uint64(p.id), p.bytes, uint64(p.time), uint64(p.expiry)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return maphash.Bytes(digestSeed, b)
}

// compareIndex counts what an inbox has, and compares that with its index.
func (v *verifier) compareIndex(x *verifiedIndex) {
	if x == nil || x.lists == nil || x.owner == nil {
		return
	}
	lists := x.lists
	if x.exists && !x.damaged && x.phase == indexKept && !x.owner.ended && !x.owner.unreadable && !v.unreadable[prefixBlock] && !v.unreadable[prefixBody] {
		v.count(x)
		for id, l := range lists {
			key := id.key(x.incarnation, l.last)
			if l.entries != l.wanted || l.digest != l.digestOfWanted {
				v.fault(FaultLost, key, "%s has %d entries of %q in %q, and its index others, %d", x.owner, l.wanted, l.sender, l.topic, l.entries)
			}
			if id.kind == listPair && l.last > 0 && !x.noted[id.name] {
				v.fault(FaultLost, key, "messages of %q are not found by topic %q in the index of %s", l.sender, l.topic, x.owner)
			}
			if id.kind == listTopic && l.last > 0 && !x.topics[l.topic] {
				v.fault(FaultLost, key, "topic %q is not found by its name in the index of %s", l.topic, x.owner)
			}
		}
	}
	x.lists, x.noted, x.of, x.topics = nil, nil, nil, nil // it is done
}

// count notes what the inbox itself has.
func (v *verifier) count(x *verifiedIndex) {
	quiet.gather(v.txn, x.incarnation, x.owner.swept, endless-1, func(p posting, sender, topic string, _ uint64) bool {
		if !x.counts(&p) {
			return true
		}
		for _, l := range x.listsOf([2]string{sender, topic}) {
			if p.position <= max(x.sorted, l.last) {
				l.wanted++
				l.digestOfWanted += digestOf(&p)
			}
		}
		return true
	})
}
