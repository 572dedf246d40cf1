package badger

import (
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// blockID names a block.
type blockID struct {
	incarnation incarnation
	last        inbox.Position
}

// behind reads which blocks have messages that were stored before.
func (v *verifier) behind() error {
	return v.each(prefixBehind, 17, func(r verified) {
		v.owner(r.key, "numbers of earlier messages")
		ids, err := parseBehind(r.value)
		if err != nil {
			v.damaged(r.key, err)
			return
		}
		v.earlier[blockID{keyIncarnationOf(r.key), inbox.Position(keyNumber(r.key))}] = earlier{ids, r.expiresAt}
	})
}

// earlier is the range of the numbers of a block's earlier messages, as it is
// noted, and when that note expires.
type earlier struct {
	ids       idRange
	expiresAt uint64
}

// compareEarlier compares what is noted of a block with what is in it.
func (v *verifier) compareEarlier(key []byte, ids idRange, isMarked bool) {
	id := blockID{keyIncarnationOf(key), inbox.Position(keyNumber(key))}
	noted := v.earlier[id]
	delete(v.earlier, id)
	switch {
	case noted.ids != ids && !v.unreadable[prefixBehind]:
		v.fault(FaultLost, key, "block has messages that were stored before, %d to %d, and what is noted is %d to %d: they are not found by their ids",
			ids.lowest, ids.highest, noted.ids.lowest, noted.ids.highest)
	case isMarked != (ids != idRange{}):
		v.fault(FaultStays, key, "block is not marked as it should be as one with messages that were stored before")
	}
}

// compareNotes reports the notes of blocks that are not there.
func (v *verifier) compareNotes() {
	for id, e := range v.earlier {
		if !v.gone(e.expiresAt) && !v.unreadable[prefixBlock] {
			v.fault(FaultStays, behindKey(id.incarnation, id.last), "a block up to %d is noted, which is not there", id.last)
		}
	}
}
