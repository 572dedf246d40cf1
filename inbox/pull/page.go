package pull

import (
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// pageQuery is what a PullRequest or a HistoryRequest asks for.
type pageQuery struct {
	inbox.Query
	limit    int    // messages in the answer
	maxBytes int    // of the encoded messages, unless the first alone is larger
	cursor   cursor // that of the request, or where a walk begins
	came     bool   // the request has a cursor of a page
	walking  bool   // and the walk has given something

	// Where the page begins, as cursor.first has it, if that can be said before it is read.
	start   inbox.Position
	started bool
}

// newPageQuery checks a request. own is what cursors of its inbox have.
func newPageQuery(a Asker, r HistoryRequest, own cursor) (pageQuery, error) {
	q := pageQuery{
		limit:    clamp(r.Limit, DefaultLimit, MaxLimit),
		maxBytes: clamp(r.MaxBytes, DefaultBytes, MaxBytes),
		cursor:   own,
	}
	if a.MaxPage > 0 {
		q.maxBytes = min(q.maxBytes, a.MaxPage)
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
		q.started = r.After == ""
	default:
		return q, badRequest(`order must be "asc" or "desc"`)
	}
	q.Selection = selection
	q.cursor.newestFirst, q.cursor.selection = q.NewestFirst, selectionHash(selection)
	if q.After, err = q.after(r.After); err != nil {
		return q, err
	}
	q.Before, err = q.before(r.Before)
	return q, err
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

func (q *pageQuery) after(s string) (inbox.Bound, error) {
	c, b, err := q.place("after", s, !q.NewestFirst)
	if c == nil {
		return b, err
	}
	if !q.NewestFirst {
		q.start, q.started = c.at, true
	}
	return inbox.Bound{Position: c.at}, nil
}

func (q *pageQuery) before(s string) (inbox.Bound, error) {
	c, b, err := q.place("before", s, q.NewestFirst)
	if c == nil {
		if b == (inbox.Bound{}) && s != "" {
			b = inbox.Bound{Position: 1} // nothing is in front of it
		}
		return b, err
	}
	at := max(c.at, 1)
	if c.kind == ofPosition {
		at = c.at + 1 // what it has counted is in front of it
	}
	if q.NewestFirst {
		q.start, q.started = at-1, true
	}
	return inbox.Bound{Position: at}, nil
}

// place reads one bound of a page: a cursor, or what is returned as it is. goesOn
// tells that the cursor of the page before belongs there.
func (q *pageQuery) place(field, s string, goesOn bool) (*cursor, inbox.Bound, error) {
	if s == "" {
		return nil, inbox.Bound{}, nil
	}
	if !isCursor(s) {
		b, err := ParsePlace(s)
		if err != nil {
			err = badRequest("%s: %s, nor a cursor", field, ErrorOf(err).Message)
		}
		return nil, b, err
	}
	c, err := parseCursor(s)
	if err != nil {
		return nil, inbox.Bound{}, err
	}
	if err := q.cursor.accepts(c, field, goesOn); err != nil {
		return nil, inbox.Bound{}, err
	}
	if c.kind != ofPosition {
		_, through := c.walked()
		q.cursor, q.came, q.walking = *c, true, through != 0
	}
	return c, inbox.Bound{}, nil
}
