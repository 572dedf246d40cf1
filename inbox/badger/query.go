package badger

import (
	"context"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of what one page costs. Beyond the first it is short; beyond the second,
// entries behind the page, what remains is not counted where the index does not tell.
const (
	pageLook  = 100_000
	countLook = 20_000
)

// Pull implements [inbox.Puller]. A page costs what reading its messages costs, wherever
// they are, and a few searches for each sender and topic that is meant, to count what
// remains.
func (s *Store) Pull(ctx context.Context, r inbox.Receiver, q inbox.Query) (page inbox.Page, err error) {
	err = s.askSorted(ctx, r, func(u *unread, sort func() (*sorted, error)) (err error) {
		if q.Read {
			if err := u.withRead(); err != nil {
				return err
			}
		}
		page, err = u.pull(ctx, q, sort)
		return err
	})
	if err != nil {
		return inbox.Page{}, fmt.Errorf("pull: %w", err)
	}
	return page, nil
}

// pull reads a page, by the index when it has looked at some entries in vain.
func (u *unread) pull(ctx context.Context, q inbox.Query, sort func() (*sorted, error)) (page inbox.Page, err error) {
	after, upTo, err := u.bounds(q)
	if err != nil {
		return page, err
	}
	p := &pager{query: q, look: pageLook, count: u.s.sizes.few}
	if q.Selection != (inbox.Selection{}) {
		p.look = u.s.sizes.few
	}
	if err := u.each(ctx, after, upTo, q.NewestFirst, p.take); err != nil || !p.gaveUp {
		return p.done(), err
	}
	x, err := sort()
	if err == nil {
		defer x.close()
		page, err = x.pull(ctx, p, after, upTo)
	}
	if isUnsorted(err) {
		p = &pager{query: q, look: pageLook, count: countLook}
		err = u.each(ctx, after, upTo, q.NewestFirst, p.take)
		page = p.done()
	}
	return page, err
}

// pull completes a page: it is full, and what remains is not counted, or it is to be
// looked for once more.
func (x *sorted) pull(ctx context.Context, p *pager, after, upTo inbox.Position) (inbox.Page, error) {
	q := p.query
	if !p.full {
		p = &pager{query: q, look: pageLook}
		if err := x.eachMeant(ctx, q.Selection, after, upTo, q.NewestFirst, p.take); err != nil {
			return inbox.Page{}, err
		}
	}
	page := p.done()
	if !page.More {
		return page, nil
	}
	if q.NewestFirst {
		upTo = p.end - 1
	} else {
		after = p.end
	}
	remaining, err := x.count(ctx, q.Selection, after, upTo)
	if isUnsorted(err) {
		remaining, err = x.countSome(ctx, q.Selection, after, upTo)
	}
	page.Remaining = remaining
	return page, err
}

// countSome counts what is unread and meant by a selection behind one position and up to
// another, by reading some of it.
func (u *unread) countSome(ctx context.Context, sel inbox.Selection, after, upTo inbox.Position) (c inbox.Count, err error) {
	look := countLook
	err = u.each(ctx, after, upTo, false, func(e met) bool {
		if look--; look < 0 {
			c.AtLeast = true
			return false
		}
		if !e.over && sel.Matches(e.Envelope) {
			addTo(&c, e.Envelope)
		}
		return true
	})
	return c, err
}
