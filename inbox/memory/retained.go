package memory

import (
	"context"
	"iter"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// retainLocked makes e the retained message of its topic, or removes the one
// there is [MQTT-3.3.1-5] [MQTT-3.3.1-6].
func (s *Store) retainLocked(e *inbox.Envelope) {
	if len(e.Payload) == 0 {
		delete(s.retained, e.Topic)
		return
	}
	s.retained[e.Topic] = e
}

// sendRetainedLocked puts what is retained for a subscription into the inbox.
func (s *Store) sendRetainedLocked(to *session, sub inbox.Subscription, existed bool) {
	if _, _, member := inbox.Shared(sub.Filter); member {
		return
	}
	if sub.RetainHandling == 2 || sub.RetainHandling == 1 && existed { // [MQTT-3.3.1-10] [MQTT-3.3.1-11]
		return
	}
	var identifiers []uint32
	if sub.Identifier != 0 {
		identifiers = []uint32{sub.Identifier}
	}
	for topic, e := range s.retained {
		switch {
		case !matches(sub.Filter, topic), e.Expired(time.Now()):
			continue
		case sub.NoLocal && e.Client == string(to.receiver): // [MQTT-3.8.3-3]
			continue
		}
		grant := inbox.Grant{QoS: min(e.QoS, sub.QoS), Retain: true, Identifiers: identifiers} // [MQTT-3.3.1-8]
		to.takeLocked(inbox.Entry{Position: s.nextLocked(), Envelope: e, Grant: grant}, s)
	}
}

// Retained implements [inbox.Store]. It yields what one moment had.
func (s *Store) Retained(ctx context.Context, filter string) iter.Seq2[*inbox.Envelope, error] {
	return func(yield func(*inbox.Envelope, error) bool) {
		all, err := s.retainedNow(ctx, filter)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *Store) retainedNow(ctx context.Context, filter string) (all []*inbox.Envelope, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, inbox.ErrClosed
	}
	for topic, e := range s.retained {
		if matches(filter, topic) {
			all = append(all, e)
		}
	}
	return all, nil
}
