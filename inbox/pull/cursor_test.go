package pull

import (
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestCursorIsReadAsItWasWritten(t *testing.T) {
	selection := selectionHash(inbox.Selection{Sender: "ann", Filter: "a/#"})
	for _, c := range []cursor{
		{},
		{kind: ofPosition, inbox: inboxHash(7, "phone"), at: 7},
		{kind: ofPull, newestFirst: true, read: true, inbox: inboxHash(7, "phone"), selection: selection, walk: 9, first: 8, at: 2},
		{kind: ofSummary, next: "there", at: math.MaxUint64},
		{kind: ofHistory, walk: math.MaxUint64, first: math.MaxUint64, at: math.MaxUint64},
	} {
		s := c.String()
		got, err := parseCursor(s)
		if err != nil || *got != c {
			t.Errorf("%+v is read as %+v, %v", c, got, err)
		}
		if !isCursor(s) {
			t.Errorf("%q does not look like a cursor", s)
		}
		if len(s)-len(c.next)*4/3 > cursorSize {
			t.Errorf("%+v has %d characters, expected at most %d", c, len(s), cursorSize)
		}
	}
}

func TestDamagedCursorIsRefused(t *testing.T) {
	whole := (&cursor{kind: ofPull, inbox: inboxHash(7, "phone"), walk: 1, first: 2, at: 300}).String()
	damaged := []string{"", "A", whole[:len(whole)-1], whole[1:], whole + "A", whole + "AAAA", strings.Repeat("!", 60)}
	b, _ := base64.RawURLEncoding.DecodeString(whole)
	for i := range b {
		changed := append([]byte{}, b...)
		changed[i] ^= 0x10
		damaged = append(damaged, base64.RawURLEncoding.EncodeToString(changed))
	}
	for _, s := range damaged {
		c, err := parseCursor(s)
		var told *Error
		if !errors.As(err, &told) || told.Code != CodeBadCursor {
			t.Errorf("%q is read as %+v, %v", s, c, err)
		}
	}
}

func TestWhatCursorCovers(t *testing.T) {
	for _, c := range []struct {
		name           string
		cursor         cursor
		after, through inbox.Position // of the page
		from, to       inbox.Position // of the walk
	}{
		{name: "nothing"},
		{"oldest first", cursor{walk: 3, first: 10, at: 20}, 10, 20, 3, 20},
		{"newest first", cursor{newestFirst: true, walk: 30, first: 20, at: 10}, 9, 20, 9, 30},
		{"one entry, newest first", cursor{newestFirst: true, walk: 1, first: 1, at: 1}, 0, 1, 0, 1},
		{"from the very first", cursor{walk: 0, first: 0, at: 1}, 0, 1, 0, 1},
		{"an empty page", cursor{walk: 3, first: 20, at: 20}, 0, 0, 3, 20},
		{"an empty page, newest first", cursor{newestFirst: true, walk: 30, at: 20}, 0, 0, 19, 30},
		{"a walk that has given nothing, newest first", cursor{newestFirst: true, at: 20}, 0, 0, 0, 0},
	} {
		if after, through := c.cursor.page(); after != c.after || through != c.through {
			t.Errorf("%s: the page is (%d, %d], expected (%d, %d]", c.name, after, through, c.after, c.through)
		}
		if after, through := c.cursor.walked(); after != c.from || through != c.to {
			t.Errorf("%s: the walk is (%d, %d], expected (%d, %d]", c.name, after, through, c.from, c.to)
		}
	}
}

// A client that goes on after the server has got a new store has nothing acknowledged there
// that it was not given.
func TestCursorsAreOfOneStore(t *testing.T) {
	was, is := &shelf{}, &shelf{id: 8}
	was.put(10, "ben", "chat/1")
	is.put(10, "ben", "chat/1")
	old, s := New(was, Options{}), New(is, Options{})
	for _, order := range []string{OldestFirst, NewestFirst} {
		next := mustPull(t, old, phone, PullRequest{Order: order, Limit: 5}).Next
		r := PullRequest{Order: order, After: next}
		if order == NewestFirst {
			r = PullRequest{Order: order, Before: next}
		}
		_, err := s.Pull(t.Context(), phone, r)
		wantCode(t, err, CodeBadCursor)
		_, err = s.Ack(t.Context(), phone, AckRequest{Through: next})
		wantCode(t, err, CodeBadCursor)
		mustPull(t, old, phone, r)
	}
	if len(is.acked) > 0 || is.unread() != 10 {
		t.Errorf("%d are unread, expected 10; acknowledged was %+v", is.unread(), is.acked)
	}
	read, err := old.History(t.Context(), phone, HistoryRequest{Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.History(t.Context(), phone, HistoryRequest{Before: read.Next})
	wantCode(t, err, CodeBadCursor)
	counted, err := old.Summary(t.Context(), phone, SummaryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Ack(t.Context(), phone, AckRequest{Through: counted.Position})
	wantCode(t, err, CodeBadCursor)
}
