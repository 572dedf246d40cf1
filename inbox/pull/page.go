package pull

import (
	"context"
	"math"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// pageQuery is what PullRequest and HistoryRequest have in common, checked.
type pageQuery struct {
	inbox.Query
	limit    int
	maxBytes int // of the encoded messages, unless the first alone is larger
	cursor   cursor
	came     bool // the request has a cursor of a page, and it is cursor
}

// newPageQuery checks a request. id is what cursors know the inbox by.
func newPageQuery(a Asker, r HistoryRequest, kind cursorKind, id [8]byte) (pageQuery, error) {
	q := pageQuery{
		limit:    clamp(r.Limit, DefaultLimit, MaxLimit),
		maxBytes: clamp(r.MaxBytes, DefaultBytes, MaxBytes),
	}
	if err := a.check(); err != nil {
		return q, err
	}
	selection, err := newSelection(r.Sender, r.Topic)
	if err != nil {
		return q, err
	}
	switch r.Order {
	case NewestFirst:
		q.NewestFirst = true
	case OldestFirst:
	default:
		return q, badRequest(`order must be "asc" or "desc"`)
	}
	q.Selection = selection
	q.cursor = cursor{kind: kind, newestFirst: q.NewestFirst, inbox: id, selection: selectionHash(selection)}
	if q.After, err = q.place("after", r.After, !q.NewestFirst); err != nil {
		return q, err
	}
	if q.Before, err = q.place("before", r.Before, q.NewestFirst); err != nil {
		return q, err
	}
	if r.Before != "" && q.Before == (inbox.Bound{}) {
		q.Before = nowhere
	}
	return q, nil
}

// clamp brings n within 1 to most; 0 stands for the default.
func clamp(n, byDefault, most int) int {
	if n == 0 {
		return byDefault
	}
	return max(1, min(n, most))
}

func newSelection(sender, topic string) (inbox.Selection, error) {
	if topic != "" {
		if _, _, shared := inbox.Shared(topic); shared || !inbox.ValidFilter(topic) {
			return inbox.Selection{}, badRequest("topic: %.60q is not a topic filter", topic)
		}
	}
	return inbox.Selection{Sender: sender, Filter: topic}, nil
}

// place reads one bound of a page. goesOn tells that it is the one where the
// cursor of the page before belongs.
func (q *pageQuery) place(field, s string, goesOn bool) (inbox.Bound, error) {
	if s == "" {
		return inbox.Bound{}, nil
	}
	if !isCursor(s) {
		b, err := ParsePlace(s)
		if err != nil {
			err = badRequest("%s: %s, nor a cursor", field, ErrorOf(err).Message)
		}
		return b, err
	}
	c, err := parseCursor(s)
	if err != nil {
		return inbox.Bound{}, err
	}
	if err := q.cursor.accepts(c, field, goesOn); err != nil {
		return inbox.Bound{}, err
	}
	if c.kind != ofPosition {
		q.cursor, q.came = *c, true
	}
	if c.at == 0 && field == "before" {
		return nowhere, nil
	}
	return inbox.Bound{Position: c.at}, nil
}

// collect reads pages until the answer is full or there is no more, but no more
// than maxReads of them: those that keep does not want may be very many.
func (q *pageQuery) collect(ctx context.Context, a Asker, enc encoding,
	read func(context.Context, inbox.Query) (inbox.Page, error), keep func(*inbox.Envelope) bool,
) (MessagesAnswer, error) {
	answer := MessagesAnswer{Messages: []Message{}}
	q.cursor.first = 0
	c := &collector{pageQuery: q, answer: &answer, enc: enc, room: a.room(skeletonSize + minGaps*gapSize), keep: keep}
	for n := 0; ; n++ {
		more, err := c.read(ctx, read)
		if err != nil {
			return answer, err
		}
		if answer.More = more; !more || c.full || n == maxReads-1 {
			break
		}
	}
	if len(answer.Messages) > 0 || answer.More {
		answer.Next = q.cursor.String()
	}
	answer.Gaps = c.gaps(c.room - c.bytes)
	return answer, nil
}

// maxReads is how many pages of the store one answer takes at most.
const maxReads = 10

// collector fills one answer.
type collector struct {
	*pageQuery
	answer *MessagesAnswer
	enc    encoding
	keep   func(*inbox.Envelope) bool // nil keeps all

	room  int // bytes that there are for messages, at least what one takes without its texts
	bytes int // of the messages in the answer
	full  bool
	lost  []inbox.Gap
}

// read adds one page of the store to the answer, and reports whether more
// follows what the answer has.
func (c *collector) read(ctx context.Context, read func(context.Context, inbox.Query) (inbox.Page, error)) (more bool, err error) {
	c.Max = c.limit - len(c.answer.Messages)
	if c.keep != nil {
		c.Max = max(c.Max, minRead)
	}
	c.MaxBytes = 2*c.maxBytes + c.Max // more than its messages have, encoded: an envelope is larger than its name in JSON
	page, err := read(ctx, c.Query)
	if err != nil {
		return false, err
	}

	taken := 0
	for taken < len(page.Entries) && c.take(page.Entries[taken]) {
		taken++
	}
	left := page.Entries[taken:]
	if len(left) == 0 {
		if page.Next != 0 {
			c.cursor.at = page.Next
		}
	} else if len(page.Gaps) > 0 { // some are behind the end of the answer
		if page.Gaps, err = c.gapsOf(ctx, taken, read); err != nil {
			return false, err
		}
	}
	c.lost = append(c.lost, page.Gaps...)
	c.goOn()

	if c.cursor.kind == ofPull {
		remaining := &Count{page.Remaining.Messages, page.Remaining.Bytes, page.Remaining.AtLeast}
		for _, e := range left {
			remaining.Messages++
			remaining.Bytes += contentSize(e.Envelope)
		}
		c.answer.Remaining = remaining
	}
	return page.More || len(left) > 0, nil
}

// minRead is how many messages are read at a time when not all may be shown.
const minRead = 100

// take adds one entry to the answer, and reports whether it is done with, in the answer or
// passed over.
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

	c.cursor.at, c.cursor.last = e.Position, e.Position
	if c.cursor.walk == 0 {
		c.cursor.walk = e.Position
	}
	if c.cursor.first == 0 {
		c.cursor.first = e.Position
	}
	return true
}

