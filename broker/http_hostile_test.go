package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// heldStore holds History up until the test says so, or the request is given up.
type heldStore struct {
	inbox.Store
	asked   chan struct{} // gets one for each call
	release chan struct{}
}

func (s *heldStore) History(ctx context.Context, q inbox.Query) (inbox.Page, error) {
	select {
	case s.asked <- struct{}{}:
	case <-ctx.Done():
		return inbox.Page{}, ctx.Err()
	}
	select {
	case <-s.release:
	case <-ctx.Done():
		return inbox.Page{}, ctx.Err()
	}
	return s.Store.History(ctx, q)
}

func dialHTTP(f *face) (net.Conn, error) {
	return net.Dial("tcp", strings.TrimPrefix(f.base, "http://"))
}

func TestHTTPRefuses(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	f.receiver("alice", "chat/#")
	tests := []struct {
		name         string
		method, path string
		body         any
		status       int
		code         string
	}{
		{"no such path", "GET", "/v2/history", nil, 404, codeNotFound},
		{"no such part of an inbox", "GET", "/v1/inboxes/alice/secrets", nil, 404, codeNotFound},
		{"no inbox", "GET", "/v1/inboxes/bob/summary", nil, 404, pull.CodeNoSession},
		{"wrong method", "POST", "/v1/inboxes/alice/messages", "{}", 405, codeMethod},
		{"wrong method", "GET", "/v1/messages", nil, 405, codeMethod},
		{"method of nobody", "BREW", "/v1/history", nil, 405, codeMethod},
		{"OPTIONS that no browser sends", "OPTIONS", "/v1/history", nil, 405, codeMethod},
		{"unknown parameter", "GET", "/v1/inboxes/alice/messages?limt=3", nil, 400, pull.CodeBadRequest},
		{"parameter of another operation", "GET", "/v1/history?ack=false", nil, 400, pull.CodeBadRequest},
		{"client twice", "GET", "/v1/inboxes/alice/messages?client=bob", nil, 400, pull.CodeBadRequest},
		{"parameter twice", "GET", "/v1/history?limit=1&limit=2", nil, 400, pull.CodeBadRequest},
		{"no number", "GET", "/v1/history?limit=many", nil, 400, pull.CodeBadRequest},
		{"neither true nor false", "GET", "/v1/inboxes/alice/messages?ack=perhaps", nil, 400, pull.CodeBadRequest},
		{"not UTF-8", "GET", "/v1/history?topic=%FF", nil, 400, pull.CodeBadRequest},
		{"broken escape", "GET", "/v1/history?topic=%2", nil, 400, pull.CodeBadRequest},
		{"semicolon", "GET", "/v1/history?limit=1;topic=a", nil, 400, pull.CodeBadRequest},
		{"no UTF-8 in a body", "POST", "/v1/inboxes/alice/acknowledge", "{\"sender\":\"\xff\"}", 400, pull.CodeBadRequest},
		{"the way out of a path", "GET", "/v1/inboxes/..%2F..%2Fv1/history", nil, 404, codeNotFound},
		{"other letters", "GET", "/V1/Inboxes/alice/summary", nil, 404, codeNotFound},
		{"another inbox's name", "GET", "/v1/inboxes/Alice/summary", nil, 404, pull.CodeNoSession},
		{"a name and more", "GET", "/v1/inboxes/alice%2Fsummary", nil, 404, codeNotFound},
		{"PUT where there is POST", "PUT", "/v1/inboxes/alice/acknowledge", `{"all":true}`, 405, codeMethod},
		{"CONNECT", "CONNECT", "/v1/history", nil, 405, codeMethod},
		{"TRACE", "TRACE", "/v1/inboxes/alice/summary", nil, 405, codeMethod},
		{"no filter", "GET", "/v1/history?topic=a%23", nil, 400, pull.CodeBadRequest},
		{"no order", "GET", "/v1/history?order=best", nil, 400, pull.CodeBadRequest},
		{"no place", "GET", "/v1/history?after=there", nil, 400, pull.CodeBadRequest},
		{"damaged cursor", "GET", "/v1/inboxes/alice/messages?after=" + strings.Repeat("A", 60), nil, 400, pull.CodeBadCursor},
		{"no JSON", "POST", "/v1/inboxes/alice/acknowledge", "ids=1", 400, pull.CodeBadRequest},
		{"JSON that goes on", "POST", "/v1/inboxes/alice/acknowledge", "{} {}", 400, pull.CodeBadRequest},
		{"nothing to acknowledge", "POST", "/v1/inboxes/alice/acknowledge", "", 400, pull.CodeBadRequest},
		{"unknown message", "POST", "/v1/inboxes/alice/acknowledge", pull.AckRequest{IDs: []string{"0000000000000063-00000000"}}, 404, pull.CodeUnknownID},
		{"query beside a body", "POST", "/v1/inboxes/alice/acknowledge?all=true", "{}", 400, pull.CodeBadRequest},
		{"huge request", "POST", "/v1/inboxes/alice/acknowledge", `{"topic":"` + strings.Repeat("a", 70_000) + `"}`, 413, pull.CodeTooLarge},
		{"no mode", "PUT", "/v1/inboxes/alice/mode", pull.ModeRequest{Mode: "shove"}, 400, pull.CodeBadRequest},
		{"unknown id", "DELETE", "/v1/history/abc", nil, 404, pull.CodeUnknownID},
		{"nothing to delete", "DELETE", "/v1/history", nil, 400, pull.CodeBadRequest},

		{"client id with a control character", "GET", "/v1/inboxes/a%0Ab/summary", nil, 400, pull.CodeBadRequest},
		{"client id that is not UTF-8", "GET", "/v1/inboxes/%FF/summary", nil, 400, pull.CodeBadRequest},
		{"inbox of a group", "GET", "/v1/inboxes/%00$share%2Fg%2Fchat/summary", nil, 400, pull.CodeBadRequest},
		{"inbox of the broker's own", "GET", "/v1/history?client=local%00" + "1", nil, 400, pull.CodeBadRequest},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := *f
			f.t = t
			if code := f.refused(test.status, test.method, test.path, test.body); code != test.code {
				t.Errorf("code %q, want %q", code, test.code)
			}
		})
	}
	for _, limit := range []string{"0", "-1", "-9223372036854775808", "-99999999999999999999999", "1000", "9223372036854775807", "99999999999999999999999"} {
		want[pull.MessagesAnswer](f, "GET", "/v1/history?limit="+limit+"&max_bytes="+limit, nil)
	}
	if got := f.ask("HEAD", "/v1/history", nil); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "DELETE, GET" {
		t.Errorf("HEAD: status %d, Allow %q", got.status, got.header.Get("Allow"))
	}
}

