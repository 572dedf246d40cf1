package badger

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// owner is an incarnation to which records belong.
type owner struct {
	incarnation incarnation
	receiver    inbox.Receiver  // empty if there is no session any more
	stream      *verifiedStream // whose own session it is, if it is one
	swept       inbox.Position
	finished    inbox.Position // everything up to here is
	acked       inbox.Position // the last that was acknowledged by itself; 0 for nothing
	session     bool           // there is a record of it
	history     bool           // it is the one of a history
	ended       bool           // it is noted to be purged
	unreadable  bool           // its state cannot be read
	subscribed  bool           // of a group: to its inner filter
}

func (o *owner) String() string {
	switch {
	case o.stream != nil:
		return fmt.Sprintf("stream %q", o.stream.filter)
	case o.history:
		return fmt.Sprintf("history %q", o.receiver[2:])
	case isGroup(o.receiver):
		return fmt.Sprintf("group %q", o.receiver[1:])
	case o.session:
		return fmt.Sprintf("session %q", o.receiver)
	default:
		return fmt.Sprintf("ended session %d", o.incarnation)
	}
}

// meta reads the store's own records.
func (v *verifier) meta() error {
	sizes := map[string]int{
		string(keyFormat): 1, string(keyStore): 4, string(keySequence): 8, string(keyIncarnation): 8, string(keyPadding): -1,
	}
	var format byte
	err := v.each(prefixMeta, -1, func(r verified) {
		size, known := sizes[string(r.key)]
		switch {
		case !known:
			v.damaged(r.key, fmt.Errorf("unknown record: %w", inbox.ErrDamaged))
		case size >= 0 && len(r.value) != size:
			v.damaged(r.key, fmt.Errorf("record of %d bytes, not %d: %w", len(r.value), size, inbox.ErrDamaged))
		case bytes.Equal(r.key, keyFormat):
			format = r.value[0]
		case bytes.Equal(r.key, keySequence):
			v.sequence = inbox.Position(binary.BigEndian.Uint64(r.value))
		case bytes.Equal(r.key, keyIncarnation):
			v.incarnation = incarnation(binary.BigEndian.Uint64(r.value))
		}
	})
	if err == nil && format > formatVersion {
		err = fmt.Errorf("format %d, this program knows up to %d: use the later version: %w", format, formatVersion, inbox.ErrNewer)
	}
	return err
}

// sessions reads the sessions, and the notes to purge those that have ended.
func (v *verifier) sessions() error {
	err := v.each(prefixSession, -2, func(r verified) {
		s, err := parseSession(r.value)
		if err == nil && !bytes.Equal(r.key, sessionKey(s.receiver)) {
			err = fmt.Errorf("session of %q under another key: %w", s.receiver, inbox.ErrDamaged)
		}
		if err != nil {
			v.damaged(r.key, err)
			return
		}
		o := owner{incarnation: s.incarnation, receiver: inbox.Receiver(strings.Clone(string(s.receiver))), session: true}
		if filter, ok := streamFilter(o.receiver); ok {
			o.stream = &verifiedStream{filter: filter, least: endless}
			v.streams[filter] = o.stream
			v.sum.Streams++
		} else if _, o.history = historyFilter(o.receiver); o.history {
			v.sum.Histories++
		} else if isGroup(o.receiver) {
			v.sum.Groups++
		} else {
			v.sum.Sessions++
		}
		v.own(r.key, o)
	})
	if err == nil {
		err = v.each(prefixPurge, 9, func(r verified) {
			v.own(r.key, owner{incarnation: incarnation(keyNumber(r.key)), ended: true})
		})
	}
	if err == nil {
		v.sortOwners()
	}
	return err
}

