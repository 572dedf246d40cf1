package badger

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A history keeps the messages of one filter that the operator has named, whoever
// has read them. Like a stream it is a session of its own without a client, with
// blocks like any other; but nobody's acknowledgement lets go of what it has. All
// its entries are references: the body is shared with the inboxes and streams that
// have the message too, so that what is deleted in one place is gone in all.
//
// It keeps messages of QoS 1 and 2, those of QoS 0 only in a store that does so
// in inboxes ([Options.KeepQoS0]), and none whose topic begins with $.
type history struct {
	inbox.Kept
	member      inbox.Member // of its own session
	incarnation incarnation
}

// histories are those that the operator has named. They do not change once the
// store is open, so that everybody may read them; the index is the committer's.
type histories struct {
	all   []*history
	index *inbox.Index // by the place among them, from 1
}

// historyReceiver is the receiver of a history's own session. No client, no
// group and no stream can have its name, for a filter has no NUL.
func historyReceiver(filter string) inbox.Receiver { return inbox.Receiver("\x00\x00" + filter) }

// historyFilter returns the filter of a history's own session, and whether it is one.
func historyFilter(r inbox.Receiver) (string, bool) { return strings.CutPrefix(string(r), "\x00\x00") }

// newHistories returns those of some filters, without sessions yet.
func newHistories(kept []inbox.Kept) (histories, error) {
	all := histories{index: inbox.NewIndex()}
	for _, k := range kept {
		_, _, shared := inbox.Shared(k.Filter)
		switch {
		case !inbox.ValidFilter(k.Filter) || shared || strings.HasPrefix(k.Filter, "$"):
			return all, fmt.Errorf("history: %q is not a filter of topics that are kept", k.Filter)
		case k.Keep < 0 || k.Bytes < 0:
			return all, fmt.Errorf("history: %q: a limit below 0", k.Filter)
		case all.of(k.Filter) != nil:
			return all, fmt.Errorf("history: %q is named twice", k.Filter)
		}
		all.all = append(all.all, &history{Kept: k})
		all.index.Subscribe(inbox.Member(len(all.all)), inbox.Subscription{Filter: k.Filter})
	}
	return all, nil
}

// of returns the history of a filter, nil if there is none.
func (h *histories) of(filter string) *history {
	if i := slices.IndexFunc(h.all, func(h *history) bool { return h.Filter == filter }); i >= 0 {
		return h.all[i]
	}
	return nil
}

// has reports whether an incarnation is that of a history.
func (h *histories) has(inc incarnation) bool {
	return slices.ContainsFunc(h.all, func(h *history) bool { return h.incarnation == inc })
}

// found notes the session of a history, and reports whether its filter is named.
func (h *histories) found(filter string, m inbox.Member, inc incarnation) bool {
	one := h.of(filter)
	if one != nil {
		one.member, one.incarnation = m, inc
	}
	return one != nil
}

// settleHistories makes the sessions of the histories that are new, and ends those
// of filters that are not named any more.
func (g *commitGroup) settleHistories(forgotten []inbox.Member) {
	s := g.s
	for _, m := range forgotten {
		filter, _ := historyFilter(s.sessions.at(m).receiver())
		s.log.Warn("history is deleted: its filter is not named any more", "filter", filter)
		g.end(m)
	}
	for _, h := range s.histories.all {
		if h.member != 0 {
			g.makeIndex(h.member, kindsOfHistory)
			continue
		}
		h.incarnation = g.nextIncarnation()
		h.member = s.sessions.add(session{
			receiver: historyReceiver(h.Filter), incarnation: h.incarnation,
			stored: true, expiry: inbox.ExpiryNever, ended: g.now.UnixMilli(),
		})
		g.putSession(s.sessions.at(h.member))
		g.makeIndex(h.member, kindsOfHistory)
	}
}

// kindsOfHistory are the lists that a history has.
var kindsOfHistory = kindsOf(listAll, listTopic, listSender)

// archive adds to those who keep the message at hand the histories of its topic, and
// reports whether there are any.
func (g *commitGroup) archive(e *inbox.Envelope) bool {
	all := &g.s.histories
	if len(all.all) == 0 || e.QoS == 0 && !g.s.keepQoS0 || strings.HasPrefix(e.Topic, "$") {
		return false
	}
	g.archives = all.index.Match(e.Topic, 0, g.archives[:0])
	for i := range g.archives {
		h := all.all[g.archives[i].Member-1]
		if h.member != 0 { // else the store is being opened, and this comes before
			g.kept = append(g.kept, kept{member: h.member, grant: inbox.Grant{QoS: e.QoS, Retain: e.Retain}, history: h})
		}
	}
	if len(g.kept) == 0 || g.kept[len(g.kept)-1].history == nil {
		return false
	}
	g.tellLookouts(e)
	return true
}

// keptInHistory returns until when the message at hand is kept by the histories that
// it is put into.
func (g *commitGroup) keptInHistory(e *inbox.Envelope) (until int64) {
	for i := range g.kept {
		if h := g.kept[i].history; h != nil {
			until = max(until, h.keepUntil(e))
		}
	}
	return until
}

// keepUntil returns until when the history has a message, in Unix milliseconds, if
// nothing else is in the way; never if that is for ever.
func (h *history) keepUntil(e *inbox.Envelope) int64 {
	until := ownExpiry(e)
	if h.Keep > 0 {
		until = min(until, e.Time+h.Keep)
	}
	return until
}

// ownExpiry is when the message itself expires, in Unix milliseconds; never if it
// does not.
func ownExpiry(e *inbox.Envelope) int64 {
	if e.Expiry > 0 {
		return e.Expiry
	}
	return never
}
