package badger

import (
	"context"
	"errors"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// sortTries is how often somebody waits for an index that falls behind again.
const sortTries = 5

// askSorted is ask for who may need the index of an inbox, which sort opens. Its errors
// are to be returned, but for errUnsorted: then do is called again when there is such an
// index, or with a sort that returns errUnsorted.
func (s *Store) askSorted(ctx context.Context, r inbox.Receiver, do func(u *unread, sort func() (*sorted, error)) error) error {
	for range sortTries {
		var o outlook
		err := s.ask(ctx, r, func(u *unread) error {
			o = u.outlook
			return do(u, u.sort)
		})
		var missing notIndexedError
		var behind behindError
		switch {
		case errors.As(err, &missing):
			err = s.makeIndexes(ctx, o, missing)
		case errors.As(err, &behind):
			if err = s.indexer.await(ctx, incarnation(behind)); errors.Is(err, inbox.ErrNoSession) {
				err = nil // it may be a stream that has ended
			}
		default:
			return err
		}
		if err != nil {
			return err
		}
	}
	return s.ask(ctx, r, func(u *unread) error {
		return do(u, func() (*sorted, error) { return nil, errUnsorted })
	})
}

// isUnsorted reports whether something is to be read because the index does not tell.
func isUnsorted(err error) bool {
	return errors.Is(err, errUnsorted) || errors.Is(err, inbox.ErrDamaged)
}

// makeIndexes has an inbox that was looked at be indexed, or streams that it reads.
func (s *Store) makeIndexes(ctx context.Context, o outlook, missing []incarnation) error {
	return s.do(ctx, "make index", func(g *commitGroup) error {
		if s.sessions.at(o.member).incarnation != o.incarnation {
			return inbox.ErrNoSession
		}
		members := map[incarnation]inbox.Member{o.incarnation: o.member}
		for _, st := range s.streams.of(o.member) {
			members[st.incarnation] = st.member
		}
		for _, inc := range missing {
			if m, ok := members[inc]; ok {
				g.makeIndex(m, kindsOfInbox)
			}
		}
		return nil
	})
}
