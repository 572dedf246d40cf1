package broker

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// dialWebSocket returns both ends of a connection through a wsListener.
func dialWebSocket(t *testing.T) (client *websocket.Conn, server net.Conn) {
	t.Helper()
	l, err := listenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := listenWebSocket(l, nil, mqtttest.Deadline)
	d := websocket.Dialer{Subprotocols: []string{"mqtt"}}
	client, response, err := d.Dial("ws://"+l.Addr().String()+"/mqtt", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Sec-WebSocket-Protocol"); got != "mqtt" {
		t.Errorf("subprotocol %q, want mqtt", got)
	}
	if server, err = w.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close(); w.Close() })
	return client, server
}

func TestWebSocketCarriesAStream(t *testing.T) {
	client, server := dialWebSocket(t)
	want := bytes.Repeat([]byte("0123456789"), 10_000)
	go func() { // a packet may span messages, and an empty one means nothing
		for chunk := want; len(chunk) > 0; {
			n := min(len(chunk), 777)
			client.WriteMessage(websocket.BinaryMessage, chunk[:n]) // a failure shows as missing bytes
			client.WriteMessage(websocket.BinaryMessage, nil)
			chunk = chunk[n:]
		}
	}()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes, the same: %v, error: %v", len(got), bytes.Equal(got, want), err)
	}

	if n, err := server.Write(want); n != len(want) || err != nil {
		t.Fatalf("wrote %d bytes: %v", n, err)
	}
	kind, message, err := client.ReadMessage()
	if err != nil || kind != websocket.BinaryMessage || !bytes.Equal(message, want) {
		t.Errorf("client got %d bytes, kind %d: %v", len(message), kind, err)
	}
}

func TestWebSocketRefusesText(t *testing.T) {
	client, server := dialWebSocket(t)
	if err := client.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 10)); err == nil {
		t.Error("a text message was read")
	}
}

func TestWebSocketDeadlineEndsWrites(t *testing.T) {
	_, server := dialWebSocket(t) // the client never reads
	written := make(chan error)
	go func() {
		for {
			if _, err := server.Write(make([]byte, 1<<20)); err != nil {
				written <- err
				return
			}
		}
	}()
	if err := server.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	<-written // for ever, unless the deadline reaches the write under way and the next one
}

func TestWebSocketCloseEndsAccept(t *testing.T) {
	l, err := listenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := listenWebSocket(l, nil, mqtttest.Deadline)
	accepted := make(chan error)
	go func() {
		_, err := w.Accept()
		accepted <- err
	}()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := <-accepted; err == nil {
		t.Error("Accept returned a connection")
	}
	if err := w.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// A client over WebSocket is told, too, that it was silent for too long.
func TestWebSocketKeepAliveTimeoutIsTold(t *testing.T) {
	o := quietOptions()
	o.WebSocket = []string{"127.0.0.1:0"}
	b, _ := serve(t, o)
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+b.Addresses()[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	client := mqtttest.Connect(t, &wsConn{Conn: ws.NetConn(), ws: ws}, mqtttest.Options{ClientID: "c", Version: 5, KeepAlive: 1})
	if code := client.WaitDisconnect(); code != 0x8D {
		t.Errorf("DISCONNECT %#x, want 0x8d", code)
	}
}

// Whoever asks for something else than MQTT is answered, and then gone.
func TestWebSocketKeepsNoOtherConnection(t *testing.T) {
	l, err := listenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := listenWebSocket(l, nil, 20*time.Millisecond)
	defer w.Close()
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", // and no body follows
		"GET / HT",
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(mqtttest.Deadline)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: the connection is kept", request)
		}
	}
}

// A handshake takes no more memory than a request over HTTP.
func TestWebSocketHandshakeIsBounded(t *testing.T) {
	before := goleak.IgnoreCurrent()
	l, err := listenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := listenWebSocket(l, nil, mqtttest.Deadline)
	defer w.Close()
	header := http.Header{"Cookie": {strings.Repeat("a", 2*httpHeaderBytes)}}
	ws, response, err := websocket.DefaultDialer.Dial("ws://"+l.Addr().String(), header)
	if err == nil {
		ws.Close()
	}
	if response == nil || response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answered %+v, %v", response, err)
	}
	w.Close()
	mqtttest.Eventually(t, func() bool { return goleak.Find(before) == nil }, "the server of the handshake is gone") // it waits for the client to have read
}

func TestOriginAllowed(t *testing.T) {
	tests := []struct {
		origin  string
		allowed []string
		want    bool
	}{
		{"", nil, true}, // not a browser
		{"http://broker.example:8080", nil, true},
		{"http://BROKER.example:8080", nil, true},
		{"http://evil.example", nil, false},
		{"null", nil, false},
		{"https://app.example", []string{"https://app.example"}, true},
		{"https://other.example", []string{"https://app.example"}, false},
		{"https://other.example", []string{"*"}, true},
	}
	for _, test := range tests {
		r := &http.Request{Host: "broker.example:8080", Header: http.Header{}}
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		if got := originAllowed(r, test.allowed); got != test.want {
			t.Errorf("origin %q with %v: %v, want %v", test.origin, test.allowed, got, test.want)
		}
	}
}
