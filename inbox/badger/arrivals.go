package badger

import (
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// arrivals are entries that follow each other in one inbox, before they are sorted
// into lists.
type arrivals struct {
	names     [][2]string // sender and topic of each pair
	entries   []posting   // ascending
	of        []uint32    // the number of each one's pair
	expiresAt uint64      // when the last of the blocks that they are from may go, in Badger's seconds; 0 for never

	numbers map[[2]string]uint32 // of the pairs, while entries are added
	size    int                  // what they take in memory, as estimated
}

// What an entry and a pair, without its names, are estimated to take in memory.
const (
	arrivalBytes = 64
	pairBytes    = 256
)

// add adds an entry, which is in a block that goes at expiresAt. It keeps copies of the
// names. Cost: 50 ns.
func (a *arrivals) add(p posting, sender, topic string, expiresAt uint64) {
	names := [2]string{sender, topic}
	n, ok := a.numbers[names]
	if !ok {
		if a.numbers == nil {
			a.numbers = map[[2]string]uint32{}
		}
		n = uint32(len(a.names))
		names = [2]string{strings.Clone(sender), strings.Clone(topic)}
		a.numbers[names] = n
		a.names = append(a.names, names)
		a.size += pairBytes + len(sender) + len(topic)
	}
	if len(a.entries) == 0 {
		a.expiresAt = expiresAt
	}
	a.expiresAt = laterExpiry(a.expiresAt, expiresAt)
	a.entries, a.of = append(a.entries, p), append(a.of, n)
	a.size += arrivalBytes
}

// laterExpiry returns the later of two times as Badger has them.
func laterExpiry(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// reset forgets everything but the room that it has taken.
func (a *arrivals) reset() {
	clear(a.numbers)
	a.names, a.entries, a.of, a.size = a.names[:0], a.entries[:0], a.of[:0], 0
}

func (a *arrivals) last() inbox.Position { return a.entries[len(a.entries)-1].position }
