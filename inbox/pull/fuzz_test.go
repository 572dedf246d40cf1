package pull

import (
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// Whatever the request, there is an answer that can be read and is not too large.
func FuzzDo(f *testing.F) {
	store := &shelf{}
	for i := range 20 {
		store.put(1, "ben", "chat/"+strings.Repeat("t", i*i))
		store.put(1, "ann", "chat/1")
	}
	s := New(store, Options{Rewind: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	answer, err := s.Pull(f.Context(), phone, PullRequest{Limit: 3, Ack: new(bool)})
	if err != nil {
		f.Fatal(err)
	}
	for _, request := range []any{
		map[string]any{}, map[string]any{"limit": 5}, map[string]any{"after": answer.Next}, map[string]any{"through": answer.Next},
		map[string]any{"order": "desc", "sender": "ben", "topic": "chat/#", "max_bytes": 300, "before": "2026-01-01T00:00:00Z", "ack": false},
		map[string]any{"ids": []string{answer.Messages[0].ID}}, map[string]any{"mode": "pull"}, map[string]any{"id": answer.Messages[0].ID},
		map[string]any{"next": answer.Next, "limit": -1}, []int{1}, "text", nil, 1e300,
	} {
		asJSON, err1 := json.Marshal(request)
		asMsgpack, err2 := msgpack.Marshal(request)
		if err1 != nil || err2 != nil {
			f.Fatal(err1, err2)
		}
		for i := range Operations() {
			f.Add(byte(i), asJSON, "", uint16(0))
			f.Add(byte(i), asMsgpack, "application/msgpack", uint16(i*1000))
		}
	}
	f.Fuzz(func(t *testing.T, operation byte, request []byte, contentType string, room uint16) {
		a := phone
		a.MaxAnswer = int(room)
		operations := append(Operations(), "other")
		b, answerType := s.Do(t.Context(), a, operations[int(operation)%len(operations)], request, contentType)
		enc := asJSON
		if answerType == TypeMsgpack {
			enc = asMsgpack
		}
		var got map[string]any
		if err := decode(enc, b, &got); err != nil {
			t.Fatalf("%q is no %s: %v", b, answerType, err)
		}
		known := []string{"error", "messages", "acknowledged", "mode", "deleted", "position"}
		if !slices.ContainsFunc(known, func(name string) bool { return got[name] != nil }) {
			t.Errorf("the answer is %v", got)
		}
		if e, ok := got["error"].(map[string]any); ok && (e["code"] == "" || e["message"] == "" || e["code"] == CodeInternal) {
			t.Errorf("the error is %v", e)
		}
		if most := max(a.MaxAnswer, MinAnswer); a.MaxAnswer != 0 && len(b) > most {
			t.Errorf("%d bytes, at most %d are taken", len(b), most)
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add((&cursor{}).String())
	f.Add((&cursor{kind: ofPull, newestFirst: true, read: true, inbox: inboxHash(7, "phone"), walk: 9, first: 8, at: 2}).String())
	f.Add((&cursor{kind: ofSummary, at: 1 << 63, next: "there"}).String())
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			return
		}
		after, through := c.page()
		if from, to := c.walked(); after >= through && through != 0 || from >= to && to != 0 {
			t.Errorf("%+v covers (%d, %d] and (%d, %d]", c, after, through, from, to)
		}
		if again, err := parseCursor(c.String()); err != nil || *again != *c {
			t.Errorf("%+v is read as %+v, %v", c, again, err)
		}
	})
}
