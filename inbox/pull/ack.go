package pull

import (
	"context"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func (s *Service) ack(ctx context.Context, a Asker, r AckRequest, _ encoding) (AckAnswer, error) {
	ack, some, err := r.check(s.inboxOf(a))
	if err != nil || !some {
		return AckAnswer{}, err
	}
	n, err := s.acknowledge(ctx, a, ack)
	return AckAnswer{n}, err
}

func (s *Service) acknowledge(ctx context.Context, a Asker, ack inbox.Acknowledgement) (int, error) {
	n, err := s.store.Acknowledge(ctx, a.Receiver, ack)
	if n > 0 && a.Acknowledged != nil {
		a.Acknowledged()
	}
	return n, err
}

// check returns what a request acknowledges, and whether that is anything: to
// a store, nothing in particular would be everything. own is what cursors of the asker have
// for its inbox.
func (r *AckRequest) check(own [8]byte) (ack inbox.Acknowledgement, some bool, err error) {
	selects := r.Sender != "" || r.Topic != ""
	switch {
	case r.IDs != nil:
		if selects || r.Through != "" || r.All {
			return ack, false, badRequest("ids go with no other field")
		}
		ack.IDs, err = parseIDs(r.IDs)
		return ack, len(ack.IDs) > 0, err
	case r.All && selects:
		return ack, false, badRequest("all goes with neither sender nor topic")
	case !r.All && !selects && r.Through == "":
		return ack, false, badRequest("say what to acknowledge: ids, through, sender, topic, or all")
	}

	if ack.Selection, err = newSelection(r.Sender, r.Topic); err != nil || r.Through == "" {
		return ack, err == nil, err
	}
	if !isCursor(r.Through) {
		if ack.ThroughID, err = inbox.ParseMessageID(r.Through); err != nil {
			err = badRequest("through: %.40q is neither a message id nor a cursor", r.Through)
		}
		return ack, err == nil, err
	}
	c, err := parseCursor(r.Through)
	if err != nil {
		return ack, false, err
	}
	fitting := cursor{kind: ofPull, newestFirst: c.newestFirst, inbox: own, selection: selectionHash(ack.Selection)}
	if err := fitting.accepts(c, "through", true); err != nil {
		return ack, false, err
	}
	if c.kind == ofPosition {
		ack.Through = c.at
	} else {
		ack.After, ack.Through = c.walked()
	}
	return ack, ack.Through != 0, nil
}

func parseIDs(texts []string) ([]inbox.MessageID, error) {
	if len(texts) > MaxLimit {
		return nil, &Error{CodeTooLarge, fmt.Sprintf("%d ids in one request at most", MaxLimit)}
	}
	ids := make([]inbox.MessageID, 0, len(texts))
	for _, s := range texts {
		id, err := parseID(s)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func parseID(s string) (inbox.MessageID, error) {
	id, err := inbox.ParseMessageID(s)
	if err != nil {
		err = &Error{CodeUnknownID, fmt.Sprintf("%.40q has not the form of a message id", s)}
	}
	return id, err
}
