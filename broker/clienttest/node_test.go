package clienttest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
)

// needMQTTjs skips the test if MQTT.js is not installed, and fails it where CI is
// set.
func needMQTTjs(t *testing.T) {
	t.Helper()
	out, err := exec.Command(mqttjs.check[0], mqttjs.check[1:]...).CombinedOutput() //nolint:gosec // constant arguments
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("MQTT.js is needed: %v\n%s", err, out)
	}
	if err != nil {
		t.Skipf("MQTT.js is not installed: %v", err)
	}
}

// app is examples/js in a process of Node, see testdata/inbox.mjs. It does one thing at a
// time, which the test tells it.
type app struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr strings.Builder
	ended  bool
}

// with is what goes with an order.
type with map[string]any

func startApp(t *testing.T) *app {
	t.Helper()
	a := &app{t: t, cmd: exec.Command("node", "testdata/inbox.mjs")}
	a.cmd.Stderr = &a.stderr
	in, err := a.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.in, a.out = in, json.NewDecoder(bufio.NewReader(out))
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.kill)
	return a
}

// connectApp starts an app that has its things in a directory, and connects it,
// as a user of the same name.
func connectApp(t *testing.T, b *brokertest.Broker, id, dir string) *app {
	t.Helper()
	return connectAppOf(t, b, id, id, dir)
}

// connectAppOf does that for another device of a user.
func connectAppOf(t *testing.T, b *brokertest.Broker, user, id, dir string) *app {
	t.Helper()
	a := startApp(t)
	a.do("connect", with{"url": "ws://" + b.WebSocket, "id": id, "user": user, "dir": dir, "mode": "pull"}, nil)
	return a
}

// tell has the app do something, and result reads what came of it.
func (a *app) tell(order string, w with) {
	a.t.Helper()
	line := maps.Clone(w)
	if line == nil {
		line = with{}
	}
	line["do"] = order
	if err := json.NewEncoder(a.in).Encode(line); err != nil {
		a.t.Fatalf("the app has ended: %v\n%s", err, a.stderr.String())
	}
}

func (a *app) result(into any) error {
	a.t.Helper()
	var answer struct {
		Result json.RawMessage
		Error  string
		Code   any
	}
	if err := a.out.Decode(&answer); err != nil {
		a.t.Fatalf("the app has ended: %v\n%s", err, a.stderr.String())
	}
	if answer.Error != "" {
		return fmt.Errorf("%s (%v)", answer.Error, answer.Code)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Result, into); err != nil {
		a.t.Fatalf("%s: %v", answer.Result, err)
	}
	return nil
}

// try has the app do something, and reads the result into what it points to.
func (a *app) try(order string, w with, result any) error {
	a.t.Helper()
	a.tell(order, w)
	return a.result(result)
}

// do is try that must succeed.
func (a *app) do(order string, w with, result any) {
	a.t.Helper()
	if err := a.try(order, w, result); err != nil {
		a.t.Fatalf("%s: %v\n%s", order, err, a.stderr.String())
	}
}

// kill ends the process as it is.
func (a *app) kill() {
	if a.ended {
		return
	}
	a.ended = true
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// end has the app take its leave.
func (a *app) end() {
	a.t.Helper()
	a.do("end", nil, nil)
	_ = a.in.Close()
	a.ended = true
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("the app ends: %v\n%s", err, a.stderr.String())
	}
}
