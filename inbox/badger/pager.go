package badger

import (
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

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

// addTally counts several messages.
func addTally(c *inbox.Count, t tally) {
	c.Messages += int64(t.messages)
	c.Bytes += int64(t.bytes)
}
