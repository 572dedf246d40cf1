package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

func TestMain(m *testing.M) { brokertest.Main(m) }

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// command runs the binary to its end, in an empty directory.
func command(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), brokertest.Binary(t), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestCommandsThatFail(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := brokertest.Start(t, brokertest.Options{})

	tests := []struct {
		name string
		args []string
		code int
		want []string // in the one line on standard error
	}{
		{"unknown command", []string{"dance"}, exitUsage, []string{"unexpected argument dance", "see mqtt-inbox --help"}},
		{"unknown command of bench", []string{"bench", "dance"}, exitUsage, []string{"unexpected argument dance", "see mqtt-inbox bench --help"}},
		{"unknown flag", []string{"serve", "--foo"}, exitUsage, []string{"unknown flag --foo", "see mqtt-inbox serve --help"}},
		{"misspelt flag", []string{"bench", "ack", "--shape", "1x1"}, exitUsage, []string{`did you mean "--shapes"?`, "see mqtt-inbox bench ack --help"}},
		{"no number", []string{"serve", "--window", "many"}, exitUsage, []string{"--window", "see mqtt-inbox serve --help"}},
		{"strangers", []string{"serve", "--listen", "0.0.0.0:0"}, exitUsage, []string{`"0.0.0.0:0"`, "127.0.0.1", "--allow-anonymous"}},
		{"two mistakes", []string{"serve", "--listen", "1883", "--window", "70000"}, exitUsage, []string{"not host:port", "choose 1 to 65535"}},
		{"long expiry", []string{"serve", "--max-session-expiry", "1.5s"}, exitUsage, []string{"max session expiry", "whole seconds"}},
		{"no expiry", []string{"serve", "--session-expiry", "0s"}, exitUsage, []string{"session expiry", "1s"}},
		{"half a second of expiry", []string{"serve", "--session-expiry", "1.5s"}, exitUsage, []string{"session expiry", "whole seconds"}},
		{"no time to connect", []string{"serve", "--connect-timeout", "1us"}, exitUsage, []string{"connect timeout", "1ms"}},
		{"all the time to connect", []string{"serve", "--connect-timeout", "25h"}, exitUsage, []string{"connect timeout", "24h"}},
		{"nothing to have", []string{"serve", "--window", "0"}, exitUsage, []string{"window 0: choose 1 to 65535"}},
		{"nothing to send", []string{"serve", "--max-packet-size", "0"}, exitUsage, []string{"packet size 0: choose 128 to 901120"}},
		{"no time at all", []string{"serve", "--connect-timeout", "0s", "--stop-timeout", "0s"}, exitUsage, []string{"connect timeout 0s: choose 1ms to 24h0m0s", "stop timeout 0s: choose 1ms or more"}},
		{"hardly kept", []string{"serve", "--retention", "1ns"}, exitUsage, []string{"retention 1ns: choose 1s or more, or 0s for ever"}},
		{"negative time to keep", []string{"serve", "--retention=-1s"}, exitUsage, []string{"retention -1s: choose 1s or more, or 0s for ever"}},
		{"negative times", []string{"serve", "--connect-timeout=-1s", "--stop-timeout=-1s", "--max-keep-alive=-1s"}, exitUsage, []string{"connect timeout -1s: choose", "stop timeout -1s: choose", "keep alive -1s: choose"}},
		{"nobody who pulls", []string{"serve", "--pull-user", ""}, exitUsage, []string{"pull user: the name is empty"}},
		{"origin without WebSocket", []string{"serve", "--origin", "*"}, exitUsage, []string{`origin "*"`, "--ws", "--http"}},
		{"HTTP for strangers", []string{"serve", "--http", "0.0.0.0:0"}, exitUsage, []string{`"0.0.0.0:0"`, "--allow-anonymous"}},
		{"no history", []string{"serve", "--history", "a/#/b", "--history", "b=0.5s"}, exitUsage, []string{`history "a/#/b": this is no topic filter`, `history "b", kept for 500ms: choose 1s or more`}},
		{"history of no time", []string{"serve", "--history", "a=b"}, exitUsage, []string{"--history", `"b" is no time, as in 90s`, "see mqtt-inbox serve --help"}},
		{"hardly a rewind", []string{"serve", "--rewind", "1ms"}, exitUsage, []string{"rewind 1ms: choose 1s or more, or 0s for none"}},
		{"less than never a stream", []string{"serve", "--group-stream-from=-2"}, exitUsage, []string{"group stream from -2: choose 1 or more", "-1 for never"}},
		{"no filters", []string{"serve", "--group-push", "", "--group-pull", "a/#/b"}, exitUsage, []string{`group push ""`, `group pull "a/#/b"`, "as in a/+/b or a/#"}},
		{"port in use", []string{"serve", "--listen", taken.Addr().String()}, exitFailed, []string{taken.Addr().String(), "the port is in use"}},
		{"HTTP port in use", []string{"serve", "--listen", "127.0.0.1:0", "--http", taken.Addr().String()}, exitFailed, []string{taken.Addr().String(), "the port is in use"}},
		{"WebSocket port in use", []string{"serve", "--ws", taken.Addr().String()}, exitFailed, []string{taken.Addr().String(), "the port is in use"}},
		{"socket path in use", []string{"serve", "--unix", file}, exitFailed, []string{file, "not a socket"}},
		{"data below a file", []string{"serve", "--listen", "127.0.0.1:0", "--data", file + "/data"}, exitFailed, []string{file, "not a directory"}},
		{"data in use", []string{"serve", "--listen", "127.0.0.1:0", "--data", other.Data}, exitFailed, []string{other.Data, "used by another process"}},
		{"nobody is healthy", []string{"health", "--address", freeAddress(t)}, exitFailed, []string{"is not healthy", "connection refused"}},
		{"health of something else", []string{"health", "--timeout", "1s", "--address", taken.Addr().String()}, exitFailed, []string{"no CONNACK came"}},
		{"more news than groups", []string{"bench", "group", "--groups", "2", "--news", "3"}, exitUsage, []string{"3 of 2 groups"}},
		{"nobody in a group", []string{"bench", "group", "--members", "10,0"}, exitUsage, []string{"without members"}},
		{"nobody to publish to", []string{"bench", "ack", "--receivers", "0"}, exitUsage, []string{"at least one receiver"}},
		{"no time to measure", []string{"bench", "ack", "--duration", "0s"}, exitUsage, []string{"a duration above 0s"}},
		{"nobody comes back", []string{"bench", "replay", "--receivers", "10,0"}, exitUsage, []string{"at least one receiver"}},
		{"nothing for some", []string{"bench", "replay", "--receivers", "10", "--messages", "5"}, exitUsage, []string{"a message for each"}},
		{"unknown baseline", []string{"bench", "ack", "--with", "teapot"}, exitUsage, []string{"teapot", "mosquitto"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := command(t, test.args...)
			if r.code != test.code {
				t.Errorf("exit code %d, want %d", r.code, test.code)
			}
			lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
			last := lines[len(lines)-1]
			for _, want := range append(test.want, "mqtt-inbox: ") {
				if !strings.Contains(last, want) {
					t.Errorf("the last line lacks %q: %s", want, last)
				}
			}
			if len(lines) > 1 {
				t.Errorf("more than one line:\n%s", r.stderr)
			}
		})
	}
}

