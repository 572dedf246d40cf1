package clienttest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// mosquitto is mosquitto_sub and mosquitto_pub, with the arguments that make a
// session last.
type mosquitto []string

// timedOut is how mosquitto_sub exits when its -W is over.
const timedOut = 27

// mosquittoCheck finds out whether the tools are installed.
var mosquittoCheck = []string{"sh", "-c", "command -v mosquitto_pub mosquitto_sub"}

// visit runs mosquitto_pub for each message to publish, and mosquitto_sub for
// everything else.
func (m mosquitto) visit(ctx context.Context, v visit) error {
	for _, payload := range v.payloads {
		// -s takes a message from the input, which must not be empty; -n is an empty one.
		source := "-s"
		if len(payload) == 0 {
			source = "-n"
		}
		args := []string{"-V", m[1], "-i", v.client, "-t", v.topic, source}
		if _, err := m.run(ctx, v, payload, 0, "mosquitto_pub", args...); err != nil {
			return err
		}
	}
	switch {
	case len(v.payloads) > 0:
		return nil
	case v.received.expect > 0:
		return m.receive(ctx, v, 0, "-C", strconv.Itoa(v.received.expect), "-W", seconds(deadline))
	case v.linger > 0:
		return m.receive(ctx, v, timedOut, "-W", "1")
	}
	return m.receive(ctx, v, 0, "-E")
}

// receive runs mosquitto_sub and takes what it has printed. It subscribes on
// each visit, since it cannot do without.
func (m mosquitto) receive(ctx context.Context, v visit, code int, args ...string) error {
	args = append(args, "-c", "-i", v.client, "-t", everything, "-F", "%q %t %x")
	out, err := m.run(ctx, v, nil, code, "mosquitto_sub", append(args, m...)...)
	if err != nil {
		return err
	}
	for l := range strings.Lines(out) {
		words := strings.Split(strings.TrimSuffix(l, "\n"), " ")
		if len(words) != 3 {
			return fmt.Errorf("mosquitto_sub printed %.100q", l)
		}
		qos, err := strconv.ParseUint(words[0], 10, 8)
		if err != nil {
			return fmt.Errorf("parse the qos: %w", err)
		}
		payload, err := hex.DecodeString(words[2])
		if err != nil {
			return fmt.Errorf("parse the payload: %w", err)
		}
		v.received.add(message{words[1], byte(qos), string(payload)})
	}
	return nil
}

// run runs a tool to its end and returns what it has printed.
func (m mosquitto) run(ctx context.Context, v visit, input []byte, code int, tool string, args ...string) (string, error) {
	host, port, err := net.SplitHostPort(v.broker.Address)
	if err != nil {
		return "", fmt.Errorf("split the address: %w", err)
	}
	args = append([]string{"-h", host, "-p", port, "-q", fmt.Sprint(v.qos)}, args...)
	cmd := exec.CommandContext(ctx, tool, args...) //nolint:gosec // the test's own words
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return "", fmt.Errorf("%s: %w", tool, err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		return "", fmt.Errorf("%s %q: exit code %d, want %d\n%s%s", tool, args, got, code, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String(), nil
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
