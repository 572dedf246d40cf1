package badger

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// source is a part of a stream that a connected receiver reads. But for next it
// does not change.
type source struct {
	stream *stream
	segment
	next inbox.Position // everything before this was read, or is not there; owned by the goroutine that calls Next
}

// reads reports whether the receiver gets the stream's entry at p.
func (s *source) reads(p inbox.Position) bool { return p > s.since && p <= s.until }

// grant adds to g what the subscription grants of a message of the stream, and
// reports whether it grants anything.
func (s *source) grant(g *inbox.Grant, e *inbox.Envelope, r inbox.Receiver) bool {
	if s.sub.NoLocal && e.Client == string(r) { // [MQTT-3.8.3-3]
		return false
	}
	g.QoS = max(g.QoS, min(e.QoS, s.sub.QoS))
	g.Retain = g.Retain || e.Retain && s.sub.RetainAsPublished
	if id := s.sub.Identifier; id != 0 {
		g.Identifiers = withIdentifier(g.Identifiers, id)
	}
	return true
}

// withIdentifier returns the ascending ids with one more, in a slice of its own.
func withIdentifier(ids []uint32, id uint32) []uint32 {
	i, _ := slices.BinarySearch(ids, id)
	return slices.Insert(slices.Clip(ids), i, id)
}

// together is what two grants of one message come to.
func together(a, b inbox.Grant) inbox.Grant {
	a.QoS = max(a.QoS, b.QoS)
	a.Retain = a.Retain || b.Retain
	for _, id := range b.Identifiers {
		a.Identifiers = withIdentifier(a.Identifiers, id)
	}
	return a
}
