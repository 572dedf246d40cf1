package badger

import "github.com/mqtt-inbox/mqtt-inbox/inbox"

// ended is a session of which everything is to be deleted.
type ended struct {
	incarnation incarnation
	history     bool // it is the one of a history
}

// value is what stands under the note that the session is to be purged.
func (e ended) value() []byte {
	if e.history {
		return []byte{1}
	}
	return nil
}

// takeEnded returns the sessions that have ended since the last time.
func (w *sweeper) takeEnded() []ended {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.ended
	w.ended = nil
	return ended
}

// purgeAll deletes everything of sessions that have ended, many in one commit.
func (w *sweeper) purgeAll(b *sweepBatch, ended []ended) error {
	for _, e := range ended {
		if err := w.purge(b, e); err != nil {
			return err
		}
		if len(b.keys) < sweepKeys {
			continue
		}
		if err := b.flush(); err != nil {
			return err
		}
	}
	return b.flush()
}

// purge adds to the batch everything of an ended session, and behind that the note
// that it is to be deleted.
func (w *sweeper) purge(b *sweepBatch, e ended) error {
	inc := e.incarnation
	b.history = e.history
	err := b.finished(inc, 0, ^inbox.Position(0), 0, nil, nil)
	b.history = false
	if err != nil {
		return err
	}
	for _, prefix := range []byte{prefixSubscription, prefixReceived, prefixList, prefixTopic, prefixAcked, prefixBehind} {
		if err := b.all(numberKey(prefix, uint64(inc))); err != nil {
			return err
		}
	}
	b.keys = append(b.keys, numberKey(prefixState, uint64(inc)), indexedKey(inc), numberKey(prefixPurge, uint64(inc)))
	return nil
}