// sortOwners sorts them by incarnation, and reports those that share one. The first
// of them counts.
func (v *verifier) sortOwners() {
	slices.SortStableFunc(v.owners, func(a, b owner) int { return cmp.Compare(a.incarnation, b.incarnation) })
	kept := v.owners[:0]
	for _, o := range v.owners {
		last := len(kept) - 1
		switch {
		case last < 0 || kept[last].incarnation != o.incarnation:
			kept = append(kept, o)
		case o.session:
			v.fault(FaultDamaged, sessionKey(o.receiver), "%s has the incarnation of %s", &o, &kept[last])
		default:
			v.fault(FaultLost, numberKey(prefixPurge, uint64(o.incarnation)), "what belongs to %s is noted to be deleted", &kept[last])
		}
	}
	v.owners = kept
}

func (v *verifier) own(key []byte, o owner) {
	if o.incarnation > v.incarnation {
		v.fault(FaultLost, key, "%s has incarnation %d, which is beyond those that are taken, %d: another will have it too",
			&o, o.incarnation, v.incarnation)
	}
	v.owners = append(v.owners, o)
}

// owner returns to whom a record belongs. If that is nobody, it reports so once
// for all records of the kind.
func (v *verifier) owner(key []byte, what string) *owner {
	inc := keyIncarnationOf(key)
	i, ok := slices.BinarySearchFunc(v.owners, inc, func(o owner, inc incarnation) int { return cmp.Compare(o.incarnation, inc) })
	if ok {
		return &v.owners[i]
	}
	if stray := [9]byte(key); stray != v.stray && !v.unreadable[prefixSession] {
		v.stray = stray
		v.fault(FaultStays, key, "%s of incarnation %d, which is no session's", what, inc)
	}
	return nil
}

func (v *verifier) subscriptions() error {
	return v.each(prefixSubscription, -10, func(r verified) {
		o := v.owner(r.key, "subscription")
		sub, err := parseSubscription(r.value)
		if err == nil && !bytes.Equal(r.key[9:], appendName(nil, sub.Filter)) {
			err = fmt.Errorf("subscription to %q under another key: %w", sub.Filter, inbox.ErrDamaged)
		}
		if err != nil {
			v.damaged(r.key, err)
			return
		}
		if o == nil || o.ended {
			return
		}
		v.sum.Subscriptions++
		v.subscription(r.key, o, sub)
	})
}

func (v *verifier) subscription(key []byte, o *owner, sub subscriptionRecord) {
	v.taken(key, "beginning", sub.since)
	v.taken(key, "end", leftUntil(sub.left))
	for _, seg := range sub.past {
		v.taken(key, "end", seg.until)
	}
	if _, _, ok := inbox.Shared(sub.Filter); ok && sub.subscribed {
		v.shared[strings.Clone(sub.Filter)] = true
	}
	if isGroup(o.receiver) {
		_, inner, _ := inbox.Shared(string(o.receiver[1:]))
		o.subscribed = o.subscribed || sub.Filter == inner
	}
	switch {
	case sub.member || len(sub.past) > 0:
		v.reader(key, o, sub)
	case !sub.subscribed && len(sub.left) == 0:
		v.fault(FaultStays, key, "%s has a record of %q that says nothing", o, sub.Filter)
	}
}

// compareOwners compares the groups with their members, which are theirs by name.
func (v *verifier) compareOwners() {
	groups := map[string]bool{}
	for i := range v.owners {
		o := &v.owners[i]
		if !isGroup(o.receiver) || o.stream != nil || o.history {
			continue
		}
		filter := string(o.receiver[1:])
		groups[filter] = true
		if o.ended || v.unreadable[prefixSubscription] {
			continue
		}
		if v.shared[filter] && !o.subscribed { // without members it ends at the next start
			v.fault(FaultLost, sessionKey(o.receiver), "%s has members and no subscription: they get nothing", o)
		}
	}
	for filter := range v.shared {
		if !groups[filter] && !v.unreadable[prefixSession] {
			v.fault(FaultLost, sessionKey(inbox.GroupReceiver(filter)), "%q has members and no group: they get nothing", filter)
		}
	}
}

