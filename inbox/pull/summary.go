package pull

import (
	"cmp"
	"context"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func (s *Service) summary(ctx context.Context, a Asker, r SummaryRequest, _ encoding) (SummaryAnswer, error) {
	if err := a.check(); err != nil {
		return SummaryAnswer{}, err
	}
	q := inbox.SummaryQuery{Max: clamp(r.Limit, DefaultLimit, MaxLimit), Except: a.Name()}
	own := cursor{kind: ofSummary, inbox: s.inboxOf(a)}
	if r.Next != "" {
		c, err := parseCursor(r.Next)
		if err == nil {
			err = own.accepts(c, "next", true)
		}
		if err != nil {
			return SummaryAnswer{}, err
		}
		q.Next, q.UpTo = c.next, c.at
	}
	for {
		found, err := s.store.Summarize(ctx, a.Receiver, q)
		if err != nil {
			return SummaryAnswer{}, err
		}
		answer := summaryOf(&found, own)
		size, n := summarySize(&answer), len(answer.Senders)+len(answer.Topics)
		room := a.room(0)
		switch {
		case size <= room:
			return answer, nil
		case n > 1 && q.Max > 1: // in proportion, and surely fewer
			q.Max = max(1, min(q.Max/2, q.Max*room/size))
		default:
			answer.leaveNamesOut()
			return answer, nil
		}
	}
}

func summaryOf(found *inbox.Summary, own cursor) SummaryAnswer {
	position, next := own, own
	position.kind, position.at = ofPosition, found.Position
	answer := SummaryAnswer{
		Position: position.String(),
		Count:    Count(found.Total),
		Senders:  tallies(found.Senders, func(t *Tally, name string) { t.Sender = name }),
		Topics:   tallies(found.Topics, func(t *Tally, name string) { t.Topic = name }),
		More:     found.Next != "",
	}
	if answer.More {
		next.at, next.next = found.Position, found.Next
		answer.Next = next.String()
	}
	return answer
}

// tallies are those of an answer, newest first.
func tallies(found []inbox.Tally, setName func(*Tally, string)) []Tally {
	slices.SortStableFunc(found, func(a, b inbox.Tally) int {
		return cmp.Or(cmp.Compare(b.Newest.Time, a.Newest.Time), cmp.Compare(b.Newest.ID.Sequence, a.Newest.ID.Sequence))
	})
	all := make([]Tally, len(found))
	for i, f := range found {
		all[i] = Tally{Count: Count(f.Count), Oldest: markOf(f.Oldest), Newest: markOf(f.Newest)}
		setName(&all[i], f.Name)
	}
	return all
}

func markOf(m inbox.Mark) Mark { return Mark{m.ID.String(), Time(m.Time)} }

// leaveNamesOut is for one tally whose name alone is larger than the asker takes.
func (s *SummaryAnswer) leaveNamesOut() {
	for _, list := range [][]Tally{s.Senders, s.Topics} {
		for i := range list {
			list[i].Sender, list[i].Topic, list[i].Truncated = "", "", true
		}
	}
}

func summarySize(s *SummaryAnswer) int {
	n := len(`{"position":"","messages":,"bytes":,"at_least":true,"senders":[],"topics":[],"next":"","more":false}`) +
		2*numberSize + len(s.Position) + len(s.Next)
	for _, list := range [][]Tally{s.Senders, s.Topics} {
		for i := range list {
			n += tallySize(&list[i])
		}
	}
	return n
}
