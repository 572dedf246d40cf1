package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// timedOut is how mosquitto_sub exits when its -W is over.
const timedOut = 27

// terminal runs the mosquitto tools against one broker, as a user does.
type terminal struct {
	t          *testing.T
	host, port string
}

func newTerminal(t *testing.T, b *brokertest.Broker) terminal {
	t.Helper()
	brokertest.NeedTools(t, "mosquitto_pub", "mosquitto_sub", "stdbuf")
	host, port, err := net.SplitHostPort(b.Address)
	if err != nil {
		t.Fatal(err)
	}
	return terminal{t, host, port}
}

func (x terminal) command(tool, args string) *exec.Cmd {
	words := append([]string{"-h", x.host, "-p", x.port}, strings.Fields(args)...)
	return exec.CommandContext(x.t.Context(), tool, words...) //nolint:gosec // the test's own words
}

// publish runs mosquitto_pub with input on its standard input.
func (x terminal) publish(input, args string) {
	x.t.Helper()
	cmd := x.command("mosquitto_pub", args)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		x.t.Fatalf("mosquitto_pub %s: %v\n%s", args, err, out)
	}
}

// receive runs mosquitto_sub to its end and returns the lines it has printed.
func (x terminal) receive(code int, args string) []string {
	x.t.Helper()
	cmd := x.command("mosquitto_sub", args)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		x.t.Fatalf("mosquitto_sub %s: %v", args, err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		x.t.Fatalf("mosquitto_sub %s: exit code %d, want %d\n%s%s", args, got, code, out, stderr.String())
	}
	return strings.Fields(string(out))
}

// numbered returns m1 to m<n>.
func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("m%d", i+1)
	}
	return all
}

// The session of the README: alice leaves, bob writes to her, the broker is
// killed, alice comes back.
func TestTerminalMessagesSurviveAKill(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	x := newTerminal(t, b)
	x.receive(0, "-i alice -c -q 1 -t chat/alice -E")

	want := numbered(1000)
	x.publish(strings.Join(want, "\n")+"\n", "-i bob -q 1 -t chat/alice -l")
	b.Kill()
	b.Restart()

	if got := x.receive(0, "-i alice -c -q 1 -t chat/alice -C 1000 -W 60"); !slices.Equal(got, want) {
		t.Errorf("alice got %d messages, not m1 to m1000 in order: %.300q", len(got), got)
	}
	if got := x.receive(timedOut, "-i alice -c -q 1 -t chat/alice -W 1"); len(got) > 0 {
		t.Errorf("then alice got %q again", got)
	}
}

// The README's safe publishing: a message with a name may be sent again and again, by
// the same client, over a restart of the broker too.
func TestTerminalPublishesUnderAName(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	x := newTerminal(t, b)
	x.receive(0, "-i alice -c -q 1 -t chat/alice -E")
	send := func(client, name, text string) {
		t.Helper()
		x.publish("", "-V mqttv5 -i "+client+" -q 1 -t chat/alice -m "+text+" -D publish user-property msg-id "+name)
	}
	send("bob", "order-17", "first")
	send("bob", "order-17", "first-again")
	b.Kill()
	b.Restart()
	send("bob", "order-17", "first-again")
	send("bob", "order-18", "second")
	send("carol", "order-17", "third")
	alice := x.start("-i alice -c -q 1 -t chat/alice")
	alice.waitForInOrder("first", "second", "third")
	alice.end(syscall.SIGTERM)
	send("bob", "order-17", "first-again")
	if got := x.receive(timedOut, "-i alice -c -q 1 -t chat/alice -W 1"); len(got) > 0 {
		t.Errorf("then alice got %q", got)
	}
}

// mosquitto_sub subscribes with packet id 1 each time it resumes a session,
// whatever the broker uses that id for.
func TestTerminalSubscribesAgainWithAPacketIDInUse(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	x := newTerminal(t, b)
	x.receive(0, "-i x -c -q 1 -t t -E")
	x.publish("", "-q 1 -t t -m hello")

	raw := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "x", ManualAck: true})
	id := raw.NextPublish().PacketID
	if codes := raw.SubscribeWithID(id, packets.Subscription{Filter: "t", Qos: 1}); codes[0] != 1 {
		t.Errorf("SUBACK with code %#x while packet id %d is in flight, want 1", codes[0], id)
	}
	raw.Disconnect()

	again := x.start("-d -i x -c -q 1 -t t")
	again.waitFor("Subscribed (mid: 1): 1", "hello")
	again.end(syscall.SIGTERM)
}

