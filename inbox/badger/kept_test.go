package badger_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/storetest"
)

func TestContractKept(t *testing.T) {
	storetest.RunKept(t, func(t *testing.T, dir string, k storetest.Keeping) inbox.Store {
		return verifying(t, badger.Options{Dir: dir, History: k.History, Rewind: k.Rewind})
	})
}

func TestContractKeptInStreams(t *testing.T) {
	storetest.RunKept(t, func(t *testing.T, dir string, k storetest.Keeping) inbox.Store {
		return verifying(t, badger.Options{Dir: dir, History: k.History, Rewind: k.Rewind, Pull: []string{"#"}})
	})
}

// What is asked is answered alike when every inbox has an index, and the index lists:
// some messages are in inboxes alone, some in streams, and some in both.
func TestContractKeptIndexed(t *testing.T) {
	storetest.RunKept(t, func(t *testing.T, dir string, k storetest.Keeping) inbox.Store {
		o := badger.Options{Dir: dir, History: k.History, Rewind: k.Rewind, Pull: []string{"+/+", "a"}, Reserve: -1, Retention: -1, Log: quiet()}
		s, err := badger.OpenSorting(o, 5*time.Millisecond)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return verified{s, t, dir}
	}, "pull", "acknowledge", "held", "summary", "mode", "from", "history", "delete", "last", "random")
}

// crashing is a store that is found, when it is opened again, as its process would have
// left it had it been killed rather than closed.
type crashing struct {
	*badger.Store
	t   *testing.T
	dir string
}

// Close puts a copy of the running store in its place.
func (s crashing) Close() error {
	s.t.Helper()
	crashed := filepath.Join(s.t.TempDir(), "crashed")
	copyRunning(s.t, s.Store, s.dir, crashed)
	return errors.Join(s.Store.Close(), os.RemoveAll(s.dir), os.Rename(crashed, s.dir))
}

// What was answered before a crash holds after it.
func TestContractKeptOverCrashes(t *testing.T) {
	storetest.RunKept(t, func(t *testing.T, dir string, k storetest.Keeping) inbox.Store {
		o := badger.Options{Dir: dir, History: k.History, Rewind: k.Rewind, Pull: []string{"a/#"}, Reserve: -1, Retention: -1, Log: quiet()}
		s, err := badger.OpenSweeping(o, 5*time.Millisecond)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return crashing{s, t, dir}
	}, "acknowledge", "held", "mode", "from", "delete", "last", "group", "random")
}

// gathering is a store that a test tells what is done together, and that is gone through when it
// has been closed.
type gathering struct{ verified }

func (s gathering) Tidy() { s.Sweep() }

// What shares a commit comes out as if it had been done one by one.
func TestContractTogether(t *testing.T) {
	for name, o := range map[string]badger.Options{"": {}, "streams": {Pull: []string{"#"}}, "both": {StreamFrom: 2}} {
		t.Run(name, func(t *testing.T) {
			storetest.RunTogether(t, func(t *testing.T, dir string, k storetest.Keeping) storetest.Gathering {
				o.Dir, o.History, o.Rewind = dir, k.History, k.Rewind
				o.Reserve, o.Retention, o.Log = -1, -1, quiet()
				s, err := badger.OpenSweeping(o, time.Hour)
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				s.AwaitIndexes(t)
				return gathering{verified{s, t, dir}}
			})
		})
	}
}
