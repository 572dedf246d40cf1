package clienttest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// chromiums are the names under which Chromium may be installed.
var chromiums = []string{"chromium", "chromium-browser", "google-chrome"}

// needChromium returns the command, and skips the test if there is none; it fails it where
// CI is set.
func needChromium(t *testing.T) string {
	t.Helper()
	for _, name := range chromiums {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("Chromium is not installed")
	}
	t.Skip("Chromium is not installed")
	return ""
}

// page is a page in a headless Chromium, which is spoken to by its debugging protocol.
type page struct {
	t    *testing.T
	conn *websocket.Conn
	last int // number of the last command
}

// openPage starts Chromium on an address. It ends with the test.
func openPage(t *testing.T, address string) *page {
	t.Helper()
	profile, err := os.MkdirTemp("", "chromium-") // not of the test: Chromium may still write when it is removed
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(needChromium(t), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", //nolint:gosec // constant arguments
		"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--remote-debugging-port=0", "--user-data-dir="+profile, address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children, which end with it
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for r := bufio.NewScanner(log); r.Scan(); {
			if _, where, ok := strings.Cut(r.Text(), "DevTools listening on ws://"); ok {
				lines <- where
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		_ = cmd.Wait()
		_ = os.RemoveAll(profile)
	})
	var host string
	select {
	case where := <-lines:
		host, _, _ = strings.Cut(where, "/")
	case <-ended:
		t.Fatal("Chromium has ended at its start")
	}
	p := &page{t: t}
	p.conn, _, err = websocket.DefaultDialer.Dial(debugger(t, host), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

// debugger waits until there is a page, and returns the address at which it is spoken to.
func debugger(t *testing.T, host string) (address string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	mqtttest.Eventually(t, func() bool {
		answer, err := client.Get("http://" + host + "/json/list")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		var targets []struct {
			Type    string
			Address string `json:"webSocketDebuggerUrl"`
		}
		if err := json.NewDecoder(answer.Body).Decode(&targets); err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			if target.Type == "page" {
				address = target.Address
			}
		}
		return address != ""
	}, "Chromium has a page")
	return address
}

// command sends a command and returns its result.
func (p *page) command(method string, parameters any) (json.RawMessage, error) {
	p.last++
	err := p.conn.WriteJSON(map[string]any{"id": p.last, "method": method, "params": parameters})
	for err == nil {
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err = p.conn.ReadJSON(&answer); err != nil {
			break
		}
		if answer.ID != p.last {
			continue // an event
		}
		if answer.Error != nil {
			return nil, errors.New(answer.Error.Message)
		}
		return answer.Result, nil
	}
	return nil, fmt.Errorf("%s: %w", method, err)
}

// eval evaluates JavaScript on the page and reads the result into what it points to. An
// error means that the page is not ready for it.
func (p *page) eval(script string, result any) error {
	raw, err := p.command("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true})
	if err != nil {
		return err
	}
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return err
	}
	if answer.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", script, answer.ExceptionDetails)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// shows waits until the page shows what is wanted.
func (p *page) shows(script, want string) {
	p.t.Helper()
	var got string
	var err error
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%s: %q, %v; want %q", script, got, err, want)
		}
	}()
	mqtttest.EventuallyWithin(p.t, deadline, func() bool {
		got = ""
		err = p.eval(script, &got)
		return err == nil && got == want
	}, "the page shows it")
}

// do evaluates JavaScript that must succeed.
func (p *page) do(script string) {
	p.t.Helper()
	if err := p.eval(script, nil); err != nil {
		p.t.Fatal(err)
	}
}

// reload loads the page anew, as its user would.
func (p *page) reload() {
	p.t.Helper()
	p.do("window.old = true")
	if _, err := p.command("Page.reload", map[string]any{}); err != nil {
		p.t.Fatal(err)
	}
	p.shows("String(window.old)", "undefined")
}
