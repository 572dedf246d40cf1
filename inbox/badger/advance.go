package badger

import (
	"bytes"

	"github.com/dgraph-io/badger/v4"
)

// nearKeys is how many keys are passed over one by one: to seek costs as much as some.
const nearKeys = 2

// advance has an iterator that is at a key in front of this one go to this one, or to the
// first behind it. Cost: less than a seek if that is near.
func advance(it *badger.Iterator, key []byte) {
	for range nearKeys {
		if it.Next(); !it.Valid() || bytes.Compare(it.Item().Key(), key) >= 0 {
			return
		}
	}
	it.Seek(key)
}
