package badger

import (
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// verifiedStream is a stream and who reads it.
type verifiedStream struct {
	filter  string
	owner   *owner // its own session
	readers []verifiedReader
	least   inbox.Position // everybody has finished up to here; endless without readers
}

// verifiedReader is what the record of a subscription says of a stream.
type verifiedReader struct {
	key      []byte // of the record
	owner    *owner
	segments []segment      // the last is endless for a member
	left     inbox.Position // given up to here
}

// reader notes that a session reads a stream.
func (v *verifier) reader(key []byte, o *owner, sub subscriptionRecord) {
	st := v.streams[sub.Filter]
	if st == nil {
		if !v.unreadable[prefixSession] {
			v.fault(FaultLost, key, "%s reads stream %q, which is not there", o, sub.Filter)
		}
		return
	}
	r := verifiedReader{key: slices.Clone(key), owner: o, segments: sub.past, left: leftUntil(sub.left)}
	if sub.member {
		r.segments = append(r.segments, segment{since: sub.since, until: endless, sub: sub.Subscription})
	}
	st.readers = append(st.readers, r)
}

// placeReaders finds up to where everybody has finished, in each stream. The
// states have been read.
func (v *verifier) placeReaders() {
	for i := range v.owners {
		if st := v.owners[i].stream; st != nil {
			st.owner = &v.owners[i]
		}
	}
	for _, st := range v.streams {
		for i := range st.readers {
			st.least = min(st.least, st.readers[i].position())
		}
	}
}

// position is what a reader has finished, or was there before it joined.
func (r *verifiedReader) position() inbox.Position {
	if len(r.segments) == 1 && r.segments[0].until == endless {
		return max(r.owner.finished, r.segments[0].since)
	}
	return r.owner.finished
}

// needs reports whether somebody is still to read the entry at p.
func (st *verifiedStream) needs(p inbox.Position) bool {
	if p <= st.least {
		return false
	}
	return slices.ContainsFunc(st.readers, func(r verifiedReader) bool {
		return p > r.owner.finished && slices.ContainsFunc(r.segments, func(s segment) bool { return p > s.since && p <= s.until })
	})
}

// compareStreams compares what is deleted of each stream with what its readers
// have finished. One without readers ends at the next start.
func (v *verifier) compareStreams() {
	for _, st := range v.streams {
		if st.owner.unreadable {
			continue
		}
		for i := range st.readers {
			v.compareReader(st, &st.readers[i])
		}
	}
}

// compareReader reports what was deleted before the reader had it. A reader passes
// over what is not for it, and that is not in its state: its own messages if it has
// No Local, what it has given up, and what was past the retention. What it has
// acknowledged by itself is not there either, until the state goes on; nor is a deleted
// message at the end.
func (v *verifier) compareReader(st *verifiedStream, r *verifiedReader) {
	swept := st.owner.swept
	if r.owner.unreadable || v.unreadable[prefixAcked] || v.mayBeOver(swept) {
		return
	}
	if _, deleted := slices.BinarySearch(v.deleted, swept); deleted {
		return
	}
	for _, s := range r.segments {
		since := max(s.since, r.owner.finished)
		if since < s.until && max(since, r.owner.acked) < swept && !s.sub.NoLocal && min(s.until, swept) > r.left {
			v.fault(FaultLost, r.key, "%s is swept up to %d, and %s has finished only what is up to %d", st.owner, swept, r.owner, since)
			return
		}
	}
}

// mayBeOver reports whether the retention of what was stored at p may be over.
func (v *verifier) mayBeOver(p inbox.Position) bool {
	return v.retention >= 0 && v.clock.notBefore(p)+v.retention.Milliseconds() <= v.now.UnixMilli()
}
