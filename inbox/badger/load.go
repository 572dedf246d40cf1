package badger

import (
	"container/heap"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// leftovers are what the last process left to be settled.
type leftovers struct {
	cut     []inbox.Member              // sessions that were connected when it ended
	stale   []inbox.Member              // sessions whose time is over
	ended   []inbox.Receiver            // those whose session had ended, and whose record had not gone yet
	orphans map[incarnation]*inbox.Will // of sessions that were in memory only

	forgotten []inbox.Member // histories of filters that are not named any more
}

// manySessions is from how many sessions on the memory that loading took, which
// is more than they keep, is given back to the system.
const manySessions = 10_000

// load reads what the committer keeps in memory.
func (s *Store) load() (left leftovers, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		if err := s.loadMeta(txn); err != nil {
			return err
		}
		s.loadDeletions(txn)
		if err := s.loadErasures(txn); err != nil {
			return err
		}
		if err := s.loadStamps(txn); err != nil {
			return err
		}
		left, err = s.loadSessions(txn)
		return err
	})
	if err == nil && s.id == 0 {
		err = s.create()
	}
	if err == nil && s.sessions.used > manySessions {
		err = s.releaseMapped()
		debug.FreeOSMemory()
	}
	return left, translate(err)
}

// settle treats every session that was connected as closed without a goodbye, and
// ends those whose time is over.
func (s *Store) settle(left leftovers) error {
	if len(left.cut) == 0 && len(left.stale) == 0 && len(left.ended) == 0 && len(left.orphans) == 0 && len(left.forgotten) == 0 &&
		len(s.streams.byFilter) == 0 && len(s.histories.all) == 0 {
		return nil
	}
	return s.do(context.Background(), "settle sessions", func(g *commitGroup) error {
		g.settleHistories(left.forgotten)
		for _, r := range left.ended {
			g.delete(sessionKey(r))
		}
		for _, m := range left.cut {
			if sess := s.sessions.at(m); sess.incarnation != 0 { // a timer may have been faster
				g.putSession(sess) // its time runs from now, and not again from the next start
			}
		}
		for _, m := range left.stale {
			if s.sessions.at(m).incarnation != 0 { // may have ended with another, as a group does
				g.end(m)
			}
		}
		for _, st := range s.streams.all() {
			g.shrink(st) // may not be wanted any more, or have lost everyone
		}
		for inc, will := range left.orphans {
			g.publishOwn(will.Envelope, inc)
		}
		return nil
	})
}

// formatVersion is the version of the whole layout.
const formatVersion = 1

// create writes the records of a new store.
func (s *Store) create() error {
	var id [4]byte
	for s.id == 0 {
		if _, err := rand.Read(id[:]); err != nil {
			return fmt.Errorf("draw the store's id: %w", err)
		}
		s.id = binary.BigEndian.Uint32(id[:])
	}
	return translate(s.db.Update(func(txn *badger.Txn) error {
		if err := txn.Set(keyFormat, []byte{formatVersion}); err != nil {
			return err
		}
		return txn.Set(keyStore, id[:])
	}))
}

func (s *Store) loadMeta(txn *badger.Txn) error {
	read := func(key []byte, size int) (uint64, error) {
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		var n uint64
		err = item.Value(func(v []byte) error {
			if len(v) != size {
				return fmt.Errorf("record %s has %d bytes, not %d: %w", key, len(v), size, inbox.ErrDamaged)
			}
			for _, c := range v {
				n = n<<8 | uint64(c)
			}
			return nil
		})
		return n, err
	}
	format, err := read(keyFormat, 1)
	if err != nil {
		return err
	}
	if format > formatVersion {
		return fmt.Errorf("format %d, this program knows up to %d: use the later version: %w", format, formatVersion, inbox.ErrNewer)
	}
	id, err := read(keyStore, 4)
	if err != nil {
		return err
	}
	sequence, err := read(keySequence, 8)
	if err != nil {
		return err
	}
	inc, err := read(keyIncarnation, 8)
	if err != nil {
		return err
	}
	s.id = uint32(id)
	s.sequence, s.sequenceEnd = inbox.Position(sequence), inbox.Position(sequence)
	s.visible.Store(sequence)
	s.incarnation, s.incarnationEnd = incarnation(inc), incarnation(inc)
	return nil
}

