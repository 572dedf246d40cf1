package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// Data that is damaged is not served: the broker says what is wrong with which
// directory, and leaves everything as it is.
func TestServeRefusesDamagedData(t *testing.T) {
	whole := storedData(t)
	for _, test := range []struct {
		name   string
		file   string // a pattern
		damage func(path string, size int64) error
		want   string
	}{
		{"no manifest", "MANIFEST", func(path string, _ int64) error { return os.Remove(path) }, "MANIFEST"},
		{"cut manifest", "MANIFEST", func(path string, _ int64) error { return os.Truncate(path, 4) }, "MANIFEST"},
		{"noise in the manifest", "MANIFEST", func(path string, _ int64) error { return os.WriteFile(path, []byte("noise"), 0o600) }, "MANIFEST"},
		{"no table", "*.sst", func(path string, _ int64) error { return os.Remove(path) }, ".sst"},
		{"half a table", "*.sst", func(path string, size int64) error { return os.Truncate(path, size/2) }, ".sst"},
		{"empty table", "*.sst", func(path string, _ int64) error { return os.Truncate(path, 0) }, ".sst"},
		{"noise in a table", "*.sst", func(path string, size int64) error { return os.WriteFile(path, make([]byte, size), 0o600) }, "table"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			found, err := filepath.Glob(filepath.Join(dir, test.file))
			if err != nil || len(found) == 0 {
				t.Fatalf("no %s: %v", test.file, err)
			}
			info, err := os.Stat(found[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := test.damage(found[0], info.Size()); err != nil {
				t.Fatal(err)
			}
			r := command(t, "serve", "--listen", "127.0.0.1:0", "--data", dir)
			lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
			last := lines[len(lines)-1]
			if r.code != exitFailed {
				t.Errorf("exit code %d, want %d", r.code, exitFailed)
			}
			for _, want := range []string{"mqtt-inbox: ", dir, "damaged", test.want} {
				if !strings.Contains(last, want) {
					t.Errorf("the last line lacks %q: %s", want, last)
				}
			}
			if strings.Contains(r.stderr, "goroutine") {
				t.Errorf("a stack:\n%s", r.stderr)
			}
		})
	}
}

// storedData returns a data directory with a message for an absent receiver,
// as a broker leaves it that was stopped.
func storedData(t *testing.T) string {
	t.Helper()
	b := brokertest.Start(t, brokertest.Options{})
	alice := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "alice"})
	alice.Subscribe("chat", 1)
	alice.Disconnect()
	mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "bob"}).PublishAndWait("chat", "hello", 1)
	b.Stop()
	return b.Data
}

// A store that was written while the clock was a day ahead [case 116]: nothing
// expires too early, or is said to have more time left than it was given, and what
// was stored first comes first.
func TestServeAfterTheClockHasJumpedBack(t *testing.T) {
	const given = 600 // seconds
	dir := filepath.Join(t.TempDir(), "data")
	writeAhead(t, dir, 24*time.Hour, given)

	b := brokertest.Start(t, brokertest.Options{Data: dir})
	publisher := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "bob", Version: 5})
	publisher.PublishAndWait("chat", "3", 1, mqtttest.WithExpiry(given))
	b.Kill()
	b.Restart()
	alice := mqtttest.Dial(t, b.Address, mqtttest.Options{ClientID: "alice", Version: 5, SessionExpiry: given})
	if !alice.SessionPresent {
		t.Fatal("the session is gone")
	}
	var got []string
	for _, pk := range alice.Collect(3) {
		got = append(got, string(pk.Payload))
		if left := pk.Properties.MessageExpiryInterval; left > given || left < given-60 {
			t.Errorf("message %s has %d seconds left of %d", pk.Payload, left, given)
		}
	}
	if want := []string{"1", "2", "3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// writeAhead stores two messages for alice, who is away, as a broker does whose
// clock is ahead. Each has so many seconds.
func writeAhead(t *testing.T, dir string, ahead time.Duration, seconds int64) {
	t.Helper()
	store, err := badger.Open(badger.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	alice, _, err := store.Open(t.Context(), "alice", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Subscribe(t.Context(), inbox.Subscription{Filter: "chat", QoS: 1}); err != nil {
		t.Fatal(err)
	}
	if err := alice.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever, Goodbye: true}); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(ahead).UnixMilli()
	for i := range 2 {
		stored := make(chan error, 1)
		e := &inbox.Envelope{Time: now, Topic: "chat", Payload: []byte(strconv.Itoa(i + 1)), QoS: 1, Client: "bob", Expiry: now + seconds*1000}
		store.Append(t.Context(), e, func(_ inbox.Receipt, err error) { stored <- err })
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
