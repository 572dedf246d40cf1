package pull

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestOperations(t *testing.T) {
	h := newHouse(t, keepAll)
	h.join("phone", "chat/#")
	id := h.send(1, "ann", "chat/1", 0)[0]
	names := []string{OpSummary, OpPull, OpAck, OpHistory, OpMode, OpDelete}
	slices.Sort(names)
	if !slices.Equal(names, Operations()) || len(operations) != len(names) || !slices.IsSorted(Operations()) {
		t.Errorf("the operations are %v", Operations())
	}
	for _, c := range []struct{ operation, request, begins string }{
		{OpSummary, "", `{"position":"`},
		{OpPull, `{"limit":1}`, `{"messages":[{"id":"` + id + `"`},
		{OpPull, `{"topic":"none"}`, `{"messages":[],"more":false,"remaining":{"messages":0,"bytes":0}}`},
		{OpHistory, `{}`, `{"messages":[{"id":"` + id + `"`},
		{OpHistory, `{"topic":"none"}`, `{"messages":[],"more":false}`},
		{OpAck, `{"ids":["` + id + `"]}`, `{"acknowledged":1}`},
		{OpAck, `{"all":true}`, `{"acknowledged":0}`},
		{OpMode, ``, `{"mode":"push"}`},
		{OpMode, `{"mode":"pull"}`, `{"mode":"pull"}`},
		{OpMode, `{}`, `{"mode":"pull"}`},
		{OpMode, `{"mode":null}`, `{"mode":"pull"}`},
		{OpMode, `{"mode":1}`, `{"error":{"code":"bad_request","message":"mode must be a text"}}`},
		{OpDelete, `{"id":"` + id + `"}`, `{"deleted":1}`},
		{OpSummary, `{}`, `{"position":"`},
		{OpSummary, `{"limt":1}`, `{"error":{"code":"bad_request","message":"unknown field \"limt\"; there are limit, next"}}`},
		{OpSummary, `{"next":"","zeta":1,"beta":2,"":3,"alpha":4}`, `{"error":{"code":"bad_request","message":"unknown field \"\"; `},
		{OpSummary, `{"zeta":1,"beta":2,"alpha":4,"gamma":5}`, `{"error":{"code":"bad_request","message":"unknown field \"alpha\"; `},
		{"count", ``, `{"error":{"code":"unknown_operation","message":"the operations are ack, delete, history, mode, pull, summary"}}`},
		{"", ``, `{"error":{"code":"unknown_operation"`},
		{OpPull, `{"limit":1` + strings.Repeat(" ", MaxRequest) + "}", `{"error":{"code":"too_large"`},
	} {
		answer, contentType := h.Do(t.Context(), phone, c.operation, []byte(c.request), "")
		if !strings.HasPrefix(string(answer), c.begins) || contentType != TypeJSON {
			t.Errorf("%s %.40s: got %.200s (%s)", c.operation, c.request, answer, contentType)
		}
	}
	for _, operation := range names {
		answer, contentType := h.Do(t.Context(), phone, operation, nil, TypeMsgpack)
		if contentType != TypeMsgpack || !beginsMap(answer[0]) {
			t.Errorf("%s: got %q (%s)", operation, answer, contentType)
		}
	}
}

// What is a fault of the server is for its log, not for the asker.
func TestFaultsAreLogged(t *testing.T) {
	for _, c := range []struct {
		failure error
		logged  bool
	}{
		{errors.New("disk on fire"), true},
		{inbox.ErrDamaged, true},
		{inbox.ErrFull, false},
		{inbox.ErrUnknownID, false},
	} {
		var log bytes.Buffer
		store := &shelf{failure: c.failure}
		store.put(1, "ben", "chat/1")
		s := New(store, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		for operation, request := range map[string]string{
			OpSummary: "", OpPull: "", OpHistory: "", OpAck: `{"all":true}`, OpMode: `{"mode":"pull"}`,
			OpDelete: `{"id":"0000000000000003-00000007"}`,
		} {
			log.Reset()
			answer, _ := s.Do(t.Context(), phone, operation, []byte(request), "")
			if want := `{"error":{"code":"` + ErrorOf(c.failure).Code + `"`; !strings.HasPrefix(string(answer), want) {
				t.Errorf("%s, %v: got %s", operation, c.failure, answer)
			}
			if logged := strings.Contains(log.String(), c.failure.Error()); logged != c.logged {
				t.Errorf("%s, %v: logged: %q", operation, c.failure, log.String())
			}
			if strings.Contains(string(answer), "fire") {
				t.Errorf("%s: the asker is told %s", operation, answer)
			}
		}
	}
}
