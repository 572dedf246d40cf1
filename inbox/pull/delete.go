package pull

import (
	"context"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

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
// cannot tell a user from a client without one. Who may not read a message is not told
// that there is one.
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
	}
	e := page.Entries[0].Envelope
	if a.sent(e) {
		return nil
	}
	if may := s.readable(a); may != nil && !may(e.Topic) {
		return inbox.ErrUnknownID
	}
	return inbox.ErrNotSender
}