// freeAddress returns one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A file system permission does not stop root, so the test takes rights away
// only if it has none to spare.
func TestDataDirectoryNotWritable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	r := command(t, "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	if r.code != exitFailed || !strings.Contains(r.stderr, "permission denied") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestHelp(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"serve", "health", "bench ack", "bench replay", "bench group", "version"}},
		{[]string{"--help"}, []string{"serve", "keeps every acknowledged message"}},
		{[]string{"serve", "--help"}, []string{"127.0.0.1:1883", "default: data", "default: 512", "default: 901120", "default: 168h0m0s", "TIME is a number with its unit, or several: 90s, 15m, 168h, 7d", "chat/#=180d,10GiB", "default: 180d", "precedence over --group-pull", "--keep-qos0", "--retention", "--max-keep-alive"}},
		{[]string{"bench", "group", "--help"}, []string{"copies,references,stream", "default: 256,4096", "4x100,1x1", "10,100,1000,10000,100000"}},
		{[]string{"bench", "ack", "--help"}, []string{"mosquitto", "default: 256", "1x1,1x100"}},
	} {
		r := command(t, test.args...)
		for _, want := range test.want {
			if !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), want) {
				t.Errorf("help of %v lacks %q:\n%s", test.args, want, r.stdout)
			}
		}
		if r.code != exitDone || strings.Contains(r.stdout, "stock-broker") {
			t.Errorf("help of %v: exit code %d\n%s", test.args, r.code, r.stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	r := command(t, "version")
	if r.code != exitDone || !strings.HasPrefix(r.stdout, "mqtt-inbox ") || !strings.Contains(r.stdout, " go1.") {
		t.Errorf("exit code %d: %s", r.code, r.stdout)
	}
}

func TestServeTellsTheVersion(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	client := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "c", Version: 5, Clean: true})
	client.Subscribe("$SYS/broker/version", 0)
	want := command(t, "version").stdout
	if got := string(client.NextPublish().Payload); got == "" || !strings.HasPrefix(want, got+" go1.") {
		t.Errorf("version in $SYS: %q, want that of %q", got, want)
	}
}

