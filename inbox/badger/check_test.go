package badger_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer s.Close()
	_, err := badger.Open(badger.Options{Dir: dir, LockWait: -1, Log: quiet()})
	if !errors.Is(err, inbox.ErrInUse) {
		t.Fatalf("second open: %v, want ErrInUse", err)
	}
}

func TestDirectoryNotUsable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below")} {
		if s, err := badger.Open(badger.Options{Dir: dir, Log: quiet()}); err == nil {
			s.Close()
			t.Errorf("open %q succeeded", dir)
		}
	}
}

// Every damage that Badger would answer with a panic, an empty store or a
// deletion is refused with ErrDamaged, and the files stay as they are.
func TestDamage(t *testing.T) {
	tests := map[string]func(t *testing.T, dir string){
		"manifest missing": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "MANIFEST")); err != nil {
				t.Fatal(err)
			}
		},
		"manifest cut": func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "MANIFEST")) },
		"table cut":    func(t *testing.T, dir string) { truncate(t, firstTable(t, dir)) },
		"table empty": func(t *testing.T, dir string) {
			if err := os.Truncate(firstTable(t, dir), 0); err != nil {
				t.Fatal(err)
			}
		},
		"table missing": func(t *testing.T, dir string) {
			if err := os.Remove(firstTable(t, dir)); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir)
			damage(t, dir)
			before := tables(t, dir)
			s, err := badger.Open(badger.Options{Dir: dir, Reserve: -1, Retention: -1, Log: quiet()})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, inbox.ErrDamaged) {
				t.Fatalf("open: %v, want ErrDamaged", err)
			}
			if after := tables(t, dir); len(after) != len(before) {
				t.Errorf("%d tables before, %d after", len(before), len(after))
			}
		})
	}
}

// A crash while a table is written leaves one that is not listed yet, perhaps
// empty; what it was to hold is still in the log.
func TestUnlistedTableAfterCrash(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "000099.sst"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	defer s.Close()
	if n := len(drain(t, s, "r")); n != filled {
		t.Errorf("%d messages, want %d", n, filled)
	}
}

// A crash between creating a log file and filling it leaves an empty one.
func TestEmptyLogAfterCrash(t *testing.T) {
	for _, name := range []string{"00099.mem", "000099.vlog"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir)
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir)
			defer s.Close()
			if n := len(drain(t, s, "r")); n != filled {
				t.Errorf("%d messages, want %d", n, filled)
			}
		})
	}
}

const filled = 50

// fill makes a store with messages for one receiver, closed, so that they are
// in a table.
func fill(t *testing.T, dir string) {
	t.Helper()
	s := open(t, dir)
	in, _, err := s.Open(background, "r", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Subscribe(background, inbox.Subscription{Filter: "#", QoS: 1}); err != nil {
		t.Fatal(err)
	}
	for range filled {
		publish(t, s, &inbox.Envelope{Topic: "a", Payload: make([]byte, 1000), QoS: 1})
	}
	if err := in.Close(background, inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// publish appends and waits.
func publish(t testing.TB, s inbox.Store, e *inbox.Envelope) inbox.Receipt {
	t.Helper()
	type result struct {
		r   inbox.Receipt
		err error
	}
	done := make(chan result, 1)
	s.Append(background, e, func(r inbox.Receipt, err error) { done <- result{r, err} })
	res := <-done
	if res.err != nil {
		t.Fatalf("append: %v", res.err)
	}
	return res.r
}

// drain opens r's inbox and returns everything in it, without finishing it.
func drain(t testing.TB, s inbox.Store, r inbox.Receiver) (all []inbox.Entry) {
	t.Helper()
	in, _, err := s.Open(background, r, inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	publish(t, s, &inbox.Envelope{Topic: "drain/end", QoS: 1, Time: time.Now().UnixMilli()})
	for {
		page, err := in.Next(ctx, 1000, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			if e.Envelope.Topic == "drain/end" {
				return all
			}
			all = append(all, e)
		}
	}
}

func tables(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func firstTable(t *testing.T, dir string) string {
	t.Helper()
	names := tables(t, dir)
	if len(names) == 0 {
		t.Fatal("no tables: the test would test nothing")
	}
	return names[0]
}

func truncate(t *testing.T, name string) {
	t.Helper()
	st, err := os.Stat(name)
	if err == nil {
		err = os.Truncate(name, st.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}
