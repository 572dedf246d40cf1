package badger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// An erasure takes many commits. So that it is completed whenever the process ends, or the
// caller loses patience, it is noted before the first of them, and the note goes with the
// last; see sweeper.completeErasures:
//
//	E name(sender)    msgpack [version, sender, upTo]
const erasureVersion = 1

// erasure is a sender of whom everything up to a position is erased.
type erasure struct {
	sender string
	upTo   inbox.Position
}

func (e erasure) key() []byte { return appendName([]byte{prefixErasure}, e.sender) }

func (e erasure) append(dst []byte) ([]byte, error) {
	return appendRecord(dst, erasureVersion, e.sender, uint64(e.upTo))
}

func parseErasure(b []byte) (erasure, error) {
	d := openRecord("erasure", b, erasureVersion, 3)
	e := erasure{strings.Clone(d.Text("sender")), inbox.Position(d.Uint("position", math.MaxUint64))}
	return e, d.err()
}

// Erase implements [inbox.Archive]. What the sender publishes meanwhile may stay. Cost:
// two commits, that of reading all that the sender has in history, and a commit for each 200
// messages; a look at each inbox that has an index, and making those anew that have the name.
func (s *Store) Erase(ctx context.Context, sender string) (n int, err error) {
	if sender == "" {
		return 0, nil // nobody is called so
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("erase: %w", err)
	}
	// Once it is noted somebody must complete it: this wait is to its end.
	e, err := run(context.WithoutCancel(ctx), s, "note", func(g *commitGroup) (erasure, error) { return g.noteErasure(sender) })
	if err == nil {
		if n, err = s.erase(ctx, e); err != nil {
			s.sweeper.begun(e)
		}
	}
	if err != nil {
		return n, fmt.Errorf("erase: %w", err)
	}
	return n, nil
}

// noteErasure notes that everything is to be erased that a sender has published so far.
func (g *commitGroup) noteErasure(sender string) (erasure, error) {
	e := erasure{sender, g.s.sequence}
	value, err := e.append(nil)
	if err != nil {
		return e, fmt.Errorf("encode: %w", err)
	}
	g.put(e.key(), value)
	return e, nil
}

// loadErasures finds those that the last process did not complete.
func (s *Store) loadErasures(txn *badger.Txn) error {
	return each(txn, []byte{prefixErasure}, func(_, v []byte) error {
		e, err := parseErasure(v)
		if err == nil {
			s.sweeper.begun(e)
		}
		return err
	})
}

// eraseAtOnce is how many messages are erased in one commit.
const eraseAtOnce = 200

// erase completes what is noted, and returns how many messages that were. It may have been
// begun, and another may be at it.
func (s *Store) erase(ctx context.Context, e erasure) (n int, err error) {
	if n, err = s.eraseMessages(ctx, e); err != nil {
		return n, err
	}
	for _, h := range s.histories.all {
		if err := s.indexer.forget(ctx, h.incarnation, e); err != nil {
			return n, fmt.Errorf("take the name out of indexes: %w", err)
		}
	}
	if err := s.forgetInInboxes(ctx, e.sender); err != nil {
		return n, fmt.Errorf("take the name out of indexes: %w", err)
	}
	return n, s.do(ctx, "note the end", func(g *commitGroup) error { return g.erased(e) })
}

// eraseMessages makes marks of all that the sender has in history, with what is there though
// its time is over: it is sent again where a delivery of QoS 2 has begun.
func (s *Store) eraseMessages(ctx context.Context, e erasure) (n int, err error) {
	q := archiveQuery{over: true, Query: inbox.Query{
		Selection: inbox.Selection{Sender: e.sender}, Max: eraseAtOnce, MaxBytes: groupBytes,
		Before: inbox.Bound{Position: e.upTo + 1},
	}}
	for {
		page, err := s.readHistory(ctx, q)
		if err != nil {
			return n, err
		}
		erased, err := run(ctx, s, "make marks", func(g *commitGroup) (int, error) { return g.erase(page.Entries, e.sender) })
		n += erased
		if err != nil || !page.More {
			return n, err
		}
		if q.After.Position = page.Next; page.Next == 0 {
			q.After.Position = page.Entries[len(page.Entries)-1].Position
		}
	}
}

// erase makes marks without names of messages that a sender has published, and returns
// how many of those that history gives were none before.
func (g *commitGroup) erase(all []inbox.Entry, sender string) (n int, err error) {
	stored := g.s.db.NewTransaction(false)
	defer stored.Discard()
	for i := range all {
		m, err := g.inHistory(stored, all[i].Position)
		switch {
		case errors.Is(err, inbox.ErrUnknownID) || err == nil && m.envelope.Sender() != sender:
			continue // it has gone meanwhile, or somebody else was faster
		case err != nil:
			return n, err
		}
		if !m.envelope.Deleted && !m.over {
			n++
		}
		if err := g.mark(m, true); err != nil {
			return n, err
		}
	}
	return n, nil
}

// erased takes the note of an erasure away, unless one that goes further has taken its place.
func (g *commitGroup) erased(e erasure) error {
	item, err := g.txn.Get(e.key())
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil // another has completed it
	}
	var noted erasure
	if err == nil {
		err = item.Value(func(v []byte) (err error) { noted, err = parseErasure(v); return err })
	}
	if err != nil {
		return err
	}
	if noted.upTo <= e.upTo {
		g.delete(e.key())
	}
	return nil
}

// begun notes an erasure that nobody is at any more.
func (w *sweeper) begun(e erasure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.erasures = append(w.erasures, e)
}

// completeErasures completes what was begun. What fails is tried again in the next round.
func (w *sweeper) completeErasures() {
	w.mu.Lock()
	all := w.erasures
	w.erasures = nil
	w.mu.Unlock()
	for _, e := range all {
		if _, err := w.s.erase(w.s.background, e); err != nil {
			w.begun(e)
			if !errors.Is(err, inbox.ErrClosed) && !errors.Is(err, context.Canceled) {
				w.s.log.Error("a sender is not erased until the next try", "error", err)
			}
		}
	}
}
