package broker

import (
	"net/http"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// codes are all codes that an error over HTTP may have, and their statuses.
var codes = map[string]int{
	pull.CodeBadRequest:       400,
	pull.CodeBadCursor:        400,
	codeUnauthenticated:       401,
	pull.CodeForbidden:        403,
	codeNotFound:              404,
	pull.CodeUnknownOperation: 404,
	pull.CodeUnknownID:        404,
	pull.CodeNoSession:        404,
	codeMethod:                405,
	pull.CodeTooLarge:         413,
	pull.CodeBusy:             429,
	pull.CodeInternal:         500,
	pull.CodeUnavailable:      503,
	pull.CodeFull:             507,
}

func TestHTTPStatus(t *testing.T) {
	for code, want := range codes {
		if got := httpStatus(code); got != want {
			t.Errorf("%s: status %d, want %d", code, got, want)
		}
	}
	if got := httpStatus("news of a later version"); got != 500 {
		t.Errorf("unknown code: status %d", got)
	}
}

// Those who speak msgpack are answered in it, and told of errors in it.
func TestHTTPMsgpack(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	f.receiver("alice", "chat/#")
	f.publish("chat/a", "1")
	f.publish("chat/a", "2")
	accept := header("Accept", "text/html;q=0.5, application/msgpack")
	decode := func(got answered, answer any) {
		t.Helper()
		if kind := got.header.Get("Content-Type"); kind != "application/msgpack" {
			t.Fatalf("type %q, status %d: %q", kind, got.status, got.body)
		}
		if err := msgpack.Unmarshal(got.body, answer); err != nil {
			t.Fatalf("%v: %q", err, got.body)
		}
	}
	var page pull.MessagesAnswer
	decode(f.ask("GET", "/v1/inboxes/alice/messages?limit=1&ack=true&topic=chat/a", nil, accept), &page)
	if len(page.Messages) != 1 || page.Messages[0].Payload != "1" || !page.More {
		t.Errorf("page: %+v", page)
	}

	request, err := msgpack.Marshal(pull.AckRequest{Through: page.Next, Topic: "chat/a"})
	if err != nil {
		t.Fatal(err)
	}
	acknowledge := func(kind string, want int) {
		t.Helper()
		var ack pull.AckAnswer
		decode(f.ask("POST", "/v1/inboxes/alice/acknowledge", string(request), header("Content-Type", kind)), &ack)
		if ack.Acknowledged != want {
			t.Errorf("acknowledged: %d, want %d", ack.Acknowledged, want)
		}
	}
	acknowledge("application/msgpack", 1)
	acknowledge("application/x-msgpack", 0) // again

	var failed pull.ErrorAnswer
	got := f.ask("GET", "/v1/inboxes/alice/messages?limit=x", nil, accept)
	if decode(got, &failed); got.status != http.StatusBadRequest || failed.Error.Code != pull.CodeBadRequest {
		t.Errorf("status %d, error %+v", got.status, failed.Error)
	}
}
