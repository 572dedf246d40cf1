package pull

import (
	"cmp"
	"context"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func (s *Service) pull(ctx context.Context, a Asker, r PullRequest, enc encoding) (MessagesAnswer, error) {
	q, err := newPageQuery(a, HistoryRequest{
		Limit:    r.Limit,
		MaxBytes: r.MaxBytes,
		Order:    cmp.Or(r.Order, OldestFirst),
		Sender:   r.Sender,
		Topic:    r.Topic,
		After:    r.After,
		Before:   r.Before,
	}, cursor{kind: ofPull, inbox: s.inboxOf(a)})
	if err != nil {
		return MessagesAnswer{}, err
	}
	if !q.came { // an own place to start from; a walk goes on as it began
		q.cursor.read = r.After != "" && !isCursor(r.After)
	}
	q.Read = s.rewind && q.cursor.read

	// The page before is acknowledged first, so that a failure gives both again.
	if q.came && (r.Ack == nil || *r.Ack) {
		if after, through := q.cursor.page(); through != 0 {
			_, err := s.acknowledge(ctx, a, inbox.Acknowledgement{Selection: q.Selection, After: after, Through: through})
			if err != nil {
				return MessagesAnswer{}, err
			}
		}
	}
	read := func(ctx context.Context, q inbox.Query) (inbox.Page, error) { return s.store.Pull(ctx, a.Receiver, q) }
	return q.collect(ctx, a, enc, read, nil)
}
