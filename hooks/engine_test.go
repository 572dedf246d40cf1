package hooks_test

import (
	"os"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
)

// engine is the store that the tests run on: in memory, or on disk if
// INBOX_ENGINE is badger. open makes an empty store, reopen is a restart on the
// same data.
var engine = struct {
	open   func(testing.TB, keeping) inbox.Store
	reopen func(testing.TB, inbox.Store) inbox.Store
}{
	open: func(_ testing.TB, k keeping) inbox.Store {
		return memory.New(memory.Options{History: k.History, Rewind: k.Rewind})
	},
	reopen: func(_ testing.TB, s inbox.Store) inbox.Store { return s.(*memory.Store).Reopen() },
}

// keeping is what a store keeps beside what is unread.
type keeping struct {
	History []inbox.Kept
	Rewind  time.Duration
}

func init() {
	if os.Getenv("INBOX_ENGINE") != "badger" {
		return
	}
	engine.open = func(t testing.TB, k keeping) inbox.Store {
		return openStore(t, badger.Options{Dir: t.TempDir(), History: k.History, Rewind: k.Rewind})
	}
	engine.reopen = func(t testing.TB, s inbox.Store) inbox.Store {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return openStore(t, s.(onDisk).options)
	}
}

// onDisk is a store that knows how it was opened.
type onDisk struct {
	inbox.Store
	options badger.Options
}

func openStore(t testing.TB, o badger.Options) inbox.Store {
	t.Helper()
	o.Reserve = -1
	s, err := badger.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return onDisk{s, o}
}