// What no library sends: it is refused, or the connection ends, and nothing is done.
func TestHTTPRawRequests(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	f.receiver("alice", "chat/#")
	f.publish("chat/a", "1")
	const all = `{"all":true}`
	acknowledge := func(version, header, body string) string {
		return "POST /v1/inboxes/alice/acknowledge HTTP/" + version + "\r\nConnection: close\r\n" + header + "\r\n\r\n" + body
	}
	for name, request := range map[string]string{
		"no host":                    acknowledge("1.0", "Content-Length: 12", all),
		"no host, and a newer HTTP":  acknowledge("1.1", "Content-Length: 12", all),
		"two hosts":                  acknowledge("1.1", "Host: 127.0.0.1\r\nHost: 127.0.0.1\r\nContent-Length: 12", all),
		"a host with a user":         acknowledge("1.1", "Host: 127.0.0.1@evil.example\r\nContent-Length: 12", all),
		"another host in the line":   strings.Replace(acknowledge("1.1", "Host: 127.0.0.1\r\nContent-Length: 12", all), "/v1", "http://evil.example/v1", 1),
		"two lengths":                acknowledge("1.1", "Host: 127.0.0.1\r\nContent-Length: 12\r\nContent-Length: 2", all),
		"a length below 0":           acknowledge("1.1", "Host: 127.0.0.1\r\nContent-Length: -1", all),
		"too short":                  acknowledge("1.1", "Host: 127.0.0.1\r\nContent-Length: 6", all),
		"a coding that is unknown":   acknowledge("1.1", "Host: 127.0.0.1\r\nTransfer-Encoding: gzip", all),
		"a chunk of no length":       acknowledge("1.1", "Host: 127.0.0.1\r\nTransfer-Encoding: chunked", "x\r\n"+all),
		"a chunk that is too long":   acknowledge("1.1", "Host: 127.0.0.1\r\nTransfer-Encoding: chunked", "ffffffffffffffffff\r\n"+all),
		"a chunk with more than all": acknowledge("1.1", "Host: 127.0.0.1\r\nTransfer-Encoding: chunked", "1\r\n"+all+"\r\n0\r\n\r\n"),
		"chunks with too much":       acknowledge("1.1", "Host: 127.0.0.1\r\nTransfer-Encoding: chunked", strings.Repeat("4000\r\n"+strings.Repeat(" ", 0x4000)+"\r\n", 5)+"c\r\n"+all+"\r\n0\r\n\r\n"),
		"a packet of MQTT":           "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
		"another protocol":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		conn, err := dialHTTP(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(mqtttest.Deadline)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Logf("%s: %v", name, err) // it may have been cut off by then
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		answer, err := io.ReadAll(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) || strings.HasPrefix(string(answer), "HTTP/1.1 2") || strings.HasPrefix(string(answer), "HTTP/1.0 2") {
			t.Errorf("%s: %v, %.200q", name, err, answer)
		}
		conn.Close()
	}
	if n := want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/alice/summary", nil).Messages; n != 1 {
		t.Errorf("%d are unread, want 1", n)
	}
}