// states reads how far everybody has come.
func (v *verifier) states() error {
	return v.each(prefixState, 9, func(r verified) {
		o := v.owner(r.key, "delivery state")
		p, err := parseProgress(r.value)
		if err != nil {
			v.damaged(r.key, err)
		}
		if o == nil {
			return
		}
		if err != nil {
			o.unreadable = true
			return
		}
		o.swept, o.finished = p.swept, p.finished()
		v.taken(r.key, "delivered position", p.Sent)
		v.taken(r.key, "swept position", p.swept)
		switch {
		case o.stream != nil || o.history || o.ended:
		case p.swept > p.Sent:
			v.fault(FaultLost, r.key, "%s is swept up to %d, and was sent only what is up to %d", o, p.swept, p.Sent)
		case len(p.waiting) > 0 && p.swept > p.waiting[0].After:
			v.fault(FaultLost, r.key, "%s is swept up to %d, and something waits behind %d", o, p.swept, p.waiting[0].After)
		}
	})
}

// marks reads the wills, the packet ids of QoS 2, and the names of messages. A will needs no owner: one of
// a session that was in memory is published at the next start.
func (v *verifier) marks() error {
	err := v.each(prefixWill, 9, func(r verified) {
		if _, err := parseWill(slices.Clone(r.value)); err != nil {
			v.damaged(r.key, err)
		}
	})
	if err != nil {
		return err
	}
	err = v.each(prefixReceived, 11, func(r verified) {
		v.owner(r.key, "packet id")
		if len(r.value) > 0 {
			v.damaged(r.key, fmt.Errorf("packet id with a value of %d bytes: %w", len(r.value), inbox.ErrDamaged))
		}
	})
	if err != nil {
		return err
	}
	err = v.each(prefixName, 17, func(r verified) {
		_, sequence, err := parseName(r.value)
		if err != nil {
			v.damaged(r.key, err)
		}
		v.taken(r.key, "named message", inbox.Position(sequence))
	})
	if err != nil {
		return err
	}
	err = v.each(prefixErasure, -2, func(r verified) {
		e, err := parseErasure(r.value)
		if err == nil && !bytes.Equal(r.key, e.key()) {
			err = fmt.Errorf("erasure of %q under another key: %w", e.sender, inbox.ErrDamaged)
		}
		if err != nil {
			v.damaged(r.key, err)
		}
		v.taken(r.key, "erased position", e.upTo)
	})
	if err != nil {
		return err
	}
	return v.each(prefixDeletion, 9, func(r verified) {
		if _, err := parseDeletion(r.value); err != nil {
			v.damaged(r.key, err)
		}
		v.deleted = append(v.deleted, inbox.Position(keyNumber(r.key)))
		v.taken(r.key, "deleted message", inbox.Position(keyNumber(r.key)))
	})
}

func (v *verifier) retained() error {
	return v.each(prefixRetained, -2, func(r verified) {
		e, _, err := (&Store{}).parseRetained(r.value)
		if err == nil && !bytes.Equal(r.key, retainedKey(e.Topic)) {
			err = fmt.Errorf("retained message of %q under another key: %w", e.Topic, inbox.ErrDamaged)
		}
		if err != nil {
			v.damaged(r.key, err)
			return
		}
		v.sum.Retained++
		v.taken(r.key, "retained message", e.ID.Sequence)
	})
}

// others looks for keys of a kind that is not known.
func (v *verifier) others() error {
	known := []byte{
		prefixMeta, prefixSession, prefixSubscription, prefixBlock, prefixState, prefixPurge,
		prefixBody, prefixCount, prefixRetained, prefixWill, prefixReceived, prefixName, prefixDeletion, prefixIndexed, prefixList, prefixTopic,
		prefixAcked, prefixBehind, prefixStamp, prefixErasure,
	}
	it := v.txn.NewIterator(badger.IteratorOptions{})
	defer it.Close()
	for it.Rewind(); it.Valid(); {
		key := it.Item().KeyCopy(nil)
		if !bytes.Contains(known, key[:1]) {
			v.damaged(key, fmt.Errorf("unknown record: %w", inbox.ErrDamaged))
		}
		if key[0] == 0xff {
			break
		}
		it.Seek([]byte{key[0] + 1})
	}
	return nil
}
