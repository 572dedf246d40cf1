package bench

import "fmt"

// Faults are the ways in which what arrived differed from what was acknowledged.
type Faults struct {
	Lost       int `json:"lost"`       // acknowledged to the publisher, never delivered
	Repeated   int `json:"repeated"`   // delivered again
	Misordered int `json:"misordered"` // delivered for the first time after a later one of its stream
}

// Any reports whether there was a fault.
func (f Faults) Any() bool { return f != Faults{} }

func (f Faults) String() string {
	if !f.Any() {
		return "none"
	}
	return fmt.Sprintf("%d lost, %d repeated, %d misordered", f.Lost, f.Repeated, f.Misordered)
}

func (f *Faults) add(g Faults) {
	f.Lost += g.Lost
	f.Repeated += g.Repeated
	f.Misordered += g.Misordered
}

// checker follows the streams that one receiver gets, one per publisher. The
// messages of a stream are numbered 0, 1, 2 and so on. Cost: O(1) per message
// that comes in order, and memory only for gaps.
type checker struct {
	streams map[int]*stream
	faults  Faults // without the lost ones, which are known at the end
}

type stream struct {
	next    uint64              // every number below has arrived or is missing
	missing map[uint64]struct{} // skipped, may still come
}

func newChecker() *checker { return &checker{streams: make(map[int]*stream)} }

// take notes that message number n of a publisher has arrived.
func (c *checker) take(publisher int, n uint64) {
	s := c.streams[publisher]
	if s == nil {
		s = &stream{missing: make(map[uint64]struct{})}
		c.streams[publisher] = s
	}
	if n < s.next {
		if _, ok := s.missing[n]; !ok {
			c.faults.Repeated++
			return
		}
		c.faults.Misordered++
		delete(s.missing, n)
		return
	}
	for ; s.next < n; s.next++ {
		s.missing[s.next] = struct{}{}
	}
	s.next++
}

// complete reports whether everything that was acknowledged has arrived:
// acked[p] messages of publisher p.
func (c *checker) complete(acked []uint64) bool { return c.lost(acked) == 0 }

// result returns the faults, given how much was acknowledged.
func (c *checker) result(acked []uint64) Faults {
	f := c.faults
	f.Lost = c.lost(acked)
	return f
}

func (c *checker) lost(acked []uint64) int {
	lost := 0
	for p, n := range acked {
		s := c.streams[p]
		if s == nil {
			lost += int(n)
			continue
		}
		if s.next < n {
			lost += int(n - s.next)
		}
		for m := range s.missing {
			if m < n {
				lost++
			}
		}
	}
	return lost
}
