package inbox

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
)

// Span is the positions behind After, up to Through and with it.
type Span struct{ After, Through Position }

// Spans is a set of positions: spans that ascend, of which none is empty and no two
// touch. Nil is the empty set. It is plain data: but for Append no method changes what
// it is called on, or shares memory that another may change. Finding costs O(log n) in the number of
// spans, everything else O(n).
type Spans []Span

// search returns the place of the first span that ends at p or behind it.
func (s Spans) search(p Position) int {
	return sort.Search(len(s), func(i int) bool { return s[i].Through >= p })
}

// Contains reports whether p is in the set.
func (s Spans) Contains(p Position) bool {
	i := s.search(p)
	return i < len(s) && s[i].After < p
}

// Add returns the set with the positions of one span more.
func (s Spans) Add(span Span) Spans {
	if span.Through <= span.After {
		return s
	}
	first := s.search(span.After) // one that ends where the new one begins touches it
	end := first
	for end < len(s) && s[end].After <= span.Through {
		span.After = min(span.After, s[end].After)
		span.Through = max(span.Through, s[end].Through)
		end++
	}
	return slices.Concat(s[:first], Spans{span}, s[end:])
}

// Append adds a span behind all others, or at the end of the last, and returns the set.
// As of the built-in append, only the result is to be used from then on. Cost: O(1).
func (s Spans) Append(span Span) Spans {
	if n := len(s); n > 0 && s[n-1].Through == span.After {
		s[n-1].Through = span.Through
		return s
	}
	return append(s, span)
}

// Remove returns the set without the positions of one span.
func (s Spans) Remove(span Span) Spans {
	if span.Through <= span.After {
		return s
	}
	var rest Spans
	for _, old := range s {
		if before := (Span{old.After, min(old.Through, span.After)}); before.Through > before.After {
			rest = append(rest, before)
		}
		if behind := (Span{max(old.After, span.Through), old.Through}); behind.Through > behind.After {
			rest = append(rest, behind)
		}
	}
	return rest
}

// Union returns the positions that are in one of two sets.
func (s Spans) Union(o Spans) Spans {
	var all Spans
	for len(s) > 0 || len(o) > 0 {
		if len(s) == 0 || len(o) > 0 && o[0].After < s[0].After {
			s, o = o, s
		}
		if last := len(all) - 1; last >= 0 && s[0].After <= all[last].Through {
			all[last].Through = max(all[last].Through, s[0].Through)
		} else {
			all = append(all, s[0])
		}
		s = s[1:]
	}
	return all
}

// Subtract returns the positions that are not in the other set.
func (s Spans) Subtract(o Spans) Spans {
	var rest Spans
	for _, span := range s {
		for _, gone := range o[o.search(span.After):] {
			if gone.After >= span.Through {
				break
			}
			if gone.After > span.After {
				rest = append(rest, Span{span.After, gone.After})
			}
			span.After = gone.Through
		}
		if span.After < span.Through {
			rest = append(rest, span)
		}
	}
	return rest
}

// AtOrBehind returns the first position of the set that is not in front of p, and
// whether there is one.
func (s Spans) AtOrBehind(p Position) (Position, bool) {
	i := s.search(p)
	if i == len(s) {
		return 0, false
	}
	return max(p, s[i].After+1), true
}

// AtOrBefore returns the last position of the set that is not behind p, and whether
// there is one.
func (s Spans) AtOrBefore(p Position) (Position, bool) {
	i := s.search(p)
	if i < len(s) && s[i].After < p {
		return p, true
	}
	if i == 0 {
		return 0, false
	}
	return s[i-1].Through, true
}

// AppendSpans appends the stored form of s to dst: how many spans there are, and for
// each the distance from the end of the one before, and its length, all as uvarints.
func AppendSpans(dst []byte, s Spans) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	last := Position(0)
	for _, span := range s {
		dst = binary.AppendUvarint(dst, uint64(span.After-last))
		dst = binary.AppendUvarint(dst, uint64(span.Through-span.After))
		last = span.Through
	}
	return dst
}

// ParseSpans reads what [AppendSpans] has written, keeps nothing of b, and returns
// what follows. The error wraps [ErrDamaged]. It makes room for no more than b has.
func ParseSpans(b []byte) (s Spans, rest []byte, err error) {
	damaged := func(what string) (Spans, []byte, error) {
		return nil, nil, fmt.Errorf("parse spans: %s: %w", what, ErrDamaged)
	}
	number := func() (v uint64, ok bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	n, ok := number()
	if !ok || n > uint64(len(b))/2 { // each takes two bytes or more
		return damaged("number")
	}
	if n > 0 {
		s = make(Spans, n)
	}
	last := Position(0)
	for i := range s {
		distance, ok := number()
		length, ok2 := number()
		after := last + Position(distance)
		through := after + Position(length)
		switch {
		case !ok || !ok2:
			return damaged("cut")
		case after < last, through <= after, i > 0 && distance == 0:
			return damaged("span")
		}
		s[i], last = Span{after, through}, through
	}
	return s, b, nil
}
