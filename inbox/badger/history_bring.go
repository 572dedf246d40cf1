package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// bringLast puts the last messages of one of the subscriptions into the inbox, behind
// everything that is stored, and returns them.
func (g *commitGroup) bringLast(l *lookout, i int, isNew bool) ([]inbox.Position, error) {
	last := l.all[i]
	if last == nil {
		return nil, nil
	}
	for _, m := range l.since[i].found {
		last.add(m)
	}
	h := l.h
	g.closeBlock(g.block(h.member))
	if keys := len(last.found) + 4; !g.fits(keys, keys*lastBytes) { // the entries, and the counts of what they refer to
		if err := g.separate(); err != nil {
			return nil, err
		}
	}
	var brought []inbox.Position
	retained := wantsRetained(last.sub, !isNew)
	for _, m := range last.found {
		if m.had || l.unread[m.id] {
			continue
		}
		ok, err := g.bring(h, last.sub, m, retained)
		if err != nil {
			return nil, err
		}
		if ok {
			brought = append(brought, m.id)
			l.unread[m.id] = true // for other subscriptions
		}
	}
	g.closeBlock(g.block(h.member))
	if len(brought) > 0 && h.stored && last.sub.QoS > 0 {
		g.announce(h, g.s.sequence)
	}
	return brought, nil
}

// lastBytes is more than what an entry that is brought takes, or the count of what
// it refers to.
const lastBytes = 64

// bring puts one message of history into an inbox, unless it is gone.
func (g *commitGroup) bring(h *handle, sub inbox.Subscription, m lastMessage, retained bool) (bool, error) {
	s := g.s
	if s.isDeleted(g.txn, m.id) {
		return false, nil
	}
	grant := inbox.Grant{QoS: min(m.qos, sub.QoS), Retain: m.retain && sub.RetainAsPublished}
	if sub.Identifier != 0 {
		grant.Identifiers = []uint32{sub.Identifier}
	}
	if m.retain && retained && g.isRetained(m) {
		grant.Retain = true // [MQTT-3.3.1-8]
	}
	if sub.QoS == 0 {
		if h.live != nil {
			g.handOver(h, inbox.Entry{Envelope: m.envelope, Grant: grant}, false)
		}
		return true, nil
	}
	if !h.stored && h.reserve(m.size()) {
		p := g.nextSequence()
		h.brought[p] = m.id
		g.handOver(h, inbox.Entry{Position: p, Envelope: m.envelope, Grant: grant}, true)
		return true, nil
	}
	ok, err := g.refer(m.id)
	if err != nil || !ok {
		return false, err
	}
	p := g.nextSequence()
	if !h.stored {
		g.spill(s.sessions.at(h.member))
		g.handOver(h, inbox.Entry{Position: p, Envelope: m.envelope, Grant: grant}, false)
	}
	b := g.block(h.member)
	b.until = never
	if s.retention > 0 {
		b.until = g.now.Add(s.retention).UnixMilli()
	}
	b.add(p, m.id, grant, nil)
	if b.index != nil {
		b.index.recent.forget() // it is a copy
	}
	return true, nil
}

// isRetained reports whether a message is the retained one of its topic.
func (g *commitGroup) isRetained(m lastMessage) bool {
	e, _, err := g.s.getRetained(g.txn, retainedKey(m.retained))
	return err == nil && e.ID.Sequence == m.id
}

// refer counts one reference more to the body of a message, and reports whether it is
// there. The sweeper is told, which may be about to count down.
func (g *commitGroup) refer(id inbox.Position) (bool, error) {
	body, count := numberKey(prefixBody, uint64(id)), numberKey(prefixCount, uint64(id))
	if i := slices.IndexFunc(g.bodies, func(b bodyWrite) bool { return b.position == id }); i >= 0 { // it is being stored
		e := g.bodies[i].entry
		n, record, err := parseBody(e.Value)
		if err != nil {
			return false, err
		}
		e.Value = append(binary.AppendUvarint(make([]byte, 0, len(e.Value)+1), n+1), record...)
		return true, nil
	}
	n, _, err := references(g.txn, body, count)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("count references to message %d: %w", id, err)
	}
	g.write(&badger.Entry{Key: count, Value: binary.AppendUvarint(nil, n.references+1), ExpiresAt: n.expiresAt})
	g.size += lastBytes
	if g.s.recounts != nil {
		g.s.recounts[uint64(id)] = struct{}{}
	}
	return true, nil
}

// announce has a connected receiver find after the commit that there is something on
// disk up to p.
func (g *commitGroup) announce(h *handle, p inbox.Position) {
	h.handed = max(h.handed, p)
	news := inbox.Entry{Position: p}
	if h.attached {
		g.fan = append(g.fan, fanItem{kind: fanBehind, to: h, entry: news})
		return
	}
	g.handover = append(g.handover, handover{to: h, entry: news})
}
