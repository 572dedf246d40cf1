package badger

import (
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// acknowledged reads what receivers have acknowledged by themselves. The pieces of a
// pair follow each other, and do not touch.
func (v *verifier) acknowledged() error {
	var before struct {
		incarnation incarnation
		pair        pair
		through     inbox.Position
	}
	return v.each(prefixAcked, ackedKeyLength, func(r verified) {
		o := v.owner(r.key, "what is acknowledged")
		spans, err := parseAcked(r.key, r.value)
		if err != nil {
			v.damaged(r.key, err)
			return
		}
		inc, of := keyIncarnationOf(r.key), ackedPair(r.key)
		if before.incarnation == inc && before.pair == of && spans[0].After <= before.through {
			v.damaged(r.key, fmt.Errorf("acknowledged behind %d, and up to %d in the piece before: %w", spans[0].After, before.through, inbox.ErrDamaged))
		}
		before.incarnation, before.pair, before.through = inc, of, spans[len(spans)-1].Through
		if o != nil && !o.ended {
			o.acked = max(o.acked, before.through)
			v.taken(r.key, "acknowledged position", before.through)
		}
	})
}

// stamps reads the clock. It ascends with the time.
func (v *verifier) stamps() error {
	last := inbox.Position(0)
	return v.each(prefixStamp, 9, func(r verified) {
		t, err := parseStamp(r.key, r.value)
		if err == nil && t.upTo < last {
			err = fmt.Errorf("read clock: up to %d after %d: %w", t.upTo, last, inbox.ErrDamaged)
		}
		if err != nil {
			v.damaged(r.key, err)
			return
		}
		last = t.upTo
		v.taken(r.key, "number", t.upTo)
	})
}
