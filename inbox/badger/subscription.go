package badger

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// subscriptionVersion is the version of the subscription record, which stands
// under the session's incarnation and the filter:
//
//	[version, filter, qos, no local, retain as published, retain handling, identifier,
//	 subscribed, member, since, until, past, left]
//
// What is behind the identifier says how the session reads the stream of the
// filter, if there is one; past is a string of uvarints, four for each segment:
//
//	since  until - since  QoS | no local << 2 | retain as published << 3  identifier
//
// left is a string of what was given up, one after the other, see [inbox.AppendSpans]:
//
//	spans  number of others:uvarint  (length:uvarint filter) for each of the others
//
// Earlier records end with past, or have one left that ends with its spans: by which other
// subscriptions what is there may have come is not known, and it is delivered.
const subscriptionVersion = 1

// subscriptionRecord is what a session has of one filter.
type subscriptionRecord struct {
	inbox.Subscription

	subscribed bool           // otherwise it has left, and has not finished
	member     bool           // of the stream, rather than in the index
	since      inbox.Position // where the membership begins
	left       []leaving      // the earliest first
	past       []segment
}

// subscription returns what m's session has of a filter, and whether that is
// anything.
func (s *Store) subscription(m inbox.Member, filter string) (r subscriptionRecord, ok bool) {
	r.Filter, r.left = filter, s.left(m, filter)
	var sub inbox.Subscription
	if sub, r.subscribed = s.index.Subscription(m, filter); r.subscribed {
		r.Subscription = sub
	}
	if st := s.streams.byFilter[filter]; st != nil {
		if sub, r.member = s.streams.members.Subscription(m, filter); r.member {
			r.Subscription, r.subscribed, r.since = sub, true, st.joined(m)
		}
		if p := st.past[m]; p != nil {
			r.past = p.segments
		}
	}
	return r, r.subscribed || len(r.left) > 0 || len(r.past) > 0
}

// putSubscription writes what m's session has of a filter, or deletes it if that
// is nothing.
func (g *commitGroup) putSubscription(m inbox.Member, filter string) {
	r, ok := g.s.subscription(m, filter)
	if r.member {
		r.since = g.joined(m, g.s.streams.byFilter[filter])
	}
	g.putSubscriptionRecord(m, r, ok)
}

func (g *commitGroup) putSubscriptionRecord(m inbox.Member, r subscriptionRecord, ok bool) {
	sess := g.s.sessions.at(m)
	if !sess.stored() {
		return
	}
	key := subscriptionKey(sess.incarnation, r.Filter)
	if !ok {
		g.delete(key)
		return
	}
	value, err := appendSubscription(nil, r)
	if err != nil {
		g.s.fail(fmt.Errorf("encode subscription: %w", err))
		return
	}
	g.put(key, value)
}

func appendSubscription(dst []byte, r subscriptionRecord) ([]byte, error) {
	return appendRecord(dst, subscriptionVersion, r.Filter, uint64(r.QoS), r.NoLocal, r.RetainAsPublished,
		uint64(r.RetainHandling), uint64(r.Identifier), r.subscribed, r.member, uint64(r.since),
		uint64(leftUntil(r.left)), appendPast(nil, r.past), appendLeft(nil, r.left))
}

// parseSubscription reads what appendSubscription has written. The filter points
// into b.
func parseSubscription(b []byte) (r subscriptionRecord, err error) {
	d := openRecord("subscription", b, subscriptionVersion, 12, 13)
	r = subscriptionRecord{
		Subscription: inbox.Subscription{
			Filter:            d.Text("filter"),
			QoS:               byte(d.Uint("QoS", math.MaxUint8)),
			NoLocal:           d.Bool("no local"),
			RetainAsPublished: d.Bool("retain as published"),
			RetainHandling:    byte(d.Uint("retain handling", math.MaxUint8)),
			Identifier:        uint32(d.Uint("identifier", math.MaxUint32)),
		},
		subscribed: d.Bool("subscribed"),
		member:     d.Bool("member"),
		since:      inbox.Position(d.number("since")),
	}
	until := inbox.Position(d.number("until"))
	past := d.Bytes("past")
	var left []byte
	if d.fields > 12 {
		left = d.Bytes("left")
	}
	if err := d.err(); err != nil {
		return r, err
	}
	filter := strings.Clone(r.Filter)
	switch {
	case len(left) > 0:
		if r.left, err = parseLeft(left, filter); err != nil {
			return r, err
		}
	case until > 0:
		r.left = []leaving{{filter: filter, of: inbox.Spans{{Through: until}}, others: []string{filter}}}
	}
	if len(past) == 0 {
		return r, nil
	}
	r.past, err = parsePast(past, filter)
	return r, err
}

