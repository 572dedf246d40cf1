package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// The longest waits for a broker to serve and to stop.
const (
	startDeadline = 2 * time.Minute
	stopDeadline  = 2 * time.Minute
)

// Options say how the broker is started. The zero value starts the binary under
// test on a free port with new, empty data.
type Options struct {
	Data      string   // the data directory; empty for one that goes with the test
	Args      []string // further arguments
	Env       []string // further environment, KEY=value
	WebSocket bool     // listens for WebSockets too
	HTTP      bool     // and for HTTP

	// Command starts another broker instead, for comparison. In its words
	// {address}, {port} and {data} are replaced.
	Command []string
}

// Broker is one broker process, or the place where one was and will be again.
type Broker struct {
	Address   string // host:port of the MQTT listener
	WebSocket string // host:port of the WebSocket listener; empty without one
	HTTP      string // host:port of the HTTP listener; empty without one
	Data      string // the data directory

	t       testing.TB
	command []string
	env     []string
	log     logBuffer
	process *exec.Cmd
	exited  chan struct{} // closed when the process has ended
	status  error         // how it ended; read after exited
}

// Start starts a broker and returns when it answers CONNECT. It is killed when
// the test ends.
func Start(t testing.TB, o Options) *Broker {
	t.Helper()
	b := &Broker{t: t, Data: o.Data, env: append(os.Environ(), o.Env...)}
	if b.Data == "" {
		b.Data = filepath.Join(t.TempDir(), "data")
	}
	if o.WebSocket {
		b.WebSocket = net.JoinHostPort("127.0.0.1", freePort(t))
		o.Args = append([]string{"--ws", b.WebSocket}, o.Args...)
	}
	if o.HTTP {
		b.HTTP = net.JoinHostPort("127.0.0.1", freePort(t))
		o.Args = append([]string{"--http", b.HTTP}, o.Args...)
	}
	port := freePort(t)
	b.Address = net.JoinHostPort("127.0.0.1", port)
	command := o.Command
	if len(command) == 0 {
		command = []string{Binary(t), "serve", "--listen", "{address}", "--data", "{data}", "--allow-anonymous"}
	}
	fill := strings.NewReplacer("{address}", b.Address, "{port}", port, "{data}", b.Data)
	for _, word := range append(command[:len(command):len(command)], o.Args...) {
		b.command = append(b.command, fill.Replace(word))
	}
	t.Cleanup(b.finish)
	b.Restart()
	return b
}

// Restart starts the broker again on the same port and data, after Kill, Stop
// or Crash, and returns when it answers CONNECT.
func (b *Broker) Restart() {
	b.t.Helper()
	b.Kill()
	b.launch()
	b.waitReady()
}

// launch starts the process and the goroutine that waits for its end.
func (b *Broker) launch() {
	b.t.Helper()
	cmd := exec.Command(b.command[0], b.command[1:]...) //nolint:gosec // the test's own command
	cmd.Env = b.env
	cmd.Stdout, cmd.Stderr = &b.log, &b.log
	if err := cmd.Start(); err != nil {
		b.t.Fatalf("start the broker: %v", err)
	}
	exited := make(chan struct{})
	b.process, b.exited = cmd, exited
	go func() {
		b.status = cmd.Wait()
		close(exited)
	}()
}

func (b *Broker) waitReady() {
	b.t.Helper()
	mqtttest.EventuallyWithin(b.t, startDeadline, func() bool {
		select {
		case <-b.exited:
			b.t.Fatalf("the broker ended at its start: %v\n%s", b.status, b.Log())
		default:
		}
		c, err := mqtttest.Open(b.Address, mqtttest.Options{ClientID: "brokertest", Clean: true})
		if errors.Is(err, mqtttest.ErrRefused) {
			return true // it wants a password, but it serves
		}
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, "the broker answers CONNECT")
}

// Crash sends SIGKILL and returns at once. It may be called by any goroutine
// between two calls of Restart.
func (b *Broker) Crash() { _ = b.process.Process.Kill() }

// Pause stops the process as it stands; what is sent to it waits in the system. It
// returns when all threads have stopped, which it asks Linux.
func (b *Broker) Pause() {
	b.t.Helper()
	if runtime.GOOS != "linux" {
		b.t.Skip("asks Linux whether a process is stopped")
	}
	b.signal(syscall.SIGSTOP)
	mqtttest.EventuallyWithin(b.t, stopDeadline, b.isStopped, "the broker stops as it stands")
}

// isStopped reports whether every thread of the process is stopped.
func (b *Broker) isStopped() bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.process.Process.Pid))
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, stat := range stats {
		line, err := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(line), ") ") // behind the name comes the state
		if err != nil || !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}

