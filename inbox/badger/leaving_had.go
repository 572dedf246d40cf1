package badger

import (
	"context"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What a receiver has acknowledged of what was not sent, it has had: with the
// subscription it does not give that up, and a receiver that starts again has it
// again. It is only then that this makes a difference, so it is found out only in stores
// that keep it.

// had is, for some filters, stretches in which all that they match was had.
type had map[string]inbox.Spans

// mostHad bounds how many stretches there are for a filter, and mostHadInAll for all. What is
// behind them is given up, had or not.
const (
	mostHad      = 1000
	mostHadInAll = mostLeavings * mostHad
)

// hadBy finds what was had by filters that are about to be given up, and by those that
// were before: by which of them a message came is not known any more after a start. It
// reads everything that was not sent.
func (h *handle) hadBy(ctx context.Context, filters []string) (had, error) {
	h.mu.Lock()
	from, upTo := h.readingLocked().apart(), h.last
	h.mu.Unlock()
	left, region := from.leavings, h.notSent(upTo)
	from.leavings = nil
	filters = slices.Clone(filters)
	for _, l := range left {
		filters, region = append(filters, l.filter), region.Union(l.of)
	}
	all, last, inAll := had{}, map[string]inbox.Position{}, 0
	return all, h.s.view(func(txn *badger.Txn) error {
		a := h.s.ackedIn(txn, h.incarnation)
		if a == nil {
			return nil
		}
		defer a.close()
		m := h.s.merge(txn, from, part{upTo: upTo, within: &region})
		defer m.close()
		for n := 1; ; n++ {
			e, ok := m.next()
			if !ok {
				return nil
			}
			wasHad := a.covers(&e.Entry) && !drops(left, e.Position, e.Envelope.Topic)
			for _, filter := range filters {
				if !inbox.MatchTopic(filter, e.Envelope.Topic) || last[filter] == e.Position {
					continue
				}
				if was := len(all[filter]); wasHad && was < mostHad && inAll < mostHadInAll {
					all[filter] = all[filter].Append(inbox.Span{After: last[filter], Through: e.Position})
					inAll += len(all[filter]) - was
				}
				last[filter] = e.Position
			}
			if n%lookEvery > 0 {
				continue
			}
			if err := h.s.goesOn(ctx); err != nil {
				return err
			}
		}
	})
}

// keepHad takes what was had out of what the session has given up before.
func (g *commitGroup) keepHad(h *handle, had had) {
	all := g.s.leavings[h.member]
	if len(had) == 0 || len(all) == 0 {
		return
	}
	var rest []leaving
	for _, l := range all {
		if l.of = l.of.Subtract(had[l.filter]); len(l.of) > 0 {
			rest = append(rest, l)
		}
	}
	if g.s.leavings[h.member] = rest; len(rest) == 0 {
		delete(g.s.leavings, h.member)
	}
	h.setLeavings(rest)
	for _, l := range all {
		if len(had[l.filter]) > 0 {
			g.putSubscription(h.member, l.filter)
		}
	}
}
