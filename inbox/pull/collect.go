package pull

import (
	"context"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of the reading for one answer.
const (
	maxReads = 10  // pages of the store; those of which nothing may be shown could be very many
	minRead  = 100 // messages in one of them when not all may be shown
)

// reader reads a page of the store.
type reader func(context.Context, inbox.Query) (inbox.Page, error)

// collector fills one answer.
type collector struct {
	*pageQuery
	read reader
	keep func(*inbox.Envelope) bool // whether a message may be shown; nil for all
	enc  encoding
	room int // bytes that there are for messages; one without its texts always fits

	answer MessagesAnswer
	bytes  int // of the messages in the answer
	full   bool
	lost   []inbox.Gap
}

// collect reads until the answer is full, there is no more, or enough was read.
func (q *pageQuery) collect(ctx context.Context, a Asker, enc encoding, read reader, keep func(*inbox.Envelope) bool) (MessagesAnswer, error) {
	c := &collector{pageQuery: q, read: read, keep: keep, enc: enc, room: a.room(skeletonSize + minGaps*gapSize)}
	c.answer.Messages = []Message{}
	before := q.cursor.at
	for n, more := 0, true; more && !c.full && n < maxReads; n++ {
		var err error
		if more, err = c.readPage(ctx); err != nil {
			return MessagesAnswer{}, err
		}
		c.answer.More = more
	}
	c.answer.Gaps = c.gaps(c.room - c.bytes)
	given := len(c.answer.Messages) > 0 || len(c.answer.Gaps) > 0 && q.cursor.at != before
	if given || c.answer.More {
		c.answer.Next = q.next(given)
	}
	return c.answer, nil
}

// next is the cursor of a page that ends at q.cursor.at, and that has given something or
// nothing.
func (q *pageQuery) next(given bool) string {
	c := q.cursor
	switch {
	case given && q.started:
		c.first = q.start
	case c.newestFirst:
		c.first = 0
	default:
		c.first = c.at
	}
	if !q.walking {
		c.walk = c.first
	}
	return c.String()
}

// readPage adds one page of the store to the answer, and reports whether more
// follows what the answer has. A page that has changed meanwhile adds nothing.
func (c *collector) readPage(ctx context.Context) (more bool, err error) {
	before, at := *c, *c.pageQuery
	c.Max = c.limit - len(c.answer.Messages)
	if c.keep != nil {
		c.Max = max(c.Max, minRead)
	}
	c.MaxBytes = max(1, min(c.maxBytes, c.room)-c.bytes) + c.Max*int(emptySize) // no less than fits
	page, err := c.read(ctx, c.Query)
	if err != nil {
		return false, err
	}

	taken := 0
	for taken < len(page.Entries) && c.take(page.Entries[taken]) {
		taken++
	}
	left := page.Entries[taken:]
	if same, err := c.lose(ctx, page, taken); err != nil || !same {
		*c, *c.pageQuery = before, at
		return true, err
	}

	if c.cursor.kind == ofPull {
		remaining := Count(page.Remaining)
		for _, e := range left {
			remaining.Messages++
			remaining.Bytes += contentSize(e.Envelope)
		}
		c.answer.Remaining = &remaining
	}
	c.goOn()
	return page.More || len(left) > 0, nil
}

// take adds one entry to the answer, or passes over one that may not be shown. It
// reports false if there is no room for it.
func (c *collector) take(e inbox.Entry) bool {
	if c.full {
		return false
	}
	if c.keep != nil && !c.keep(e.Envelope) {
		c.cursor.at = e.Position
		return true
	}
	m := messageOf(e.Envelope)
	size := c.enc.messageSize(&m)
	if len(c.answer.Messages) == 0 {
		size = c.enc.shrink(&m, size, c.room)
	} else if c.bytes+size > min(c.maxBytes, c.room) {
		c.full = true
		return false
	}
	c.answer.Messages = append(c.answer.Messages, m)
	c.bytes += size
	c.full = len(c.answer.Messages) == c.limit || c.bytes >= c.maxBytes

	c.cursor.at = e.Position
	if !c.started {
		c.start, c.started = e.Position, true
		if !c.NewestFirst {
			c.start--
		}
	}
	return true
}

// goOn has the next read begin where this one has ended.
func (c *collector) goOn() {
	switch at := (inbox.Bound{Position: c.cursor.at}); {
	case c.cursor.at == 0:
	case c.NewestFirst:
		c.Before = at
	default:
		c.After = at
	}
}

// contentSize is what a message counts for in [inbox.Count].
func contentSize(e *inbox.Envelope) int64 { return int64(e.Size()) - emptySize }

var emptySize = int64((&inbox.Envelope{}).Size())
