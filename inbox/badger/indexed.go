package badger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// indexedVersion is the version of the record that says how far an inbox is indexed:
//
//	version:1  phase:1  kinds:1  sorted:uvarint  newest:uvarint  skew:uvarint
//
// kinds has bit n set for kind n. newest is the time of the newest message up to
// sorted, and skew by how much one behind it was older at most, Unix milliseconds. Of
// earlier versions, whose lists were others or stood elsewhere, only kinds are read: such an
// index is made anew.
const indexedVersion = 3

// indexPhase is what is to be done with the index of an inbox.
type indexPhase byte

const (
	indexKept indexPhase = iota // it is kept up
	indexNew                    // it is to be made; what there is of it is deleted before
	phases
)

// indexed is how far an inbox is indexed. The lists themselves may be ahead, each
// for itself, while what came is being sorted into them: what is at the last posting of
// a list or before it counts as it is there.
type indexed struct {
	phase  indexPhase
	kinds  listKinds
	sorted inbox.Position // everything up to here is in the lists
	clock  messageClock   // up to there
}

func indexedKey(inc incarnation) []byte { return numberKey(prefixIndexed, uint64(inc)) }

func appendIndexed(dst []byte, x indexed) []byte {
	dst = append(dst, indexedVersion, byte(x.phase), byte(x.kinds))
	for _, v := range [...]uint64{uint64(x.sorted), uint64(x.clock.newest), uint64(x.clock.skew)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func parseIndexed(b []byte) (x indexed, err error) {
	if len(b) < 3 {
		return x, fmt.Errorf("read index: %d bytes: %w", len(b), inbox.ErrDamaged)
	}
	if b[0] == 1 || b[0] == 2 {
		return indexed{phase: indexNew, kinds: listKinds(b[2])}, nil
	}
	if err := checkVersion("index", int(b[0]), indexedVersion); err != nil {
		return x, err
	}
	x.phase, x.kinds = indexPhase(b[1]), listKinds(b[2])
	d := postingsReader{rest: b[3:]}
	x.sorted = inbox.Position(d.number("sorted"))
	x.clock = messageClock{int64(d.number("newest")), int64(d.number("skew"))}
	if d.err == nil && (len(d.rest) > 0 || x.phase >= phases) {
		d.fail("end")
	}
	return x, d.err
}

// readIndexed reads how far an inbox is indexed, and whether it is at all.
func readIndexed(txn *badger.Txn, inc incarnation) (x indexed, ok bool, err error) {
	item, err := txn.Get(indexedKey(inc))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return x, false, nil
	}
	if err == nil {
		err = item.Value(func(v []byte) (err error) { x, err = parseIndexed(v); return err })
	}
	return x, err == nil, err
}
