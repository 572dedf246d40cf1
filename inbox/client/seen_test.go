package client_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/client"
)

func openSeen(t *testing.T, path string, most int) *client.Seen {
	t.Helper()
	s, err := client.OpenSeen(path, client.SeenOptions{Max: most, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func first(t *testing.T, s *client.Seen, id string) bool {
	t.Helper()
	ok, err := s.First(id)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestSeenRemembersOverRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	s := openSeen(t, path, 0)
	if s.Has("a") || !first(t, s, "a") || first(t, s, "a") || !s.Has("a") {
		t.Error("a is not new exactly once")
	}
	if err := s.Add("b", "c", "b", "a", ""); err != nil {
		t.Fatal(err)
	}
	if s.Has("") || !first(t, s, "") || !first(t, s, "") {
		t.Error("a message without an id is taken for another one")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !s.Has("a") || first(t, s, "b") {
		t.Error("after Close it does not answer")
	}
	if _, err := s.First("d"); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	s = openSeen(t, path, 0)
	for _, id := range []string{"a", "b", "c"} {
		if first(t, s, id) {
			t.Errorf("%s is new after a restart", id)
		}
	}
	if !first(t, s, "d") {
		t.Error("d is not new")
	}
}

// The last ids are remembered, no more, and the file does not grow with those
// that are forgotten.
func TestSeenIsBounded(t *testing.T) {
	const most = 10
	path := filepath.Join(t.TempDir(), "seen")
	s := openSeen(t, path, most)
	for i := range 200 {
		if !first(t, s, fmt.Sprint(i)) {
			t.Fatalf("%d is not new", i)
		}
		if i%7 == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openSeen(t, path, most)
		}
		for j := range i + 1 {
			if s.Has(fmt.Sprint(j)) != (j > i-most) {
				t.Fatalf("after %d: %d is known: %t", i, j, s.Has(fmt.Sprint(j)))
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 8+2*most*20 {
			t.Fatalf("after %d the file has %d bytes", i, info.Size())
		}
	}
	var page []string
	for i := range 5 * most {
		page = append(page, fmt.Sprint("page", i))
	}
	if err := s.Add(page...); err != nil {
		t.Fatal(err)
	}
	if s.Has(page[0]) || !s.Has(page[len(page)-1]) || !s.Has(page[len(page)-most]) {
		t.Error("of a long page others than the last are known")
	}
}

// Wherever the end of the file is torn, what was complete is known, and the file goes on
// to be good.
func TestSeenWithTornTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	s := openSeen(t, path, 0)
	for _, id := range []string{"a", "b"} {
		first(t, s, id)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const beforeLast = 8 + 20
	for cut := beforeLast; cut < len(whole); cut++ {
		for _, tail := range []string{"", "garbage that is longer than an entry"} {
			torn := append(whole[:cut:cut], tail...)
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			s := openSeen(t, path, 0)
			if !s.Has("a") || !first(t, s, "b") || !first(t, s, "c") {
				t.Fatalf("cut at %d, then %q: wrong", cut, tail)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openSeen(t, path, 0)
			if !s.Has("a") || !s.Has("b") || !s.Has("c") {
				t.Fatalf("cut at %d, then %q: forgotten after a restart", cut, tail)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSeenSetsDamagedFileAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	for _, content := range []string{"", "mqins", "something else"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s := openSeen(t, path, 0)
		if !first(t, s, "a") {
			t.Error("a is not new")
		}
		aside, err := os.ReadFile(path + ".damaged")
		if err != nil || string(aside) != content {
			t.Errorf("set aside is %q, %v; want %q", aside, err, content)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s = openSeen(t, path, 0); !s.Has("a") {
			t.Error("the new file does not last")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte("mqinsee\x02"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.OpenSeen(path, client.SeenOptions{}); !errors.Is(err, client.ErrNewer) {
		t.Errorf("a newer file: %v", err)
	}
}

func TestSeenIsOpenedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	s := openSeen(t, path, 0)
	if _, err := client.OpenSeen(path, client.SeenOptions{}); !errors.Is(err, client.ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openSeen(t, path, 0)
	if _, err := client.OpenSeen(path, client.SeenOptions{Max: -1}); err == nil {
		t.Error("a filter of -1 ids is opened")
	}
}

// Of those that ask at the same time, one is told that an id is new.
func TestSeenAtTheSameTime(t *testing.T) {
	const ids, asking = 50, 4
	s := openSeen(t, filepath.Join(t.TempDir(), "seen"), ids)
	var news [ids]atomic.Int32
	var all sync.WaitGroup
	for range asking {
		all.Go(func() {
			for i := range ids {
				ok, err := s.First(fmt.Sprint(i))
				if err != nil {
					t.Error(err)
				}
				if ok {
					news[i].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range news {
		if n := news[i].Load(); n != 1 {
			t.Errorf("%d was new to %d of %d", i, n, asking)
		}
	}
}

// killedSeen is how many ids the filter of the child remembers: few, so that it writes
// new files all the time.
const killedSeen = 20

// seenChild sees one number after the other, and prints each when it is remembered.
func seenChild(path string, begin int) error {
	s, err := client.OpenSeen(path, client.SeenOptions{Max: killedSeen})
	if err != nil {
		return err
	}
	next := goesOn()
	for i := begin; ; i++ {
		if err := next(); err != nil {
			return err
		}
		if _, err := s.First(fmt.Sprint(i)); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// Whenever the process is killed, it is known then what was remembered.
func TestSeenSurvivesKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	begin := 0
	for range 20 {
		printed := killed(t, "seen", path, begin, 3*killedSeen)
		begin += len(printed)
		s := openSeen(t, path, killedSeen)
		// One more may be known, whose line was not printed.
		for i := max(begin-killedSeen+1, 0); i < begin; i++ {
			if !s.Has(fmt.Sprint(i)) {
				t.Errorf("killed after %d: %d is forgotten", begin-1, i)
			}
		}
		if s.Has(fmt.Sprint(begin + 1)) {
			t.Errorf("killed after %d: what comes is known", begin-1)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if most := int64(8 + 2*killedSeen*20 + 20); info.Size() > most {
			t.Errorf("the file has %d bytes, more than %d", info.Size(), most)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
