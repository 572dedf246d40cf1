package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// curl runs curl, and decodes what it prints. It fails as curl does.
func curl(t *testing.T, answer any, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "curl", append([]string{"--silent", "--show-error", "--fail-with-body", "--max-time", "60"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("curl %s: %v: %s%s", strings.Join(args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	if err := json.Unmarshal(stdout.Bytes(), answer); err != nil {
		t.Fatalf("curl %s: %v: %s", strings.Join(args, " "), err, stdout.Bytes())
	}
}

var httpAddress = regexp.MustCompile(`msg=listening protocol=http address=(\S+)`)

// baseURL is where a broker that was started with --http 127.0.0.1:0 answers now.
func baseURL(t *testing.T, b *brokertest.Broker) string {
	t.Helper()
	found := httpAddress.FindAllStringSubmatch(b.Log(), -1)
	if len(found) == 0 {
		t.Fatal("the broker does not listen for HTTP")
	}
	return "http://" + found[len(found)-1][1]
}

// leaveSession makes Alice's session, and leaves it.
func leaveSession(t *testing.T, b *brokertest.Broker) {
	t.Helper()
	alice := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "alice"})
	alice.Subscribe("chat/alice", 1)
	alice.Disconnect()
	alice.WaitClosed()
}

// What was answered over HTTP is on stable storage, as a kill shows.
func TestCurl(t *testing.T) {
	brokertest.NeedTools(t, "curl")
	b := brokertest.Start(t, brokertest.Options{Args: []string{"--http", "127.0.0.1:0", "--history", "chat/#=7d,1GiB"}})
	leaveSession(t, b)
	base := baseURL(t, b)
	texts := []string{"1", "2", "3", "4", "5"}
	for _, text := range texts {
		var a struct{ ID string }
		curl(t, &a, base+"/v1/messages", "--user", "bob:any", "--json", `{"topic":"chat/alice","payload":"`+text+`"}`)
		if a.ID == "" {
			t.Errorf("message %s has no id", text)
		}
	}
	b.Restart() // by SIGKILL
	base = baseURL(t, b)

	page := func(after string) pull.MessagesAnswer {
		var a pull.MessagesAnswer
		curl(t, &a, base+"/v1/inboxes/alice/messages", "--get", "--data", "limit=2", "--data-urlencode", "after="+after)
		return a
	}
	var got []string
	read := func(a pull.MessagesAnswer) {
		for _, m := range a.Messages {
			got = append(got, m.Payload)
		}
	}
	first := page("")
	read(first)
	second := page(first.Next)
	read(second)
	b.Restart() // the second page was not acknowledged
	base = baseURL(t, b)
	if again := page(""); len(again.Messages) != 2 || again.Messages[0].ID != second.Messages[0].ID {
		t.Errorf("after a kill there comes %+v, want the page again that was not acknowledged: %+v", again.Messages, second.Messages)
	}
	for next := second.Next; ; {
		a := page(next)
		if len(a.Messages) == 0 {
			break
		}
		read(a)
		next = a.Next
	}
	if !slices.Equal(got, texts) {
		t.Errorf("pulled %v, want %v", got, texts)
	}

	var history pull.MessagesAnswer
	curl(t, &history, base+"/v1/history", "--get", "--data-urlencode", "topic=chat/#", "--data-urlencode", "sender=bob")
	if len(history.Messages) != 5 || history.Messages[0].Payload != "5" {
		t.Errorf("history: %+v", history.Messages)
	}
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The lines of README that use curl do what they are there for.
func TestCurlInREADME(t *testing.T) {
	brokertest.NeedTools(t, "curl", "sh")
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	b := brokertest.Start(t, brokertest.Options{Args: []string{"--http", "127.0.0.1:0", "--history", "chat/#"}})
	leaveSession(t, b)
	const written = "http://127.0.0.1:8080"
	next, lines := "", 0
	for line := range strings.Lines(string(readme)) {
		rest, ok := strings.CutPrefix(line, "    curl ")
		if !ok {
			continue
		}
		lines++
		command := "curl --silent --fail-with-body " + strings.NewReplacer(written, baseURL(t, b), "NEXT", next).Replace(rest)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", command).Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		var answer struct {
			Next     string
			Messages any
		}
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		if list, ok := answer.Messages.([]any); ok && len(list) == 0 {
			t.Errorf("%s: an empty page", line)
		}
		if answer.Next != "" {
			next = answer.Next
		}
	}
	if lines < 7 {
		t.Errorf("%d lines were found", lines)
	}
}
