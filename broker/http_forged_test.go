package broker

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// forge changes what is inside of a cursor, whose checksum is no secret: its flags,
// positions, and what the store has put there.
func forge(t *testing.T, cursor string, flags byte, inside []byte) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < 22 {
		t.Fatalf("%q: %v", cursor, err)
	}
	b = append(b[:18:18], inside...) // the inbox and the selection are as they were
	b[1] = flags
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

// A cursor that somebody has made up reads and acknowledges nothing but the asker's own,
// and does no harm.
func TestHTTPForgedCursors(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		f.receiver("bob", "chat/#")
		const all = 12
		for range all {
			f.publish("chat/"+strings.Repeat("a", all), "hello", as("carol", "x"))
		}
		unread := func(client string) int64 {
			return want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/"+client+"/summary", nil).Messages
		}
		page := want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages?limit=2", nil).Next
		position := want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/alice/summary", nil).Position
		history := want[pull.MessagesAnswer](f, "GET", "/v1/history?limit=2", nil).Next
		random := rand.New(rand.NewPCG(1, 2))
		positions := func() (b []byte) {
			for range 3 {
				p := random.Uint64() >> random.UintN(64)
				if random.IntN(3) == 0 {
					p = ^p >> 63
				}
				b = binary.AppendUvarint(b, p)
			}
			for range random.IntN(40) {
				b = append(b, byte(random.UintN(256)))
			}
			return b
		}
		ask := func(method, path string, body any) {
			t.Helper()
			if got := f.ask(method, path, body); got.status != 200 && got.status != 400 {
				t.Errorf("%s %s: status %d: %s", method, path, got.status, got.body)
			}
		}
		for range 8 {
			for _, original := range []string{page, position, history} {
				inside := positions()
				for flags := range byte(16) {
					c := url.QueryEscape(forge(t, original, flags, inside))
					switch flags & 3 {
					case 1:
						ask("GET", "/v1/history?before="+c, nil)
						ask("GET", "/v1/history?order=asc&after="+c, nil)
					case 2:
						ask("GET", "/v1/inboxes/alice/summary?limit=1&next="+c, nil)
					default:
						ask("GET", "/v1/inboxes/alice/messages?limit=2&ack=false&after="+c, nil)
						ask("GET", "/v1/inboxes/alice/messages?limit=2&ack=false&order=desc&before="+c, nil)
					}
				}
			}
		}
		if n := unread("alice"); n != all {
			t.Errorf("%d are unread, want %d", n, all)
		}
		for range 40 {
			flags := byte(random.UintN(16)) &^ 3
			c := forge(t, page, flags|byte(random.UintN(2))*3, positions())
			ask("POST", "/v1/inboxes/alice/acknowledge", pull.AckRequest{Through: c})
			ask("GET", "/v1/inboxes/alice/messages?after="+c, nil)
			if code := f.refused(400, "GET", "/v1/inboxes/bob/messages?after="+c, nil); code != pull.CodeBadCursor {
				t.Errorf("%s", code)
			}
		}
		if n := unread("bob"); n != all {
			t.Errorf("%d of somebody else are unread, want %d", n, all)
		}
		// What comes now is unread, whatever was said to be acknowledged before.
		f.publish("chat/later", "later", as("carol", "x"))
		got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages", nil).Messages)
		if len(got) == 0 || got[len(got)-1] != "later" {
			t.Errorf("unread: %q", got)
		}
	})
}

// Every byte of a cursor counts, and no other inbox takes it.
func TestHTTPCursorsAreOfOneInbox(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	f.receiver("alice", "chat/#")
	f.receiver("bob", "chat/#")
	f.publish("chat/a", "1")
	f.publish("chat/a", "2")
	page := want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages?limit=1", nil).Next
	refused := func(client, cursor string) {
		t.Helper()
		for _, code := range []string{
			f.refused(400, "GET", "/v1/inboxes/"+client+"/messages?after="+url.QueryEscape(cursor), nil),
			f.refused(400, "POST", "/v1/inboxes/"+client+"/acknowledge", pull.AckRequest{Through: cursor}),
			f.refused(400, "GET", "/v1/inboxes/"+client+"/summary?next="+url.QueryEscape(cursor), nil),
		} {
			if code != pull.CodeBadCursor && code != pull.CodeBadRequest {
				t.Errorf("%s: code %s", cursor, code)
			}
		}
	}
	refused("bob", page)
	for i := range page {
		changed := []byte(page)
		if changed[i]++; changed[i] == '[' || changed[i] == '{' {
			changed[i] = '0'
		}
		refused("alice", string(changed))
		refused("alice", page[:i]+"\x00"+page[i+1:])
		refused("alice", page[:i]+page[i+1:])
	}
	if n := want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/alice/summary", nil).Messages; n != 2 {
		t.Errorf("%d are unread", n)
	}
}
