package badger

import (
	"context"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of what one page costs. Beyond the first it is short, and beyond the second,
// entries behind the page, what remains is not counted.
const (
	pageLook  = 100_000
	countLook = 20_000
)

// Pull implements [inbox.Puller]. A page costs what reading it costs, wherever it is,
// and counting what remains.
func (s *Store) Pull(ctx context.Context, r inbox.Receiver, q inbox.Query) (page inbox.Page, err error) {
	err = s.ask(ctx, r, func(u *unread) error {
		if q.Read {
			if err := u.withRead(); err != nil {
				return err
			}
		}
		after, upTo, err := u.bounds(q)
		if err != nil {
			return err
		}
		p := pager{query: q, look: pageLook}
		err = u.each(ctx, after, upTo, q.NewestFirst, p.take)
		page = p.done()
		return err
	})
	if err != nil {
		return inbox.Page{}, fmt.Errorf("pull: %w", err)
	}
	return page, nil
}

// pager makes a page of the entries that it is given, in the order of reading.
type pager struct {
	query inbox.Query
	page  inbox.Page
	bytes int
	at    inbox.Position // of the entry before
	lost  inbox.Position // of the last behind the last entry of the page whose time is over
	look  int            // so many more may be looked at
}

// take takes an entry, and reports whether it wants another.
func (p *pager) take(e met) bool {
	page, meant := &p.page, p.query.Matches(e.Envelope)
	size := e.Envelope.Size()
	if p.look--; p.look < 0 {
		page.Remaining.AtLeast = true
		if !page.More {
			page.More, page.Next = true, p.at
		}
		return false
	}
	p.at = e.Position
	switch {
	case !meant, page.More && e.over: // what is lost behind the page is of another
	case page.More:
		addTo(&page.Remaining, e.Envelope)
	case e.over:
		lose(&page.Gaps, e.Envelope)
		p.lost = e.Position
	case len(page.Entries) >= p.query.Max, len(page.Entries) > 0 && p.bytes+size > p.query.MaxBytes:
		page.More, page.Next = true, p.lost
		addTo(&page.Remaining, e.Envelope)
		p.look = countLook
	default:
		page.Entries = append(page.Entries, e.Entry)
		p.bytes += size
		p.lost = 0
	}
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