// Continue lets a paused process go on.
func (b *Broker) Continue() { b.signal(syscall.SIGCONT) }

func (b *Broker) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.process.Process.Signal(s); err != nil {
		b.t.Fatalf("send %v to the broker: %v", s, err)
	}
}

// Kill sends SIGKILL and waits for the end.
func (b *Broker) Kill() {
	b.t.Helper()
	if b.process == nil {
		return
	}
	b.Crash()
	b.awaitExit()
}

// Stop sends SIGTERM, waits for the end and returns the exit code.
func (b *Broker) Stop() int {
	b.t.Helper()
	if err := b.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		b.t.Fatalf("stop the broker: %v", err)
	}
	b.awaitExit()
	return b.process.ProcessState.ExitCode()
}

// Verify stops the broker, and sees to it that nothing is missing in what it has stored and
// nothing left behind, if it runs with the default retention.
func (b *Broker) Verify() {
	b.t.Helper()
	if code := b.Stop(); code != 0 {
		b.t.Errorf("stopping: exit code %d", code)
	}
	faults := 0
	o := badger.Options{Dir: b.Data, Log: slog.New(slog.DiscardHandler)}
	sum, err := badger.Verify(b.t.Context(), o, func(f badger.Fault) {
		if faults++; faults <= 10 {
			b.t.Error(f)
		}
	})
	b.t.Logf("stored: %+v", sum)
	if err != nil {
		b.t.Errorf("verify what is stored: %v", err)
	}
}

// Exited returns a channel that is closed when the process has ended.
func (b *Broker) Exited() <-chan struct{} { return b.exited }

func (b *Broker) awaitExit() {
	b.t.Helper()
	timeout := time.NewTimer(stopDeadline)
	defer timeout.Stop()
	select {
	case <-b.exited:
	case <-timeout.C:
		b.Crash()
		b.t.Fatalf("the broker did not end within %s", stopDeadline)
	}
}

// Log returns what the broker has printed since Start.
func (b *Broker) Log() string { return b.log.String() }

// finish ends the process and looks through what it has printed.
func (b *Broker) finish() {
	b.Kill()
	log := b.Log()
	for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if strings.Contains(log, sign) {
			b.t.Errorf("the broker's log has %q", sign)
		}
	}
	if b.t.Failed() {
		b.t.Logf("the broker's log:\n%s", ends(log, 32<<10))
	}
}

// ends returns the first and the last n bytes of a log, in whole lines: what
// went wrong first, and what came of it.
func ends(log string, n int) string {
	if len(log) <= 2*n {
		return log
	}
	first := log[:strings.LastIndexByte(log[:n], '\n')+1]
	_, last, _ := strings.Cut(log[len(log)-n:], "\n")
	return first + "...\n" + last
}

// freePort returns a port below those that the system gives to outgoing links,
// so that it is still free after the broker was killed. Until the test ends no other
// test gets it, in whatever process: the UDP port of that number is taken meanwhile.
func freePort(t testing.TB) string {
	t.Helper()
	const many = 12000
	for range 100 {
		port := fmt.Sprint(firstOutgoing() - 1 - rand.IntN(many)) //nolint:gosec // any will do
		if claim(t, net.JoinHostPort("127.0.0.1", port)) {
			return port
		}
	}
	t.Fatal("no free port found")
	return ""
}

// firstOutgoing returns the first port that the system gives to outgoing links, which Linux
// tells. Where that leaves too few below it is the usual one.
func firstOutgoing() int {
	const usual, least = 32768, 16000
	told, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return usual
	}
	var first int
	if _, err := fmt.Sscan(string(told), &first); err != nil || first < least {
		return usual
	}
	return first
}

// claim takes an address for a broker that this test will start, and reports whether it
// was to be had.
func claim(t testing.TB, address string) bool {
	t.Helper()
	claimed, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		_ = claimed.Close() // nothing was sent
		return false
	}
	if err := l.Close(); err != nil {
		t.Fatalf("close the listener: %v", err)
	}
	t.Cleanup(func() { _ = claimed.Close() })
	return true
}

// logBuffer collects what a process prints.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
