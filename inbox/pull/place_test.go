package pull

import (
	"errors"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestPlacesAreRead(t *testing.T) {
	id := inbox.MessageID{Sequence: 0x1a2b, Store: 0xc0ffee01}
	for _, c := range []struct {
		text     string
		expected inbox.Bound
	}{
		{"0", inbox.Bound{}},
		{id.String(), inbox.Bound{ID: id}},
		{"2025-10-09T08:53:20.123Z", inbox.Bound{Time: 1_760_000_000_123}},
		{"2025-10-09T08:53:20Z", inbox.Bound{Time: 1_760_000_000_000}},
		{"2025-10-09T10:53:20.123+02:00", inbox.Bound{Time: 1_760_000_000_123}},
		{"1869-10-09T08:53:20Z", inbox.Bound{}},
	} {
		if got, err := ParsePlace(c.text); err != nil || got != c.expected {
			t.Errorf("%q: got %+v, %v", c.text, got, err)
		}
		if isCursor(c.text) {
			t.Errorf("%q is taken for a cursor", c.text)
		}
	}
	for _, s := range []string{"", "1", "-1", "yesterday", "2025-10-09", "0000000000001A2B-C0FFEE01", "0000000000001a2b"} {
		var told *Error
		if got, err := ParsePlace(s); !errors.As(err, &told) || told.Code != CodeBadRequest {
			t.Errorf("%q: got %+v, %v", s, got, err)
		}
	}
}
