package memory

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Summarize implements [inbox.Puller]. The tallies of senders come first, then
// those of topics.
func (s *Store) Summarize(ctx context.Context, r inbox.Receiver, q inbox.SummaryQuery) (sum inbox.Summary, err error) {
	err = s.ask(ctx, r, func(held *session) error {
		sum = held.summaryLocked(s.last, q)
		return nil
	})
	return sum, err
}

// Where a list of tallies begins in the order of [inbox.SummaryQuery.Next].
const (
	ofSender = "s"
	ofTopic  = "t"
)

func (s *session) summaryLocked(last inbox.Position, q inbox.SummaryQuery) inbox.Summary {
	sum := inbox.Summary{Position: last}
	if q.UpTo != 0 {
		sum.Position = min(last, q.UpTo)
	}
	tallies := map[string]*inbox.Tally{}
	now := time.Now()
	for _, e := range s.entries {
		if e.Position > sum.Position || e.Envelope.Expired(now) || q.Except != "" && e.Envelope.Sender() == q.Except {
			continue
		}
		addTo(&sum.Total, e.Envelope)
		tally(tallies, ofSender, e.Envelope.Sender(), e.Envelope)
		tally(tallies, ofTopic, e.Envelope.Topic, e.Envelope)
	}

	var keys []string
	for key := range tallies {
		if key > q.Next {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) > q.Max {
		keys = keys[:q.Max]
		sum.Next = keys[q.Max-1]
	}
	for _, key := range keys {
		if strings.HasPrefix(key, ofSender) {
			sum.Senders = append(sum.Senders, *tallies[key])
		} else {
			sum.Topics = append(sum.Topics, *tallies[key])
		}
	}
	return sum
}

// tally counts one message of the sender or topic that has this name. Messages
// come in the order of storing.
func tally(tallies map[string]*inbox.Tally, kind, name string, e *inbox.Envelope) {
	mark := inbox.Mark{ID: e.ID, Time: e.Time}
	sum := sha256.Sum256([]byte(name))
	key := kind + string(sum[:16]) // short, whatever the name is
	t := tallies[key]
	if t == nil {
		t = &inbox.Tally{Name: name, Oldest: mark}
		tallies[key] = t
	}
	t.Newest = mark
	addTo(&t.Count, e)
}