// goOn has the next read begin where this one has ended.
func (c *collector) goOn() {
	if c.cursor.at == 0 {
		return
	}
	if c.NewestFirst {
		c.Before = inbox.Bound{Position: c.cursor.at}
	} else {
		c.After = inbox.Bound{Position: c.cursor.at}
	}
}

// gapsOf returns the gaps among the first entries that the query gives.
func (c *collector) gapsOf(ctx context.Context, n int, read func(context.Context, inbox.Query) (inbox.Page, error)) ([]inbox.Gap, error) {
	if n == 0 {
		return nil, nil
	}
	q := c.Query
	q.Max = n
	page, err := read(ctx, q)
	return page.Gaps, err
}

// gaps are those of the answer. What does not fit is added up by its reason.
func (c *collector) gaps(room int) []Gap {
	gaps := make([]Gap, 0, len(c.lost))
	for _, g := range c.lost {
		gaps = append(gaps, Gap{Time(g.From), Time(g.To), g.Messages, string(g.Reason)})
	}
	if len(gaps) <= minGaps || len(gaps) <= maxGaps && len(gaps)*gapSize <= room+minGaps*gapSize {
		return gaps
	}
	merged := gaps[:0]
	for _, g := range gaps {
		i := slices.IndexFunc(merged, func(m Gap) bool { return m.Reason == g.Reason })
		if i < 0 {
			merged = append(merged, g)
			continue
		}
		merged[i] = Gap{min(merged[i].From, g.From), max(merged[i].To, g.To), merged[i].Count + g.Count, g.Reason}
	}
	return merged
}

// maxGaps is how many gaps one answer tells at most.
const maxGaps = 16

// shrink leaves out of a message what is in the way of its fitting into room, and returns its
// size.
func (enc encoding) shrink(m *Message, size, room int) int {
	if size <= room {
		return size
	}
	m.Truncated = true
	m.PayloadBytes = len(m.Payload) + len(m.PayloadBase64)
	for _, leaveOut := range []func(){
		func() { m.Payload, m.PayloadBase64 = "", nil },
		func() { m.Properties = nil },
		func() { m.CorrelationData = nil },
		func() { m.ResponseTopic = "" },
		func() { m.ContentType = "" },
		func() { m.Client = "" },
		func() { m.Sender = "" },
		func() { m.Topic = "" },
	} {
		leaveOut()
		if size = enc.messageSize(m); size <= room {
			break
		}
	}
	return size
}

// check refuses an asker that takes no answers in which there is room for something.
func (a Asker) check() error {
	if a.MaxAnswer != 0 && a.MaxAnswer < MinAnswer {
		return &Error{CodeTooLarge, "answers may need 1024 bytes, and the asker takes less"}
	}
	return nil
}

// room is what an answer has room for beside a fixed part.
func (a Asker) room(fixed int) int {
	if a.MaxAnswer == 0 {
		return math.MaxInt32
	}
	return a.MaxAnswer - fixed
}

var emptySize = int64((&inbox.Envelope{}).Size())

// contentSize is what a message counts for in [inbox.Count].
func contentSize(e *inbox.Envelope) int64 { return int64(e.Size()) - emptySize }
