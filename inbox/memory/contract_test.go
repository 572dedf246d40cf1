package memory_test

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/storetest"
)

func TestContract(t *testing.T) {
	byDirectory := map[string]*memory.Store{}
	storetest.Run(t, func(_ *testing.T, dir string) inbox.Store {
		store, again := byDirectory[dir]
		if again {
			store = store.Reopen()
		} else {
			store = memory.New()
		}
		byDirectory[dir] = store
		return store
	})
}
