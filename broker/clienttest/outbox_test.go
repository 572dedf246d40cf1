package clienttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/client"
)

// publisherEnv makes the test binary a publisher: the broker's address, the directory of the
// outbox, and the number to begin at, with spaces between.
const publisherEnv = "CLIENTTEST_PUBLISHER"

// ahead is how many numbers a publisher may print before any is read: few enough that its outbox
// has room for them, however long the broker takes to be back.
const ahead = 1000

// publishUntilKilled adds one number after the other, prints each when it is added, and
// sends them, until it is killed. It reads a byte before each.
func publishUntilKilled(how string) error {
	words := strings.Split(how, " ")
	begin, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	connection, err := autopaho.NewConnection(ctx, autopaho.ClientConfig{
		ServerUrls:            []*url.URL{{Scheme: "mqtt", Host: words[0]}},
		KeepAlive:             30,
		SessionExpiryInterval: sessionExpiry,
		ReconnectBackoff:      autopaho.NewConstantBackoff(20 * time.Millisecond),
		ClientConfig:          paho.ClientConfig{ClientID: "publisher"},
	})
	if err != nil {
		return err
	}
	outbox, err := client.OpenOutbox(words[1], client.OutboxOptions{Lost: func(l client.Lost) { fmt.Println("lost", l) }})
	if err != nil {
		return err
	}
	go func() { fmt.Println("ended", outbox.Run(ctx, connection)) }()
	leave := bufio.NewReader(os.Stdin)
	for i := begin; ; i++ {
		if _, err := leave.ReadByte(); err != nil {
			return err
		}
		name := paho.UserProperty{Key: client.PropertyName, Value: fmt.Sprint(i)}
		p := &paho.Publish{Topic: "chat/alice", QoS: 1, Payload: []byte(fmt.Sprint(i)), Properties: &paho.PublishProperties{User: paho.UserProperties{name}}}
		if _, err := outbox.Add(p); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// A publisher and the broker are killed again and again. What was added to the outbox arrives once and
// in order: D8. The program numbers its messages itself, so that it may add one again of
// which it does not know.
func TestOutboxOverKillsOfBothSides(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	got := make(chan string, 10_000)
	seen := map[string]bool{}
	connectDevice(t, b, deviceOptions{id: "alice", subscribe: "chat/#", received: func(p *paho.Publish) {
		if id := client.MetadataOf(p).ID; !seen[id] { // else her acknowledgement was lost with a broker
			seen[id] = true
			got <- string(p.Payload)
		}
	}})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	next := 0
	for range 4 {
		cmd := exec.Command(self) //nolint:gosec // this test binary
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", publisherEnv, b.Address, dir, next))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(make([]byte, ahead)); err != nil {
			t.Fatal(err)
		}
		crash, stop := next+rand.IntN(50), next+50+rand.IntN(50)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // the end; of a line that is not complete nothing was promised
			}
			if line != fmt.Sprintln(next) {
				t.Fatalf("the publisher says %q after %d", line, next-1)
			}
			_, _ = in.Write([]byte{0}) // it may be dead
			switch next++; next {
			case crash + 1:
				b.Crash()
				b.Restart()
			case stop + 1:
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
	}

	// What is left is sent by one that goes on.
	last := connectDevice(t, b, deviceOptions{id: "publisher"})
	outbox, err := client.OpenOutbox(dir, client.OutboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- outbox.Run(ctx, last.connection) }()
	if _, err := outbox.Publish(ctx, &paho.Publish{Topic: "chat/alice", QoS: 1, Payload: []byte("last")}); err != nil {
		t.Fatal(err)
	}
	var all []string
	for len(all) == 0 || all[len(all)-1] != "last" {
		select {
		case payload := <-got:
			all = append(all, payload)
		case <-ctx.Done():
			t.Fatalf("%d messages have come, and not the last", len(all))
		}
	}
	want := numbered("", 0, next)
	if n := len(all) - 2; n == next { // one more was added whose line was not read
		want = numbered("", 0, next+1)
	}
	equal(t, "received", all, append(want, "last"))
	if err := outbox.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}