func TestServeListensAndStopsWhenTold(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	b := brokertest.Start(t, brokertest.Options{Args: []string{"--ws", "127.0.0.1:0", "--unix", socket}})
	for _, want := range []string{
		"msg=listening protocol=tcp address=" + b.Address + "\n",
		"msg=listening protocol=ws address=127.0.0.1:",
		"msg=listening protocol=unix address=" + socket + "\n",
	} {
		if !strings.Contains(b.Log(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	for _, address := range []string{b.Address, socket} {
		if r := command(t, "health", "--address", address); r.code != exitDone || r.stdout != address+" is healthy\n" {
			t.Errorf("health of %s: exit code %d: %s%s", address, r.code, r.stdout, r.stderr)
		}
	}

	client := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "c", Version: 5, Clean: true})
	if code := b.Stop(); code != exitDone { // it has another if it takes longer than it may
		t.Errorf("exit code %d", code)
	}
	if code := client.WaitDisconnect(); code != 0x8B {
		t.Errorf("DISCONNECT with %#x, want 0x8B", code)
	}
	if !strings.Contains(b.Log(), "msg=stopped") {
		t.Error("the log does not say that it stopped")
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket file: %v", err)
	}
}

// The socket that a killed broker leaves behind does not keep the next one
// from starting.
func TestServeReplacesADeadSocket(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Args: []string{"--unix", filepath.Join(t.TempDir(), "socket")}})
	b.Kill()
	b.Restart()
}

