package pull

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// shelf is a store with one inbox, which is also its history, and whose clock stands
// still. It can be lazy, and lose messages.
type shelf struct {
	inbox.Store // has nothing else

	id        uint32 // 7 if it is 0
	entries   []inbox.Entry
	read      map[inbox.Position]bool
	lost      map[inbox.Position]inbox.GapReason
	examine   int    // entries that it looks at for one page; 0 for all
	meanwhile func() // is called before a page is read

	asked   []inbox.Query
	acked   []inbox.Acknowledgement
	deleted []string
	failure error
}

const shelfTime = 1_760_000_000_000

func (s *shelf) ID() uint32 { return cmp.Or(s.id, 7) }

// put adds messages, and returns the last.
func (s *shelf) put(n int, sender, topic string) inbox.Entry {
	if s.read == nil {
		s.read, s.lost = map[inbox.Position]bool{}, map[inbox.Position]inbox.GapReason{}
	}
	for range n {
		p := inbox.Position(3)
		if len(s.entries) > 0 {
			p += s.entries[len(s.entries)-1].Position
		}
		e := &inbox.Envelope{
			ID: inbox.MessageID{Sequence: p, Store: s.ID()}, Time: shelfTime, Topic: topic, QoS: 1, Client: sender + "-client", User: sender,
			Payload: fmt.Appendf(nil, "%d", p),
		}
		s.entries = append(s.entries, inbox.Entry{Position: p, Envelope: e})
	}
	return s.entries[len(s.entries)-1]
}

func (s *shelf) place(b inbox.Bound) (inbox.Position, error) {
	if b.ID.Sequence > 0 && b.ID.Store != s.ID() {
		return 0, inbox.ErrUnknownID
	}
	if b.Time > shelfTime {
		return 1 << 60, nil
	}
	return cmp.Or(b.Position, b.ID.Sequence, inbox.Position(b.Time/shelfTime)), nil
}

func (s *shelf) Pull(_ context.Context, r inbox.Receiver, q inbox.Query) (inbox.Page, error) {
	if r != "phone" {
		return inbox.Page{}, inbox.ErrNoSession
	}
	return s.page(q, func(e inbox.Entry) bool { return (q.Read || !s.read[e.Position]) && !e.Envelope.Deleted })
}

func (s *shelf) History(_ context.Context, q inbox.Query) (inbox.Page, error) {
	page, err := s.page(q, func(inbox.Entry) bool { return true })
	page.Remaining = inbox.Count{}
	return page, err
}

func (s *shelf) page(q inbox.Query, shown func(inbox.Entry) bool) (page inbox.Page, err error) {
	s.asked = append(s.asked, q)
	if s.meanwhile != nil {
		s.meanwhile()
	}
	after, err1 := s.place(q.After)
	before, err2 := s.place(q.Before)
	if err := cmp.Or(s.failure, err1, err2); err != nil {
		return page, err
	}
	entries := slices.DeleteFunc(slices.Clone(s.entries), func(e inbox.Entry) bool {
		return e.Position <= after || before != 0 && e.Position >= before
	})
	if q.NewestFirst {
		slices.Reverse(entries)
	}
	size, looked := 0, 0
	for _, e := range entries {
		if !page.More {
			looked++
		}
		lazy := s.examine > 0 && looked > s.examine
		switch reason := s.lost[e.Position]; {
		case !shown(e) || !q.Matches(e.Envelope):
			page.More = page.More || lazy
		case page.More || lazy || reason == "" && (len(page.Entries) == q.Max || size > 0 && size+e.Envelope.Size() > q.MaxBytes):
			page.More = true
			if reason == "" {
				page.Remaining.Messages++
				page.Remaining.Bytes += contentSize(e.Envelope)
			}
		case reason != "":
			page.Gaps = append(page.Gaps, inbox.Gap{From: e.Envelope.Time, To: e.Envelope.Time, Messages: 1, Reason: reason})
			page.Next = e.Position
		default:
			page.Entries = append(page.Entries, e)
			size += e.Envelope.Size()
			page.Next = 0
		}
		if !page.More && s.examine > 0 && looked == s.examine {
			page.Next = e.Position
		}
	}
	return page, nil
}

func (s *shelf) Acknowledge(_ context.Context, _ inbox.Receiver, a inbox.Acknowledgement) (n int, err error) {
	s.acked = append(s.acked, a)
	for _, e := range s.entries {
		through := cmp.Or(a.ThroughID.Sequence, a.Through)
		within := e.Position > a.After && (through == 0 || e.Position <= through) && a.Matches(e.Envelope)
		if len(a.IDs) > 0 {
			within = slices.Contains(a.IDs, e.Envelope.ID)
		}
		if within && !s.read[e.Position] {
			s.read[e.Position] = true
			n++
		}
	}
	return n, s.failure
}

func (s *shelf) unread() (n int) {
	for _, e := range s.entries {
		if !s.read[e.Position] {
			n++
		}
	}
	return n
}

func (s *shelf) Delete(_ context.Context, id inbox.MessageID, by string) error {
	s.deleted = append(s.deleted, id.String()+" by "+by)
	return s.failure
}

func (s *shelf) Erase(_ context.Context, sender string) (int, error) {
	s.deleted = append(s.deleted, "all of "+sender)
	return 3, s.failure
}

func (s *shelf) SetMode(_ context.Context, _ inbox.Receiver, m inbox.Mode) (inbox.Mode, error) {
	return m, s.failure
}

func (s *shelf) Summarize(context.Context, inbox.Receiver, inbox.SummaryQuery) (inbox.Summary, error) {
	return inbox.Summary{}, s.failure
}

// phone asks for the inbox of a shelf.
var phone = Asker{Receiver: "phone", User: "ann"}

func mustPull(t *testing.T, s *Service, a Asker, r PullRequest) MessagesAnswer {
	t.Helper()
	answer, err := s.Pull(t.Context(), a, r)
	if err != nil {
		t.Fatalf("pull %+v: %v", r, err)
	}
	return answer
}

// walk pulls with the cursors of answers until there is none, and calls between after each page.
func walk(t *testing.T, s *Service, a Asker, r PullRequest, between func()) (ids []string, pages int) {
	t.Helper()
	for pages = 1; ; pages++ {
		answer := mustPull(t, s, a, r)
		for _, m := range answer.Messages {
			ids = append(ids, m.ID)
		}
		if answer.Next == "" {
			return ids, pages
		}
		if pages > 10_000 {
			t.Fatal("the walk does not end")
		}
		if r.Order == NewestFirst {
			r.Before = answer.Next
		} else {
			r.After = answer.Next
		}
		between()
	}
}

// ids are those of entries.
func idsOf(entries []inbox.Entry) (ids []string) {
	for _, e := range entries {
		ids = append(ids, e.Envelope.ID.String())
	}
	return ids
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if err == nil || ErrorOf(err).Code != code {
		t.Errorf("got the error %v, expected %s", err, code)
	}
}
