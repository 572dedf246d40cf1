package client

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// DefaultSeen is how many ids a [Seen] remembers if nothing else is said.
const DefaultSeen = 10_000

// MaxSeen is how many ids a [Seen] can be asked to remember: it takes about 60 bytes
// of memory and 40 of disk for each.
const MaxSeen = 10_000_000

// SeenOptions say how a [Seen] is opened. The zero value is good.
type SeenOptions struct {
	Max int          // ids that are remembered, the latest; 0 for DefaultSeen, at most MaxSeen
	Log *slog.Logger // told of damage; nil for slog.Default()
}

// Seen remembers the ids of the messages that a receiver has had, so that those that
// come again can be told from new ones. A message of QoS 1 comes again when its
// acknowledgement was lost; and one that was pulled may be delivered, too.
//
// It remembers the last ids, over any end of the process: a call that has returned
// without an error is on stable storage. The file has at most twice as many entries as
// are remembered, of 20 bytes each.
//
// # In which order
//
// Nothing is lost, and nothing is done twice unless the process ends between 2 and 3:
//
//  1. If [Seen.Has] knows the message's id, go to 4.
//  2. Do what the message asks for, so that it lasts.
//  3. Call [Seen.Add] with the id; or with those of a whole page, at the cost of one.
//  4. Acknowledge the message: with Paho by Ack, if it is told to leave
//     acknowledgements to the program; or by asking for the next page.
//
// [Seen.First] is 1 and 3 in one, for what needs no 2 that lasts, such as a line on a
// screen: call it, show the message if it is new, then acknowledge. A process that ends
// in between has not shown it, and does not when it comes again.
//
// An empty id, of a message of which the broker did not say it, is never known.
//
// All methods may be called concurrently. While one of them writes, the others wait, so
// that what they answer is on stable storage, too.
type Seen struct {
	path string
	max  int
	log  *slog.Logger

	mu    sync.Mutex // guards what follows; held while the file is written
	lock  lock
	file  seenFile
	known map[seenKey]struct{}
	ring  []seenKey // what is known, in the order of its coming, from next on when it is full
	next  int
	ended bool
}

// OpenSeen opens the filter whose file is at path, and makes it if there is none. Beside
// the file there are two more, whose names begin with path. What a crash has left
// incomplete is passed over; a file that is none of this package is renamed to
// path.damaged, and told to the log. Errors: ErrInUse while another process has it open,
// ErrNewer.
func OpenSeen(path string, o SeenOptions) (*Seen, error) {
	if o.Max < 0 || o.Max > MaxSeen {
		return nil, fmt.Errorf("open the filter: %d ids are not between 0 and %d", o.Max, MaxSeen)
	}
	if o.Max == 0 {
		o.Max = DefaultSeen
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	held, err := takeLock(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("open the filter: %w", err)
	}
	s := &Seen{path: path, max: o.Max, log: o.Log, lock: held, known: map[seenKey]struct{}{}}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the filter: %w", err), s.file.close(), held.release())
	}
	return s, nil
}

// load reads the file, and makes one if there is none that can be read.
func (s *Seen) load() error {
	file, bad, err := openSeenFile(s.path, s.remember)
	if errors.Is(err, errNoSeenFile) {
		return s.renew(nil)
	}
	if errors.Is(err, ErrDamaged) {
		aside, err := setAside(s.path)
		if err != nil {
			return err
		}
		s.log.Error("seen filter was damaged, it begins anew", "path", s.path, "set_aside", aside)
		return s.renew(nil)
	}
	if err != nil {
		return err
	}
	s.file = file
	if bad > 0 {
		s.log.Warn("seen filter had incomplete entries", "path", s.path, "entries", bad)
	}
	return nil
}

// Has reports whether an id is remembered.
func (s *Seen) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[keyOf(id)]
	return ok
}

// First remembers an id and reports whether it is new. See above for when to call it.
// After an error it is not known whether the id will be remembered. Errors: ErrClosed, or
// those of the file system; the next call tries again with a new file.
func (s *Seen) First(id string) (bool, error) {
	if id == "" {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[keyOf(id)]; ok {
		return false, nil
	}
	if err := s.addLocked([]string{id}); err != nil {
		return false, err
	}
	return true, nil
}

// Add remembers ids, all with one sync of the disk. Those that are known stay at
// the place that they have. Errors are those of First.
func (s *Seen) Add(ids ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(ids)
}

func (s *Seen) addLocked(ids []string) error {
	if s.ended {
		return fmt.Errorf("remember an id: %w", ErrClosed)
	}
	var added []seenKey
	among := map[seenKey]bool{}
	for _, id := range ids {
		k := keyOf(id)
		if _, ok := s.known[k]; ok || among[k] || id == "" {
			continue
		}
		among[k] = true
		added = append(added, k)
	}
	if len(added) == 0 {
		return nil
	}
	if !s.file.fits(len(added), 2*s.max) {
		return s.renew(added)
	}
	if err := s.file.append(added); err != nil {
		return fmt.Errorf("remember an id: %w", err)
	}
	for _, k := range added {
		s.remember(k)
	}
	return nil
}

// renew writes a new file with what is remembered and what is added.
func (s *Seen) renew(added []seenKey) error {
	all := make([]seenKey, 0, len(s.ring)+len(added))
	all = append(all, s.ring[s.next:]...)
	all = append(all, s.ring[:s.next]...)
	all = append(all, added...)
	all = all[max(len(all)-s.max, 0):]
	if err := s.file.close(); err != nil {
		return fmt.Errorf("renew the filter: %w", err)
	}
	file, err := newSeenFile(s.path, all)
	if err != nil {
		return fmt.Errorf("renew the filter: %w", err)
	}
	s.file = file
	for _, k := range added {
		s.remember(k)
	}
	return nil
}

// remember puts an id behind those that are known, and forgets the oldest if there are
// too many.
func (s *Seen) remember(k seenKey) {
	if _, ok := s.known[k]; ok {
		return
	}
	s.known[k] = struct{}{}
	if len(s.ring) < s.max {
		s.ring = append(s.ring, k)
		return
	}
	delete(s.known, s.ring[s.next])
	s.ring[s.next] = k
	s.next = (s.next + 1) % s.max
}

// Close gives the file back. Has, First and Add of ids that are known go on to answer.
func (s *Seen) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	return errors.Join(s.file.close(), s.lock.release())
}
