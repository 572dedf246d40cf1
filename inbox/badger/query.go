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

// pager makes a page of the entries that it is given, in the order of reading.
type pager struct {
	query  inbox.Query
	page   inbox.Page
	bytes  int
	end    inbox.Position // the page is what was met up to here
	lost   inbox.Position // of the last behind the last entry of the page whose time is over
	look   int            // so many more may be looked at
	count  int            // so many when it is full
	full   bool
	gaveUp bool // more were there than may be looked at
}

// take takes an entry, and reports whether it wants another.
func (p *pager) take(e met) bool {
	page, meant := &p.page, p.query.Matches(e.Envelope)
	size := e.Envelope.Size()
	if p.look--; p.look < 0 {
		p.gaveUp, page.Remaining.AtLeast = true, true
		if !page.More {
			page.More, page.Next = true, p.end
		}
		return false
	}
	switch {
	case p.full && meant && !e.over: // what is lost behind the page is of another
		addTo(&page.Remaining, e.Envelope)
		return true
	case p.full:
		return true
	case meant && !e.over && (len(page.Entries) >= p.query.Max || len(page.Entries) > 0 && p.bytes+size > p.query.MaxBytes):
		page.More, page.Next = true, p.lost
		addTo(&page.Remaining, e.Envelope)
		p.full, p.look = true, p.count
		return p.count > 0
	case meant && e.over:
		lose(&page.Gaps, e.Envelope)
		p.lost = e.Position
	case meant:
		page.Entries = append(page.Entries, e.Entry)
		p.bytes += size
		p.lost = 0
	}
	p.end = e.Position
	return true
}

// done returns the page. What is lost at the end of everything belongs to it.
func (p *pager) done() inbox.Page {
	if !p.page.More {
		p.page.Next = p.lost
	}
	return p.page
}

// addTo counts one message.
func addTo(c *inbox.Count, e *inbox.Envelope) {
	c.Messages++
	c.Bytes += int64(e.Size() - emptyEnvelope)
}

// lose notes a message whose time is over. A page has one gap for all of them.
func lose(gaps *[]inbox.Gap, e *inbox.Envelope) {
	if len(*gaps) == 0 {
		*gaps = []inbox.Gap{{From: e.Time, To: e.Time, Reason: inbox.GapExpired}}
	}
	gap := &(*gaps)[0]
	gap.From, gap.To = min(gap.From, e.Time), max(gap.To, e.Time)
	gap.Messages++
}
