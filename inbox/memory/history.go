package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// archive is what is kept of one filter, in the order of storing.
type archive struct {
	inbox.Kept
	messages []*inbox.Envelope
	trimmed  int // so many there were when they were trimmed
}

// keepLocked puts a message into history. What is not worth a receipt to its
// publisher is not kept: QoS 0.
func (s *Store) keepLocked(e *inbox.Envelope) {
	if e.QoS == 0 {
		return
	}
	for _, a := range s.archives {
		if matches(a.Filter, e.Topic) {
			if a.messages = append(a.messages, e); len(a.messages) > 2*a.trimmed+1000 {
				a.trimLocked() // who reads does it too
			}
		}
	}
}

// trimLocked forgets what is too old, or too much.
func (a *archive) trimLocked() {
	now := time.Now()
	a.messages = slices.DeleteFunc(a.messages, func(e *inbox.Envelope) bool {
		return e.Expired(now) || a.Keep > 0 && e.Time+a.Keep <= now.UnixMilli()
	})
	if a.Bytes > 0 {
		first, bytes := len(a.messages), int64(0)
		for first > 0 && bytes+int64(a.messages[first-1].Size()) <= a.Bytes {
			first--
			bytes += int64(a.messages[first].Size())
		}
		a.messages = slices.Delete(a.messages, 0, first)
	}
	a.trimmed = len(a.messages)
}

// historyLocked is everything that is kept, each message once, in order.
func (s *Store) historyLocked() []inbox.Entry {
	all := map[inbox.Position]*inbox.Envelope{}
	for _, a := range s.archives {
		a.trimLocked()
		for _, e := range a.messages {
			all[e.ID.Sequence] = e
		}
	}
	entries := make([]inbox.Entry, 0, len(all))
	for p, e := range all {
		entries = append(entries, inbox.Entry{Position: p, Envelope: e})
	}
	slices.SortFunc(entries, func(a, b inbox.Entry) int { return cmp.Compare(a.Position, b.Position) })
	return entries
}

// History implements [inbox.Archive].
func (s *Store) History(ctx context.Context, q inbox.Query) (page inbox.Page, err error) {
	err = s.do(ctx, func() error {
		page, err = s.pageLocked(s.historyLocked(), q)
		page.Remaining = inbox.Count{}
		return err
	})
	return page, err
}

// Delete implements [inbox.Archive].
func (s *Store) Delete(ctx context.Context, id inbox.MessageID, by string) error {
	return s.do(ctx, func() error {
		for _, e := range s.historyLocked() {
			if e.Envelope.ID != id {
				continue
			}
			if by != "" && by != e.Envelope.Sender() {
				return inbox.ErrNotSender
			}
			s.deleteLocked(map[inbox.MessageID]bool{id: true}, false)
			return nil
		}
		return inbox.ErrUnknownID
	})
}

// Erase implements [inbox.Archive].
func (s *Store) Erase(ctx context.Context, sender string) (n int, err error) {
	err = s.do(ctx, func() error {
		ids := map[inbox.MessageID]bool{}
		for _, e := range s.historyLocked() {
			if e.Envelope.Sender() != sender {
				continue
			}
			ids[e.Envelope.ID] = true
			if !e.Envelope.Deleted {
				n++
			}
		}
		s.overLocked(sender, ids)
		s.deleteLocked(ids, true)
		return nil
	})
	return n, err
}

// overLocked adds to some ids those of a sender's messages that are in inboxes still though
// their time is over, so that no history has them any more.
func (s *Store) overLocked(sender string, ids map[inbox.MessageID]bool) {
	now := time.Now()
	for _, held := range s.sessions {
		for _, e := range held.entries {
			if e.Envelope.Sender() == sender && e.Envelope.Expired(now) && s.isKeptLocked(e.Envelope.Topic) {
				ids[e.Envelope.ID] = true
			}
		}
	}
}

// isKeptLocked reports whether there is a history of a topic.
func (s *Store) isKeptLocked(topic string) bool {
	return slices.ContainsFunc(s.archives, func(a *archive) bool { return matches(a.Filter, topic) })
}

// deleteLocked leaves marks of some messages in history, without names if asked, and
// takes them out of the inboxes.
func (s *Store) deleteLocked(ids map[inbox.MessageID]bool, nameless bool) {
	for _, a := range s.archives {
		for i, e := range a.messages {
			if !ids[e.ID] {
				continue
			}
			mark := &inbox.Envelope{ID: e.ID, Time: e.Time, Topic: e.Topic, QoS: e.QoS, Expiry: e.Expiry, Deleted: true}
			if !nameless {
				mark.Client, mark.User = e.Client, e.User
			}
			a.messages[i] = mark
		}
	}
	for _, held := range s.sessions {
		gone := func(e inbox.Entry) bool { return ids[e.Envelope.ID] }
		held.withdrawLocked(gone)
		held.read = slices.DeleteFunc(held.read, gone)
	}
}

// sendLastLocked puts the last messages in history that match a subscription into
// the inbox, without those that are there.
func (s *Store) sendLastLocked(to *session, sub inbox.Subscription) {
	if _, _, member := inbox.Shared(sub.Filter); member || sub.Last <= 0 {
		return
	}
	last := slices.DeleteFunc(s.historyLocked(), func(e inbox.Entry) bool {
		own := sub.NoLocal && e.Envelope.Client == string(to.receiver) // [MQTT-3.8.3-3]
		return own || e.Envelope.Deleted || !matches(sub.Filter, e.Envelope.Topic)
	})
	last = last[max(len(last)-sub.Last, 0):]
	unread := make(map[inbox.MessageID]bool, len(to.entries))
	for _, e := range to.entries {
		unread[e.Envelope.ID] = true
	}
	for _, e := range last {
		if unread[e.Envelope.ID] {
			continue
		}
		e.Position = s.nextLocked()
		e.Grant = inbox.Grant{QoS: min(e.Envelope.QoS, sub.QoS), Retain: sub.RetainAsPublished && e.Envelope.Retain}
		if sub.Identifier != 0 {
			e.Identifiers = []uint32{sub.Identifier}
		}
		to.takeLocked(e, s)
	}
}