// The names of clients are what they are, however odd.
func TestHTTPClientNames(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		for id, escaped := range map[string]string{
			"u/phone":     "u%2Fphone",
			"a b":         "a%20b",
			"a+b":         "a+b",
			"50%":         "50%25",
			"a?b#c":       "a%3Fb%23c",
			"日本":          "%E6%97%A5%E6%9C%AC",
			"../alice":    "..%2Falice",
			"a/../../b//": "a%2F..%2F..%2Fb%2F%2F",
			"summary":     "summary",
			`"quoted"`:    "%22quoted%22",
		} {
			topic := "chat/" + strings.ReplaceAll(escaped, "+", "-")
			f.receiver(id, topic)
			f.publish(topic, "for "+id)
			page := want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/"+escaped+"/messages", nil)
			if len(page.Messages) != 1 || page.Messages[0].Payload != "for "+id {
				t.Errorf("%q: %+v", id, page.Messages)
			}
			if n := want[pull.AckAnswer](f, "POST", "/v1/inboxes/"+escaped+"/acknowledge", pull.AckRequest{All: true}).Acknowledged; n != 1 {
				t.Errorf("%q: %d are acknowledged", id, n)
			}
		}
	})
}

// Whoever does not end a request, or does not begin one, is cut off; and stopping
// does not wait for them.
func TestHTTPKeepsNoSilentConnection(t *testing.T) {
	o := httpOptions()
	o.ConnectTimeout = 50 * time.Millisecond
	f := serveHTTP(t, o)
	for _, beginning := range []string{"", "GET /v1/hist", "GET / HTTP/1.1\r\nHost: a\r\nX-"} {
		conn, err := dialHTTP(f)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, beginning); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(mqtttest.Deadline)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: the connection is kept", beginning)
		}
	}
}

func TestHTTPStopCutsOffTheSilent(t *testing.T) {
	t.Parallel()
	o := httpOptions()
	o.StopTimeout = mqtttest.Deadline // the grace for what has begun is over long before
	f := serveHTTP(t, o)
	silent, err := dialHTTP(f)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	slow, err := dialHTTP(f)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	const request = "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n"
	if _, err := io.WriteString(slow, request); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(slow).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q: %v", line, err) // from now on the broker waits for the body
	}
	if err := f.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	for _, conn := range []net.Conn{silent, slow} {
		if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Logf("cut off: %v", err) // a reset is as good
		}
	}
}

func TestHTTPHugeHeader(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	if got := f.ask("GET", "/v1/history?topic="+strings.Repeat("a", 64<<10), nil); got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", got.status)
	}
}

