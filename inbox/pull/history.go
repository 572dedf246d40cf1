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
	q, err := newPageQuery(a, r, cursor{kind: ofHistory}) // of no inbox: any device may go on
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

func (s *Service) delete(ctx context.Context, a Asker, r DeleteRequest, _ encoding) (DeleteAnswer, error) {
	switch {
	case (r.ID == "") == (r.Sender == ""):
		return DeleteAnswer{}, badRequest("say what to delete: id or sender")
	case r.Sender == "":
		return s.deleteOne(ctx, a, r.ID)
	case !a.Operator:
		return DeleteAnswer{}, &Error{CodeForbidden, "only an operator may delete everything of a sender"}
	}
	n, err := s.store.Erase(ctx, r.Sender)
	return DeleteAnswer{n}, err
}

func (s *Service) deleteOne(ctx context.Context, a Asker, text string) (DeleteAnswer, error) {
	id, err := parseID(text)
	if err != nil {
		return DeleteAnswer{}, err
	}
	by := ""
	if !a.Operator {
		if err := s.mustHaveSent(ctx, a, id); err != nil {
			return DeleteAnswer{}, err
		}
		by = a.Name()
	}
	if err := s.store.Delete(ctx, id, by); err != nil {
		return DeleteAnswer{}, err
	}
	return DeleteAnswer{1}, nil
}

// mustHaveSent asks for more than the store does, which knows senders by one name and
// cannot tell a user from a client without one.
func (s *Service) mustHaveSent(ctx context.Context, a Asker, id inbox.MessageID) error {
	page, err := s.store.History(ctx, inbox.Query{
		After:    inbox.Bound{Position: id.Sequence - 1},
		Before:   inbox.Bound{Position: id.Sequence + 1},
		Max:      1,
		MaxBytes: 1,
	})
	switch {
	case err != nil:
		return err
	case len(page.Entries) == 0 || page.Entries[0].Envelope.ID != id:
		return inbox.ErrUnknownID
	case !a.sent(page.Entries[0].Envelope):
		return inbox.ErrNotSender
	}
	return nil
}

// modes are the modes by their names.
var modes = map[string]inbox.Mode{ModePush: inbox.ModePush, ModePull: inbox.ModePull}

func (s *Service) mode(ctx context.Context, a Asker, r ModeRequest, _ encoding) (ModeAnswer, error) {
	m, ok := modes[r.Mode]
	if !ok {
		return ModeAnswer{}, badRequest(`mode must be "push" or "pull"`)
	}
	return ModeAnswer(r), s.store.SetMode(ctx, a.Receiver, m)
}