// With a Receive Maximum of 1 the tool takes one message a run. Without, it leaves
// with unread messages on the wire: its system then resets the link, which may
// take an acknowledgement with it, or acknowledge what it does not print. So a letter
// may come again or not at all, but none before an earlier one.
func TestTerminalTakesOneMessageAtATime(t *testing.T) {
	letters := strings.Split("ABCDEFGHIJ", "")
	tests := []struct {
		name, args string
		exact      bool
	}{
		{"window 1", "-V mqttv5 -x 3600 -D connect receive-maximum 1", true},
		{"version 5", "-V mqttv5 -x 3600", false},
		{"version 3.1.1", "-V mqttv311", false},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := newTerminal(t, brokertest.Start(t, brokertest.Options{}))
			session := fmt.Sprintf("%s -c -i r%d -q 1 -t spam", test.args, i)
			x.receive(0, session+" -E")
			x.publish(strings.Join(letters, "\n")+"\n", "-q 1 -t spam -l")

			var got []string
			patience := 60
			for range letters {
				line := x.receiveUpToOne(fmt.Sprintf("%s -C 1 -W %d", session, patience))
				if len(line) == 0 {
					break
				}
				got = append(got, line...)
				if !test.exact {
					patience = 10 // nothing may be left
				}
			}
			if test.exact && !slices.Equal(got, letters) {
				t.Errorf("got %q, want one letter a run", got)
			}
			if len(got) == 0 || !slices.IsSorted(got) {
				t.Errorf("got %q, want letters that ascend", got)
			}
		})
	}
}

// receiveUpToOne is receive for a run that may find nothing.
func (x terminal) receiveUpToOne(args string) []string {
	x.t.Helper()
	out, err := x.command("mosquitto_sub", args).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != timedOut) {
		x.t.Fatalf("mosquitto_sub %s: %v", args, err)
	}
	return strings.Fields(string(out))
}

// What comes while the tool is away is printed once when it is back, however it
// was ended.
func TestTerminalComesBackAfterItWasEnded(t *testing.T) {
	for _, qos := range []int{1, 2} {
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
			t.Run(fmt.Sprintf("qos %d, %s", qos, signal), func(t *testing.T) {
				t.Parallel()
				x := newTerminal(t, brokertest.Start(t, brokertest.Options{}))
				session := fmt.Sprintf("-i p -c -q %d -t t", qos)
				message := fmt.Sprintf("-q %d -t t -m ", qos)

				first := x.start(session + " -d")
				first.waitFor(fmt.Sprintf("Subscribed (mid: 1): %d", qos))
				x.publish("", message+"one")
				first.waitFor("one")
				first.end(signal)

				x.publish("", message+"two")
				again := x.start(session + " -d") // not -C, which may leave with SUBACK unread, and so without its acknowledgement
				again.waitFor(fmt.Sprintf("Subscribed (mid: 1): %d", qos), "two")
				again.end(syscall.SIGTERM)
				if got := x.receive(timedOut, session+" -W 1"); len(got) > 0 {
					t.Errorf("then got %q again", got)
				}
			})
		}
	}
}

// running is a mosquitto_sub under way.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func (x terminal) start(args string) *running {
	x.t.Helper()
	cmd := x.command("stdbuf", "")
	cmd.Args = append([]string{"stdbuf", "-oL", "mosquitto_sub", "-h", x.host, "-p", x.port}, strings.Fields(args)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		x.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		x.t.Fatalf("mosquitto_sub %s: %v", args, err)
	}
	r := &running{t: x.t, cmd: cmd, lines: make(chan string, 100)}
	go func() {
		defer close(r.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			r.lines <- s.Text()
		}
	}()
	x.t.Cleanup(func() { r.end(syscall.SIGKILL) })
	return r
}

// waitFor waits until the tool has printed some lines, in any order.
func (r *running) waitFor(all ...string) {
	r.t.Helper()
	timeout := time.NewTimer(mqtttest.Deadline)
	defer timeout.Stop()
	for len(all) > 0 {
		line := r.next(timeout, all)
		all = slices.DeleteFunc(all, func(want string) bool { return line == want })
	}
}

// waitForInOrder waits until the tool has printed exactly these lines.
func (r *running) waitForInOrder(all ...string) {
	r.t.Helper()
	timeout := time.NewTimer(mqtttest.Deadline)
	defer timeout.Stop()
	for i, want := range all {
		if line := r.next(timeout, all[i:]); line != want {
			r.t.Errorf("mosquitto_sub printed %q, want %q", line, want)
		}
	}
}

// next waits for the next line, which is one of what is missing.
func (r *running) next(timeout *time.Timer, missing []string) string {
	r.t.Helper()
	select {
	case line, ok := <-r.lines:
		if !ok {
			r.t.Fatalf("mosquitto_sub ended before it printed %q", missing)
		}
		return line
	case <-timeout.C:
		r.t.Fatalf("mosquitto_sub did not print %q", missing)
	}
	return ""
}

// end sends a signal and waits for the end. It may be called again.
func (r *running) end(signal syscall.Signal) {
	_ = r.cmd.Process.Signal(signal) // it may have ended
	for range r.lines {              // the pipe is closed before Wait
	}
	_ = r.cmd.Wait() // how it ends is the signal's affair
}
