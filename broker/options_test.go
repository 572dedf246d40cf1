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
		{"negative packet size", Options{Dir: "d", MaxPacketSize: -1}, "packet size -1: choose 128 to 901120"},
		{"negative timeout", Options{Dir: "d", StopTimeout: -time.Second}, "stop timeout -1s: choose 1ms or more"},
		{"no time to stop", Options{Dir: "d", StopTimeout: time.Nanosecond}, "stop timeout 1ns: choose 1ms or more"},
		{"negative time to connect", Options{Dir: "d", ConnectTimeout: -time.Second}, "connect timeout -1s: choose 1ms to 24h"},
		{"no time to connect", Options{Dir: "d", ConnectTimeout: time.Microsecond}, "connect timeout 1µs: choose 1ms to 24h"},
		{"all the time to connect", Options{Dir: "d", ConnectTimeout: 25 * time.Hour}, "connect timeout 25h0m0s: choose 1ms to 24h"},
		{"origin", Options{Dir: "d", WebSocket: []string{"127.0.0.1:0"}, Origins: []string{"https://example.org"}}, ""},
		{"origin without WebSocket", Options{Dir: "d", TCP: []string{"127.0.0.1:0"}, Origins: []string{"https://example.org"}}, `origin "https://example.org": nothing listens for WebSocket or HTTP`},
		{"origin with HTTP", Options{Dir: "d", HTTP: []string{"127.0.0.1:0"}, Origins: []string{"https://example.org"}}, ""},
		{"HTTP everywhere", Options{Dir: "d", HTTP: []string{"0.0.0.0:80"}}, "--allow-anonymous"},
		{"HTTP without port", Options{Dir: "d", HTTP: []string{"localhost"}}, "not host:port"},
		{"history", Options{Dir: "d", History: []inbox.Kept{{Filter: "#"}, {Filter: "a/+", Keep: 1000, Bytes: 1}}}, ""},
		{"history of nothing", Options{Dir: "d", History: []inbox.Kept{{}}}, `history "": this is no topic filter`},
		{"history of no filter", Options{Dir: "d", History: []inbox.Kept{{Filter: "a/#/b"}}}, `history "a/#/b": this is no topic filter`},
		{"history of a shared filter", Options{Dir: "d", History: []inbox.Kept{{Filter: "$share/g/a"}}}, `history "$share/g/a": what begins with $`},
		{"history twice", Options{Dir: "d", History: []inbox.Kept{{Filter: "a"}, {Filter: "a", Keep: 5000}}}, `history "a": this filter is named twice`},
		{"hardly a history", Options{Dir: "d", History: []inbox.Kept{{Filter: "a", Keep: 999}}}, `history "a", kept for 999ms: choose 1s or more`},
		{"history of negative size", Options{Dir: "d", History: []inbox.Kept{{Filter: "a", Bytes: -1}}}, `history "a", -1 bytes: choose 1 or more`},
		{"rewind", Options{Dir: "d", Rewind: time.Second}, ""},
		{"rewind as long as the retention", Options{Dir: "d", Rewind: DefaultRetention}, ""},
		{"rewind of what is kept for ever", Options{Dir: "d", Rewind: 1000 * time.Hour, Retention: -1}, ""},
		{"rewind longer than the retention", Options{Dir: "d", Rewind: DefaultRetention + time.Second}, "rewind 168h0m1s: nothing waits in an inbox for longer"},
		{"hardly a rewind", Options{Dir: "d", Rewind: time.Millisecond}, "rewind 1ms: choose 1s or more"},
		{"negative rewind", Options{Dir: "d", Rewind: -time.Second}, "rewind -1s: choose 1s or more"},
		{"kept for ever", Options{Dir: "d", Retention: -1}, ""},
		{"kept for a second", Options{Dir: "d", Retention: time.Second}, ""},
		{"hardly kept", Options{Dir: "d", Retention: time.Nanosecond}, "retention 1ns: choose 1s or more"},
		{"users who pull", Options{Dir: "d", PullUsers: []string{"app"}}, ""},
		{"nobody who pulls", Options{Dir: "d", PullUsers: []string{"app", ""}}, "pull user: the name is empty"},
		{"never a stream", Options{Dir: "d", StreamFrom: -1}, ""},
		{"less than never a stream", Options{Dir: "d", StreamFrom: -2}, "group stream from -2: choose 1 or more"},
		{"filters", Options{Dir: "d", Push: []string{"a", "/", "+", "#", "a/+/b/#", "$SYS/#"}, Pull: []string{"a/", "+/+", "/#"}}, ""},
		{"empty filter to push", Options{Dir: "d", Push: []string{""}}, `group push "": this is no topic filter`},
		{"empty filter to pull", Options{Dir: "d", Pull: []string{"a", ""}}, `group pull "": this is no topic filter`},
		{"# in the middle", Options{Dir: "d", Push: []string{"a/#/b"}}, `group push "a/#/b": this is no topic filter`},
		{"# in a level", Options{Dir: "d", Pull: []string{"a#"}}, `group pull "a#": this is no topic filter`},
		{"+ in a level", Options{Dir: "d", Pull: []string{"+a/b"}}, `group pull "+a/b": this is no topic filter`},
		{"shared filter", Options{Dir: "d", Pull: []string{"$share/g/a"}}, `group pull "$share/g/a": messages of a shared subscription are stored once`},
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
		{ConnectTimeout: MinConnectTimeout, Window: 1, MaxPacketSize: MinPacketSize, MaxKeepAlive: time.Second, Retention: MinRetention, StreamFrom: -1, Rewind: MinRewind, HTTP: []string{"127.0.0.1:0"}},
		{ConnectTimeout: MaxConnectTimeout, Window: inbox.MaxWindow, MaxPacketSize: MaxPacketSize, MaxKeepAlive: math.MaxUint16 * time.Second},
	} {
		o.Store, o.TCP, o.Log = memory.New(memory.Options{}), []string{"127.0.0.1:0"}, slog.New(slog.DiscardHandler)
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
