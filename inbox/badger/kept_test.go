package badger_test

import (
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
	}, "pull", "acknowledge", "summary", "history", "delete", "last", "random")
}
