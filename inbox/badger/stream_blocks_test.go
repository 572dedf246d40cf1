package badger

import (
	"math/rand/v2"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What is kept is within the bound, and what is found holds what comes next: after
// any additions of blocks and parts of blocks that overlap.
func TestStreamBlocksAreFoundWhereTheyAre(t *testing.T) {
	const entries, part = 10000, streamBlockBytes / 40
	c := newStreamBlocks()
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 3000 {
		inc, p := incarnation(random.IntN(3)), inbox.Position(1+random.IntN(entries))
		b := c.find(inc, p)
		if b == nil {
			// As a reader that comes in the middle of a block of 100 decodes it.
			b = c.add(&streamBlock{incarnation: inc, after: p - 1, last: (p + 99) / 100 * 100, bytes: part}, 0)
		} else {
			found++
		}
		if b.incarnation != inc || p <= b.after || p > b.last {
			t.Fatalf("at %d of %d: found what is after %d and up to %d of %d", p, inc, b.after, b.last, b.incarnation)
		}
		if c.bytes > streamBlockBytes {
			t.Fatalf("%d bytes are kept, want no more than %d", c.bytes, streamBlockBytes)
		}
		sum := 0
		for _, all := range c.of {
			for i, e := range all {
				sum += blockOf(e).bytes
				if i > 0 && blockOf(all[i-1]).last >= blockOf(e).last {
					t.Fatal("blocks are not ascending")
				}
			}
		}
		if sum != c.bytes || c.used.Len()*part != sum {
			t.Fatalf("%d bytes counted, %d blocks with %d", c.bytes, c.used.Len(), sum)
		}
	}
	if found < 100 {
		t.Errorf("%d found of 3000", found)
	}

	c.add(&streamBlock{incarnation: 9, last: 1, bytes: 2 * streamBlockBytes}, 0)
	if c.used.Len() != 1 || len(c.of) != 1 {
		t.Errorf("%d blocks beside one that is larger than the bound", c.used.Len()-1)
	}
}

// When a message is deleted, no block that has it is found any more, whatever parts of
// it are kept, and none comes back by a transaction that has seen it.
func TestStreamBlocksWithDeletedMessages(t *testing.T) {
	c := newStreamBlocks()
	add := func(after, last inbox.Position, readAt uint64) {
		c.add(&streamBlock{incarnation: 1, after: after, last: last, bytes: 1}, readAt)
	}
	found := func(p inbox.Position) bool { return c.find(1, p) != nil }
	for after := range inbox.Position(10) {
		add(10*after, 10*after+10, 1)
	}
	add(34, 50, 1)
	add(34, 48, 1)
	c.drop([]inbox.Position{77, 45, 20}, 5)
	for p := inbox.Position(1); p <= 100; p++ {
		gone := p > 10 && p <= 20 || p > 40 && p <= 50 || p > 70 && p <= 80
		if found(p) == gone {
			t.Errorf("at %d: found %v", p, gone)
		}
	}
	add(10, 20, 4)
	if found(15) {
		t.Error("what was read before is kept")
	}
	add(10, 20, 5)
	if !found(15) {
		t.Error("what was read behind it is not kept")
	}
	if c.used.Len() != c.bytes {
		t.Errorf("%d blocks, %d bytes", c.used.Len(), c.bytes)
	}
}
