package broker

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
)

func TestValidate(t *testing.T) {
	tests := []struct {
		name    string
		options Options
		want    string // part of the error, empty for none
	}{
		{"only a directory", Options{Dir: "d"}, ""},
		{"no directory", Options{}, "data directory: none given"},
		{"loopback addresses", Options{Dir: "d", TCP: []string{"127.0.0.2:0", "[::1]:1883", "localhost:1883"}, WebSocket: []string{"127.0.0.1:8080"}}, ""},
		{"everywhere", Options{Dir: "d", TCP: []string{":1883"}}, "--allow-anonymous"},
		{"everywhere, IPv6", Options{Dir: "d", TCP: []string{"[::]:1883"}}, "--allow-anonymous"},
		{"a name", Options{Dir: "d", TCP: []string{"example.org:1883"}}, "--allow-anonymous"},
		{"WebSocket everywhere", Options{Dir: "d", WebSocket: []string{"0.0.0.0:80"}}, "--allow-anonymous"},
		{"everywhere, everyone", Options{Dir: "d", TCP: []string{"0.0.0.0:1883"}, AllowAnonymous: true}, ""},
		{"keep alive too long", Options{Dir: "d", MaxKeepAlive: 20 * time.Hour}, "keep alive 20h0m0s: choose"},
		{"keep alive of less than seconds", Options{Dir: "d", MaxKeepAlive: 1500 * time.Millisecond}, "keep alive 1.5s: choose"},
		{"everywhere, with rules", Options{Dir: "d", TCP: []string{"0.0.0.0:1883"}, Access: rules{}}, ""},
		{"unix socket", Options{Dir: "d", Unix: []string{"/run/x"}}, ""},
		{"unix socket without path", Options{Dir: "d", Unix: []string{""}}, "path is empty"},
		{"no port", Options{Dir: "d", TCP: []string{"127.0.0.1"}}, "not host:port"},
		{"port out of range", Options{Dir: "d", TCP: []string{"127.0.0.1:70000"}}, "0 to 65535"},
		{"window too large", Options{Dir: "d", Window: 70000}, "choose 1 to 65535"},
		{"window negative", Options{Dir: "d", Window: -1}, "choose 1 to 65535"},
		{"packet too large", Options{Dir: "d", MaxPacketSize: 2 << 20}, "packet size 2097152"},
		{"negative timeout", Options{Dir: "d", StopTimeout: -1}, "stop timeout"},
		{"no time to connect", Options{Dir: "d", ConnectTimeout: time.Microsecond}, "connect timeout 1µs: choose 1ms to 24h"},
		{"all the time to connect", Options{Dir: "d", ConnectTimeout: 25 * time.Hour}, "connect timeout 25h0m0s: choose 1ms to 24h"},
		{"two faults", Options{TCP: []string{"127.0.0.1"}}, "not host:port, as in 127.0.0.1:1883\ndata directory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.options.Validate()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("error: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error: %v, want one with %q", err, test.want)
			}
		})
	}
}

// What Validate lets pass New must not refuse: to the command line the one is a
// mistake of the caller, the other a failure.
func TestNewTakesWhatValidateTakes(t *testing.T) {
	for _, o := range []Options{
		{ConnectTimeout: minConnectTimeout, Window: 1, MaxPacketSize: minPacketSize, MaxKeepAlive: time.Second},
		{ConnectTimeout: maxConnectTimeout, Window: inbox.MaxWindow, MaxPacketSize: maxPacketSize, MaxKeepAlive: math.MaxUint16 * time.Second},
	} {
		o.Store, o.TCP, o.Log = memory.New(), []string{"127.0.0.1:0"}, slog.New(slog.DiscardHandler)
		if err := o.Validate(); err != nil {
			t.Errorf("Validate: %v", err)
		}
		b, err := New(o)
		if err != nil {
			t.Errorf("New: %v", err)
			continue
		}
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// rules let alice use what begins with her name.
type rules struct{}

func (rules) Connect(c Client, password []byte) bool {
	return c.User == "alice" && string(password) == "secret"
}
func (rules) Publish(c Client, topic string) bool    { return topic == "to/"+c.User }
func (rules) Subscribe(c Client, filter string) bool { return filter == "from/"+c.User }

func TestAccessHookAsksTheRules(t *testing.T) {
	alice := newServer(Options{}.withDefaults()).NewClient(nil, "tcp", "phone", false)
	alice.Properties.Username = []byte("alice")
	h := &accessHook{access: rules{}}
	connect := func(password string) bool {
		return h.OnConnectAuthenticate(alice, packets.Packet{Connect: packets.ConnectParams{Password: []byte(password)}})
	}
	if !connect("secret") || connect("guess") {
		t.Error("the password decides nothing")
	}
	if !h.OnACLCheck(alice, "to/alice", true) || h.OnACLCheck(alice, "from/alice", true) {
		t.Error("publishing does not follow the rules")
	}
	if !h.OnACLCheck(alice, "from/alice", false) || h.OnACLCheck(alice, "to/alice", false) {
		t.Error("subscribing does not follow the rules")
	}
}