func TestHTTPRequestsAreBounded(t *testing.T) {
	o := httpOptions()
	held := &heldStore{Store: o.Store, asked: make(chan struct{}), release: make(chan struct{})}
	o.Store = held
	f := serveHTTP(t, o)
	statuses := make(chan int)
	for range httpRequests {
		go func() { statuses <- f.ask("GET", "/v1/history", nil).status }()
		<-held.asked
	}
	got := f.ask("GET", "/v1/history", nil)
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("one more: status %d, header %v", got.status, got.header)
	}
	if got := f.ask("GET", "/health", nil); got.status != http.StatusOK {
		t.Errorf("health: status %d", got.status)
	}
	close(held.release)
	for range httpRequests {
		if got := <-statuses; got != http.StatusOK {
			t.Errorf("status %d", got)
		}
	}
	go func() { <-held.asked }()
	if got := f.ask("GET", "/v1/history", nil); got.status != http.StatusOK {
		t.Errorf("afterwards: status %d", got.status)
	}
}

// Those who send slowly hold up nobody, however many they are.
func TestHTTPSlowBodiesHoldUpNobody(t *testing.T) {
	t.Parallel()
	o := httpOptions()
	o.StopTimeout = mqtttest.Deadline // the grace for what has begun is over long before
	f := serveHTTP(t, o)
	for range httpRequests + 1 {
		conn, err := dialHTTP(f)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const request = "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n{"
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("%q: %v", line, err)
		}
	}
	f.publish("chat/a", "1")
	if got := payloads(want[pull.MessagesAnswer](f, "GET", "/v1/history", nil).Messages); len(got) != 1 {
		t.Errorf("history: %v", got)
	}
	if err := f.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// slowReader takes an answer only when it is let go.
type slowReader struct {
	*httptest.ResponseRecorder
	begun, release chan struct{}
}

func (w *slowReader) Write(p []byte) (int, error) {
	close(w.begun)
	<-w.release
	return w.ResponseRecorder.Write(p)
}

// Those who read slowly hold up only others that want as much at once.
func TestHTTPSlowReaders(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	f.api.large = make(chan struct{}, 1)
	f.publish("chat/large", strings.Repeat("a", httpSmall))
	f.publish("chat/small", "a")
	const large = "/v1/history?topic=chat/large"
	slow := &slowReader{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequest("GET", large, nil)
		r.Host = "localhost"
		f.api.ServeHTTP(slow, r)
	}()
	<-slow.begun
	if code := f.refused(http.StatusTooManyRequests, "GET", large, nil); code != pull.CodeBusy {
		t.Errorf("as much at the same time: code %q", code)
	}
	want[pull.MessagesAnswer](f, "GET", "/v1/history?topic=chat/small", nil)
	f.publish("chat/small", "b")
	for i := range 3 {
		f.publish("chat/many", fmt.Sprint(i)+strings.Repeat("a", httpSmall/2))
	}
	page := want[pull.MessagesAnswer](f, "GET", "/v1/history?topic=chat/many", nil)
	if len(page.Messages) != 1 || !page.More || page.Messages[0].Truncated {
		t.Errorf("%d messages, more: %v", len(page.Messages), page.More)
	}
	close(slow.release)
	<-done
	if slow.Code != http.StatusOK || slow.Body.Len() <= httpSmall {
		t.Errorf("slowly read: status %d, %d bytes", slow.Code, slow.Body.Len())
	}
	want[pull.MessagesAnswer](f, "GET", large, nil)
}

// A store that does not answer makes nobody wait for ever.
func TestHTTPWorkIsBounded(t *testing.T) {
	o := httpOptions()
	held := &heldStore{Store: o.Store, asked: make(chan struct{}), release: make(chan struct{})}
	o.Store = held
	f := serveHTTP(t, o)
	f.api.workTime = 20 * time.Millisecond
	if code := f.refused(http.StatusTooManyRequests, "GET", "/v1/history", nil); code != pull.CodeBusy {
		t.Errorf("code %q", code)
	}
}

// panickingStore has a fault.
type panickingStore struct{ inbox.Store }

func (panickingStore) History(context.Context, inbox.Query) (inbox.Page, error) { panic("a fault") }

func TestHTTPSurvivesAPanic(t *testing.T) {
	o := httpOptions()
	o.Store = panickingStore{o.Store}
	f := serveHTTP(t, o)
	for range httpRequests + 1 { // a fault takes no slot away
		if code := f.refused(http.StatusInternalServerError, "GET", "/v1/history", nil); code != pull.CodeInternal {
			t.Fatalf("code %q", code)
		}
	}
}
