package pull

import (
	"cmp"
	"context"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func (s *Service) history(ctx context.Context, a Asker, r HistoryRequest, enc encoding) (MessagesAnswer, error) {
	r.Limit = cmp.Or(r.Limit, DefaultHistoryLimit)
	r.Order = cmp.Or(r.Order, NewestFirst)
	q, err := newPageQuery(a, r, cursor{kind: ofHistory, inbox: inboxHash(s.store.ID(), "")}) // any device may go on
	if err != nil {
		return MessagesAnswer{}, err
	}
	may := s.readable(a)
	if may != nil && r.Topic != "" && !strings.ContainsAny(r.Topic, "+#") && !may(r.Topic) {
		if r.Sender != "" && r.Sender != a.Name() {
			return MessagesAnswer{}, &Error{CodeForbidden, "you may not read this topic"}
		}
		q.Sender = a.Name() // there is nothing else to show, so do not look at it
	}
	var keep func(*inbox.Envelope) bool
	if may != nil {
		keep = func(e *inbox.Envelope) bool { return a.sent(e) || may(e.Topic) }
	}
	return q.collect(ctx, a, enc, s.store.History, keep)
}

// readable returns what tells whether the asker may read a topic, for one request: it
// remembers. Nil means that it may read every one.
func (s *Service) readable(a Asker) func(topic string) bool {
	if s.rules == nil || a.Operator {
		return nil
	}
	verdicts := map[string]bool{}
	return func(topic string) bool {
		may, ok := verdicts[topic]
		if !ok {
			may = s.rules.MayRead(a, topic)
			verdicts[topic] = may
		}
		return may
	}
}
