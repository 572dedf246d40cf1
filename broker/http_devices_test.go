package broker

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// An app that counts unread messages for a user, and not for a device, has one inbox
// for that, which all devices ask over HTTP: a new one finds what is unread, and a
// late one does not take it back (cases 144, 148).
func TestHTTPOneInboxForAllDevices(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		for range 100 {
			f.publish("chat/alice", "hello", as("bob", "x"))
		}
		unread := func() int64 { return want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/alice/summary", nil).Messages }
		read := func(through string) {
			want[pull.AckAnswer](f, "POST", "/v1/inboxes/alice/acknowledge", pull.AckRequest{Through: through})
		}

		page := func(limit string) pull.MessagesAnswer {
			return want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages?limit="+limit, nil)
		}
		older, newer := page("60").Next, page("80").Next
		read(newer)
		if n := unread(); n != 20 {
			t.Errorf("a new device is told of %d unread messages, want 20", n)
		}
		if n := len(want[pull.MessagesAnswer](f, "GET", "/v1/history?topic=chat/alice&limit=1000", nil).Messages); n != 100 {
			t.Errorf("a new device finds %d messages in history, want 100", n)
		}

		read(older) // by a device that has been away
		if n := unread(); n != 20 {
			t.Errorf("%d unread messages after an older mark, want 20", n)
		}
	})
}
