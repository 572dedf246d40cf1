package badger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// With [Options.Rewind], what is finished stays for a time after it was stored, so
// that a receiver can start again. Up to which position that time is over says a
// clock: now and then the last number that was given is written down, under the time.
//
//	T ms:8   version:1 sequence:8
const stampVersion = 1

// stampsKept is how many such notes there are in the time.
const stampsKept = 100

// stamp says that everything up to a position was stored before a time, Unix ms.
type stamp struct {
	time int64
	upTo inbox.Position
}

func stampKey(time int64) []byte { return numberKey(prefixStamp, uint64(time)) }

func (t stamp) value() []byte {
	return binary.BigEndian.AppendUint64([]byte{stampVersion}, uint64(t.upTo))
}

func parseStamp(key, b []byte) (t stamp, err error) {
	if len(b) != 9 || len(key) != 9 {
		return t, fmt.Errorf("read clock: %d bytes under %d: %w", len(b), len(key), inbox.ErrDamaged)
	}
	if err := checkVersion("stamp", int(b[0]), stampVersion); err != nil {
		return t, err
	}
	return stamp{int64(keyNumber(key)), inbox.Position(keyNumber(b))}, nil
}

// loadStamps reads the clock. Who begins again before its first round has no more than
// what the last process left.
func (s *Store) loadStamps(txn *badger.Txn) error {
	s.keepFrom.Store(uint64(endless))
	if s.rewind > 0 {
		s.keepFrom.Store(0)
	}
	over := time.Now().Add(-s.rewind).UnixMilli()
	return each(txn, []byte{prefixStamp}, func(k, v []byte) error {
		t, err := parseStamp(k, v)
		if s.stamps = append(s.stamps, t); t.time <= over {
			s.keepFrom.Store(max(s.keepFrom.Load(), uint64(t.upTo)))
		}
		return err
	})
}

// readClock has the clock go on. Runs in each round of the sweeper.
func (g *commitGroup) readClock() {
	s, now := g.s, g.now.UnixMilli()
	rewind := s.rewind.Milliseconds()
	if rewind <= 0 { // it was switched off
		for _, t := range s.stamps {
			g.delete(stampKey(t.time))
		}
		s.stamps = nil
		return
	}
	if n := len(s.stamps); n == 0 || s.stamps[n-1].upTo < s.sequence && now-s.stamps[n-1].time >= max(rewind/stampsKept, 1) {
		t := stamp{now, s.sequence}
		s.stamps = append(s.stamps, t)
		g.put(stampKey(t.time), t.value())
	}
	over := 0 // so many are no more needed, for a later one says more
	for over+1 < len(s.stamps) && s.stamps[over+1].time <= now-rewind {
		g.delete(stampKey(s.stamps[over].time))
		over++
	}
	s.stamps = slices.Delete(s.stamps, 0, over)
	if first := s.stamps[0]; first.time <= now-rewind {
		s.keepFrom.Store(max(s.keepFrom.Load(), uint64(first.upTo)))
	}
}

// keptBehind returns the position up to which what is finished need not be kept. It
// never becomes less.
func (s *Store) keptBehind() inbox.Position { return inbox.Position(s.keepFrom.Load()) }
