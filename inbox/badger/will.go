package badger

import (
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// willVersion is the version of the will record, which stands under the
// session's incarnation:
//
//	[version, delay seconds, expiry interval ms, envelope]
const willVersion = 1

func willKey(inc incarnation) []byte { return numberKey(prefixWill, uint64(inc)) }

// setWill gives a session its will, in place of the one it had. It is stored
// for sessions in memory too: whoever crashes has left without a goodbye.
func (g *commitGroup) setWill(m inbox.Member, w *inbox.Will) {
	sess := g.s.sessions.at(m)
	had := sess.will() != nil
	sess.setWill(w)
	switch {
	case w != nil:
		value, err := appendRecord(nil, willVersion, uint64(w.Delay), w.Envelope.Expiry, inbox.AppendEnvelope(nil, w.Envelope))
		if err != nil {
			g.s.fail(fmt.Errorf("encode will: %w", err))
			return
		}
		g.putLast(willKey(sess.incarnation), value)
	case had:
		g.putLast(willKey(sess.incarnation), nil)
	}
}

func parseWill(b []byte) (*inbox.Will, error) {
	d := openRecord("will", b, willVersion, 4)
	delay, interval, record := uint32(d.Uint("delay", math.MaxUint32)), d.Int("expiry interval"), d.Bytes("envelope")
	if err := d.err(); err != nil {
		return nil, err
	}
	e, err := inbox.ParseEnvelope(record)
	if err != nil {
		return nil, err
	}
	e.Expiry = interval
	return &inbox.Will{Envelope: e, Delay: delay}, nil
}

// publishWill publishes the will of a session, if it has one, in the group that
// takes it away: once, whatever happens.
func (g *commitGroup) publishWill(m inbox.Member) {
	w := g.s.sessions.at(m).will()
	if w == nil {
		return
	}
	sess := g.s.sessions.at(m)
	sess.setWill(nil)
	g.publishOwn(w.Envelope, sess.incarnation)
}

// publishOwn stores the will of an incarnation as a message, and takes it away.
func (g *commitGroup) publishOwn(will *inbox.Envelope, inc incarnation) {
	e := *will
	e.Time = g.now.UnixMilli()
	if e.Expiry > 0 {
		e.Expiry += e.Time
	}
	record := inbox.AppendEnvelope(nil, &e)
	full := g.full
	g.full = false // the reserve is for wills too: they are few, and nobody could send them again
	defer func() { g.full = full }()
	receipt, err := g.append(&e, record)
	if err != nil {
		g.s.log.Error("will not published", "client", e.Client, "topic", e.Topic, "error", err)
	}
	g.putMark(receipt.ID.Sequence, willKey(inc), nil, 0)
}

// loadWills reads the wills, and returns those of sessions that were in memory
// and ended with the last process.
func (s *Store) loadWills(txn *badger.Txn) (orphans map[incarnation]*inbox.Will, err error) {
	orphans = map[incarnation]*inbox.Will{}
	return orphans, each(txn, []byte{prefixWill}, func(k, v []byte) error {
		w, err := parseWill(append([]byte(nil), v...))
		if err != nil {
			return err
		}
		inc := incarnation(keyNumber(k))
		if m := s.sessions.ofIncarnation(inc); m != 0 {
			s.sessions.at(m).setWill(w)
		} else {
			orphans[inc] = w
		}
		return nil
	})
}
