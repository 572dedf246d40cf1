package pull

import (
	"context"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// maxGaps is how many gaps one answer tells. More are added up.
const maxGaps = 16

// lose notes what was lost, of a page of which the answer has taken the first entries, and
// moves on behind it. It reports false if the page is not any more what it was, so that this
// cannot be told.
func (c *collector) lose(ctx context.Context, page inbox.Page, taken int) (same bool, err error) {
	if taken < len(page.Entries) {
		if taken == 0 || len(page.Gaps) == 0 {
			return true, nil
		}
		// Some of these gaps are behind the end of the answer. Only the store can tell.
		q := c.Query
		q.Max = taken
		if page, err = c.read(ctx, q); err != nil {
			return false, err
		}
		if n := len(page.Entries); n == 0 || page.Entries[n-1].Position != c.cursor.at {
			return false, nil
		}
	}
	c.lost = append(c.lost, page.Gaps...)
	if page.Next != 0 {
		c.cursor.at = page.Next
	}
	return true, nil
}

// gaps are those of the answer, which has room for minGaps of them and, beside
// that, so many bytes. Those that are too many are added up by their reasons.
func (c *collector) gaps(room int) []Gap {
	gaps := make([]Gap, 0, len(c.lost))
	for _, g := range c.lost {
		gaps = append(gaps, Gap{Time(g.From), Time(g.To), g.Messages, string(g.Reason)})
	}
	if len(gaps) <= min(maxGaps, minGaps+room/gapSize) {
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
