package badger_test

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/storetest"
)

// asked are the clauses of [storetest.RunKept] that are about inboxes.
var asked = []string{"pull", "acknowledge", "summary", "mode", "from", "group"}

func TestContractKept(t *testing.T) {
	storetest.RunKept(t, func(t *testing.T, dir string, k storetest.Keeping) inbox.Store {
		return verifying(t, badger.Options{Dir: dir, History: k.History, Rewind: k.Rewind})
	}, asked...)
}

func TestContractKeptInStreams(t *testing.T) {
	storetest.RunKept(t, func(t *testing.T, dir string, k storetest.Keeping) inbox.Store {
		return verifying(t, badger.Options{Dir: dir, History: k.History, Rewind: k.Rewind, Pull: []string{"#"}})
	}, asked...)
}