func TestInterruptStopsToo(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), brokertest.Binary(t), "serve", "--listen", "127.0.0.1:0", "--log-format", "json")
	cmd.Dir = t.TempDir()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var line struct{ Msg, Data, Protocol, Address string }
	lines := json.NewDecoder(stderr)
	if err := lines.Decode(&line); err != nil || line.Msg != "starting" || line.Data != filepath.Join(cmd.Dir, "data") {
		t.Errorf("first line: %+v, %v", line, err)
	}
	if err := lines.Decode(&line); err != nil || line.Msg != "listening" || line.Protocol != "tcp" {
		t.Errorf("second line: %+v, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestBenchAck(t *testing.T) {
	r := command(t, "bench", "ack", "--shapes", "2x10", "--receivers", "3", "--count", "600", "--runs", "1", "--with", "raw", "--json")
	if r.code != exitDone {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	var results struct {
		Acks []struct {
			Target   string
			Messages int
			Verified bool
			Rate     float64 `json:"messages_per_second"`
			Syncs    float64 `json:"syncs_per_message"`
			Faults   struct{ Lost, Repeated, Misordered int }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &results); err != nil || len(results.Acks) != 2 {
		t.Fatalf("%v in:\n%s", err, r.stdout)
	}
	a := results.Acks[0]
	if a.Target != "inbox" || a.Messages != 600 || !a.Verified || a.Rate <= 0 || a.Syncs <= 0 || a.Syncs > 1.5 || a.Faults.Lost+a.Faults.Repeated+a.Faults.Misordered != 0 {
		t.Errorf("result: %+v", a)
	}
}

func TestBenchAckFanoutToARunningBroker(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	r := command(t, "bench", "ack", "--address", b.Address, "--fanout", "--shapes", "1x20", "--receivers", "4", "--count", "200", "--runs", "2")
	if r.code != exitDone || !strings.Contains(r.stdout, "none") || !strings.Contains(r.stdout, "to all receivers") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

func TestBenchReplay(t *testing.T) {
	r := command(t, "bench", "replay", "--receivers", "1,3", "--messages", "1600", "--sessions", "20", "--settle", "0s")
	if r.code != exitDone {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	for _, want := range []string{"replayed msg/s", "Pages of 200", "Memory", "after kill ms", "none"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the report lacks %q:\n%s", want, r.stdout)
		}
	}
}

func TestBenchGroup(t *testing.T) {
	r := command(t, "bench", "group", "--size", "64", "--members", "40", "--shapes", "2x10", "--count", "200",
		"--returning", "3", "--messages", "80", "--groups", "10", "--returns", "4",
		"--live", "5", "--live-messages", "60", "--runs", "1", "--json")
	if r.code != exitDone {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	type faults struct{ Lost, Repeated, Misordered int }
	var results struct {
		Groups struct {
			Publishes []struct {
				Way      string
				Members  int
				Messages float64
				Disk     float64 `json:"disk_bytes_per_message"`
				Verified bool
				Faults   faults
			}
			Drains []struct {
				Way    string
				Rate   float64 `json:"messages_per_second"`
				Faults faults
			}
			Returns []struct {
				Way     string
				Returns int
				Ratio   float64 `json:"member_plain"`
				Faults  faults
			}
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &results); err != nil {
		t.Fatalf("%v in:\n%s", err, r.stdout)
	}
	g := results.Groups
	if len(g.Publishes) != 3 || len(g.Drains) != 3 || len(g.Returns) != 2 {
		t.Fatalf("%d, %d and %d results, want 3, 3 and 2:\n%s", len(g.Publishes), len(g.Drains), len(g.Returns), r.stdout)
	}
	ways := []string{"copies", "references", "stream"}
	for i, p := range g.Publishes {
		if p.Way != ways[i] || p.Messages != 200 || !p.Verified || p.Faults != (faults{}) {
			t.Errorf("publishing: %+v", p)
		}
		// Only of copies it is certain how much they take at least.
		if p.Way == "copies" && p.Disk >= 0 && p.Disk < float64(64*p.Members) {
			t.Errorf("%d copies of 64 bytes take %.0f bytes", p.Members, p.Disk)
		}
	}
	for i, d := range g.Drains {
		if d.Way != ways[i] || d.Rate <= 0 || d.Faults != (faults{}) {
			t.Errorf("draining: %+v", d)
		}
	}
	for i, m := range g.Returns {
		if m.Way != ways[i+1] || m.Returns != 4 || m.Ratio <= 0 || m.Faults != (faults{}) {
			t.Errorf("a member of many: %+v", m)
		}
	}
}