// loadSessions fills the sessions and the index. Cost: about 1 µs for a session
// with one subscription.
func (s *Store) loadSessions(txn *badger.Txn) (left leftovers, err error) {
	subscriptions := startAhead(s.db, []byte{prefixSubscription})
	defer subscriptions.close()
	purged := map[incarnation]bool{}
	err = each(txn, []byte{prefixPurge}, func(k, v []byte) error {
		note := ended{incarnation(keyNumber(k)), len(v) > 0}
		purged[note.incarnation] = true
		s.sweeper.ended = append(s.sweeper.ended, note)
		return nil
	})
	if err != nil {
		return left, err
	}
	err = each(txn, []byte{prefixSession}, func(_, v []byte) error {
		sess, err := parseSession(v)
		switch {
		case err != nil:
			return err
		case purged[sess.incarnation]: // a crash fell between the two
			left.ended = append(left.ended, inbox.Receiver(strings.Clone(string(sess.receiver))))
		default:
			s.sessions.addUnnamed(sess)
		}
		return nil
	})
	if err != nil {
		return left, err
	}
	s.sessions.sortByIncarnation()
	groups := s.sessions.groups()
	for _, m := range groups {
		r := inbox.Receiver(s.sessions.nameOf(m))
		if filter, ok := streamFilter(r); ok {
			s.addStream(filter, m)
		} else if filter, ok := historyFilter(r); ok && !s.histories.found(filter, m, s.sessions.at(m).incarnation) {
			left.forgotten = append(left.forgotten, m)
		}
	}
	named := make(chan struct{})
	go func() { s.sessions.nameAll(); close(named) }() // meanwhile nobody else needs the names
	err = s.loadSubscriptions(subscriptions)
	<-named
	if err != nil {
		return left, err
	}
	s.loadedStreams()
	if err := s.loadIndexes(txn); err != nil {
		return left, err
	}
	left.lonely(s, groups)
	if left.orphans, err = s.loadWills(txn); err != nil {
		return left, err
	}
	s.findLeft(&left, time.Now().UnixMilli())
	return left, nil
}

// loadSubscriptions fills the index. Their keys are in the order of incarnations,
// and so are the members: each is above those before, and goes to the end of the
// members of its filters.
func (s *Store) loadSubscriptions(all *ahead) error {
	m := inbox.Member(1)
	return all.each(func(k, v []byte) error {
		inc := keyIncarnationOf(k)
		for m < s.sessions.used && s.sessions.at(m).incarnation < inc {
			m++
		}
		if m == s.sessions.used || s.sessions.at(m).incarnation != inc {
			return nil // of a session that is being purged
		}
		sub, err := parseSubscription(v)
		if err != nil {
			return err
		}
		return s.loadSubscription(m, sub)
	})
}

// findLeft sets the timers of the sessions, and finds those that the last
// process left connected, or whose time is over.
func (s *Store) findLeft(left *leftovers, now int64) {
	for m := inbox.Member(1); m < s.sessions.used; m++ {
		sess := s.sessions.at(m)
		if sess.ended == 0 {
			sess.ended = now
			left.cut = append(left.cut, m)
		}
		if sess.over() <= now {
			left.stale = append(left.stale, m)
		} else {
			s.note(m)
		}
	}
	s.timers = slices.Clone(s.timers) // appending left room for as many
	heap.Init(&s.timers)
}

// lonely adds the groups that have no members.
func (left *leftovers) lonely(s *Store, groups []inbox.Member) {
	for _, m := range groups {
		name := inbox.Receiver(s.sessions.nameOf(m))
		if _, ok := historyFilter(name); !ok && s.streams.byMember[m] == nil && s.index.Members(string(name[1:])) == 0 {
			left.stale = append(left.stale, m)
		}
	}
}

// each calls f with every key and value of a prefix; they are valid only
// during the call. Prefetching values would cost a goroutine for each.
func each(txn *badger.Txn, prefix []byte, f func(k, v []byte) error) error {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if err := item.Value(func(v []byte) error { return f(item.Key(), v) }); err != nil {
			return err
		}
	}
	return nil
}
