package main

import (
	"strings"
	"testing"

	dgraph "github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
)

func TestInboxVerify(t *testing.T) {
	dir := storedData(t)
	r := command(t, "inbox", "verify", "--data", dir)
	if want := "sessions 2, groups 0, streams 0, subscriptions 1, entries 1, bodies 0, retained 0, bytes "; r.code != exitDone ||
		!strings.HasPrefix(r.stdout, want) || strings.Count(r.stdout, "\n") != 1 || r.stderr != "" {
		t.Errorf("%+v, want %q and a number", r, want)
	}

	dropSession(t, dir, "alice")
	r = command(t, "inbox", "verify", "--data", dir)
	if r.code != exitFailed || !strings.Contains(r.stderr, dir+" has faults: 3") {
		t.Errorf("exit code %d, error %q, want %d and 3 faults", r.code, r.stderr, exitFailed)
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	for i, want := range []string{"stays: subscription of", "stays: delivery state of", "stays: block of", "sessions 1,"} {
		if len(lines) != 4 || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("printed %q, want %q in line %d of 4", lines, want, i+1)
		}
	}
}

// dropSession deletes the record of a session, and nothing that belongs to it.
func dropSession(t *testing.T, dir, client string) {
	t.Helper()
	db, err := dgraph.Open(dgraph.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(txn *dgraph.Txn) error { return txn.Delete([]byte("S\x00" + client)) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestInboxVerifyFails(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{})
	empty := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"in use":    {[]string{"--data", b.Data}, exitFailed, []string{b.Data, "used by another process"}},
		"no store":  {[]string{"--data", empty}, exitFailed, []string{empty, "there is no store"}},
		"retention": {[]string{"--retention", "1ms"}, exitUsage, []string{"retention 1ms", "0s for ever"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := command(t, append([]string{"inbox", "verify"}, test.args...)...)
			if r.code != test.code || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("%+v, want exit code %d and one line on standard error", r, test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("%q lacks %q", r.stderr, want)
				}
			}
		})
	}
}
