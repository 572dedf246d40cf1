package badger

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Summarize implements [inbox.Puller]. Tallies come in the order of the hashes of
// their names, those of senders first. It reads everything that is unread, and holds
// as many tallies as one answer has.
func (s *Store) Summarize(ctx context.Context, r inbox.Receiver, q inbox.SummaryQuery) (sum inbox.Summary, err error) {
	err = s.ask(ctx, r, func(u *unread) error {
		c := newSummary(u.upTo, q)
		err := u.each(ctx, 0, c.sum.Position, false, func(e met) bool {
			if !e.over {
				c.add(e.Envelope)
			}
			return true
		})
		sum = c.done()
		return err
	})
	if err != nil {
		return inbox.Summary{}, fmt.Errorf("summarize: %w", err)
	}
	return sum, nil
}

// summary counts messages by sender and by topic. Of the tallies it keeps those that
// the answer has: the first behind where the one before has ended.
type summary struct {
	query   inbox.SummaryQuery
	sum     inbox.Summary
	tallies map[tallyKey]*inbox.Tally
	keys    map[string]tallyKey // the hashes of names met lately
}

// tallyKey is the place of a tally: its kind, and the hash of its name.
type tallyKey string

// The kinds of tallies.
const (
	ofSender = "s"
	ofTopic  = "t"
)

func newSummary(upTo inbox.Position, q inbox.SummaryQuery) *summary {
	c := &summary{query: q, tallies: map[tallyKey]*inbox.Tally{}, keys: map[string]tallyKey{}}
	if c.sum.Position = upTo; q.UpTo != 0 {
		c.sum.Position = min(upTo, q.UpTo)
	}
	return c
}

// add counts a message. They come in the order of storing.
func (c *summary) add(e *inbox.Envelope) {
	sender := e.Sender()
	if c.query.Except != "" && sender == c.query.Except {
		return
	}
	addTo(&c.sum.Total, e)
	c.count(ofSender, sender, e)
	c.count(ofTopic, e.Topic, e)
}

func (c *summary) count(kind, name string, e *inbox.Envelope) {
	key := c.keyOf(kind, name)
	if string(key) <= c.query.Next {
		return
	}
	mark := inbox.Mark{ID: e.ID, Time: e.Time}
	t := c.tallies[key]
	if t == nil {
		if len(c.tallies) > 2*c.query.Max+1 {
			c.prune()
		}
		t = &inbox.Tally{Name: name, Oldest: mark}
		c.tallies[key] = t
	}
	t.Newest = mark
	addTo(&t.Count, e)
}

// namesLately bounds how many hashes are remembered.
const namesLately = 4096

func (c *summary) keyOf(kind, name string) tallyKey {
	hash, known := c.keys[name]
	if !known {
		if len(c.keys) == namesLately {
			clear(c.keys)
		}
		sum := sha256.Sum256([]byte(name))
		hash = tallyKey(sum[:16])
		c.keys[name] = hash
	}
	return tallyKey(kind) + hash
}

// prune forgets the tallies that are behind those of the answer: what comes cannot
// bring them back.
func (c *summary) prune() {
	for _, key := range slices.Sorted(maps.Keys(c.tallies))[c.query.Max+1:] {
		delete(c.tallies, key)
	}
}

// done returns the answer.
func (c *summary) done() inbox.Summary {
	keys := slices.Sorted(maps.Keys(c.tallies))
	if len(keys) > c.query.Max {
		keys = keys[:c.query.Max]
		c.sum.Next = string(keys[c.query.Max-1])
	}
	for _, key := range keys {
		if key[:1] == ofSender {
			c.sum.Senders = append(c.sum.Senders, *c.tallies[key])
		} else {
			c.sum.Topics = append(c.sum.Topics, *c.tallies[key])
		}
	}
	return c.sum
}