// readSubscription reads what a session has of a filter.
func readSubscription(txn *badger.Txn, inc incarnation, filter string) (r subscriptionRecord, err error) {
	item, err := txn.Get(subscriptionKey(inc, filter))
	if err != nil {
		return r, err
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		return r, err
	}
	return parseSubscription(value)
}

func appendLeft(dst []byte, all []leaving) []byte {
	for _, l := range all {
		dst = binary.AppendUvarint(inbox.AppendSpans(dst, l.of), uint64(len(l.others)))
		for _, f := range l.others {
			dst = append(binary.AppendUvarint(dst, uint64(len(f))), f...)
		}
	}
	return dst
}

// parseLeft reads what appendLeft has written of a filter. It keeps nothing of b.
func parseLeft(b []byte, filter string) (all []leaving, err error) {
	damaged := func(what string) error {
		return fmt.Errorf("read subscription record: left: %s: %w", what, inbox.ErrDamaged)
	}
	for earlier := true; len(b) > 0; earlier = false {
		l := leaving{filter: filter}
		if l.of, b, err = inbox.ParseSpans(b); err != nil {
			return nil, fmt.Errorf("read subscription record: left: %w", err)
		}
		if len(l.of) == 0 {
			return nil, damaged("no spans")
		}
		if earlier && len(b) == 0 {
			l.others = []string{filter} // and so nothing is given up
			return append(all, l), nil
		}
		others, n := binary.Uvarint(b)
		if n <= 0 || others > uint64(len(b)) {
			return nil, damaged("number of others")
		}
		b = b[n:]
		for range others {
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return nil, damaged("another filter")
			}
			l.others, b = append(l.others, string(b[n:n+int(size)])), b[n+int(size):]
		}
		all = append(all, l)
	}
	return all, nil
}

func appendPast(dst []byte, past []segment) []byte {
	for _, s := range past {
		options := uint64(s.sub.QoS)
		if s.sub.NoLocal {
			options |= 1 << 2
		}
		if s.sub.RetainAsPublished {
			options |= 1 << 3
		}
		for _, v := range [...]uint64{uint64(s.since), uint64(s.until - s.since), options, uint64(s.sub.Identifier)} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return dst
}

func parsePast(b []byte, filter string) (past []segment, err error) {
	for len(b) > 0 {
		var v [4]uint64
		for i := range v {
			n := 0
			if v[i], n = binary.Uvarint(b); n <= 0 {
				return nil, fmt.Errorf("read subscription record: past: %w", inbox.ErrDamaged)
			}
			b = b[n:]
		}
		past = append(past, segment{
			since: inbox.Position(v[0]), until: inbox.Position(v[0] + v[1]),
			sub: inbox.Subscription{
				Filter: filter, QoS: byte(v[2] & 3), NoLocal: v[2]&(1<<2) != 0, RetainAsPublished: v[2]&(1<<3) != 0,
				Identifier: uint32(v[3]),
			},
		})
	}
	return past, nil
}

// loadSubscription notes what a session has of one filter.
func (s *Store) loadSubscription(m inbox.Member, r subscriptionRecord) error {
	st := s.streams.byFilter[r.Filter]
	if st == nil && (r.member || len(r.past) > 0) {
		return fmt.Errorf("subscription to %q reads a stream that is not there: %w", r.Filter, inbox.ErrDamaged)
	}
	switch {
	case r.member:
		s.streams.members.Subscribe(m, r.Subscription)
	case r.subscribed:
		s.index.Subscribe(m, r.Subscription)
	}
	if len(r.left) > 0 {
		s.leavings[m] = append(s.leavings[m], r.left...)
	}
	if !r.member && len(r.past) == 0 {
		return nil
	}
	from := r.since
	if len(r.past) > 0 {
		from = 0 // how far it has come says its delivery state
		p := s.streams.pastOf(m, st)
		p.segments, p.since = r.past, r.since
	}
	st.readers.add(m, from)
	return nil
}

// loadedStreams makes usable what was read of streams, and of what was given up.
func (s *Store) loadedStreams() {
	for _, st := range s.streams.byFilter {
		if s.streams.members.Members(st.filter) > 0 {
			s.serve(st)
		}
	}
	for _, all := range s.leavings {
		slices.SortStableFunc(all, func(a, b leaving) int { return cmp.Compare(a.until(), b.until()) })
	}
}
