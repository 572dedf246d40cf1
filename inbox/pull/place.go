package pull

import (
	"strings"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// ParsePlace reads what people write for a place in the order of messages: a message
// id, a time of RFC 3339, or 0 for the beginning, which is the zero Bound. A cursor is
// none of these. Its error is an [*Error].
func ParsePlace(s string) (inbox.Bound, error) {
	if s == "0" {
		return inbox.Bound{}, nil
	}
	if id, err := inbox.ParseMessageID(s); err == nil {
		return inbox.Bound{ID: id}, nil
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return inbox.Bound{Time: max(0, at.UnixMilli())}, nil
	}
	return inbox.Bound{}, badRequest("%.40q is neither a message id, nor a time like 2006-01-02T15:04:05.000Z, nor 0", s)
}

// isCursor tells a cursor, which has no colon and is longer than an id, from the
// other forms.
func isCursor(s string) bool { return len(s) > 25 && !strings.Contains(s, ":") }
