package memory_test

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/storetest"
)

func TestContract(t *testing.T) {
	open := opener()
	storetest.Run(t, func(_ *testing.T, dir string) inbox.Store { return open(dir, memory.Options{}) })
}

func TestContractKept(t *testing.T) {
	open := opener()
	storetest.RunKept(t, func(_ *testing.T, dir string, k storetest.Keeping) inbox.Store {
		return open(dir, memory.Options{History: k.History, Rewind: k.Rewind})
	})
}

// opener opens a store that was opened before as after a restart.
func opener() func(dir string, o memory.Options) inbox.Store {
	byDirectory := map[string]*memory.Store{}
	return func(dir string, o memory.Options) inbox.Store {
		store, again := byDirectory[dir]
		if again {
			store = store.Reopen()
		} else {
			store = memory.New(o)
		}
		byDirectory[dir] = store
		return store
	}
}
