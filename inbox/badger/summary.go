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
// their names, those of senders first, and as many are held as one answer has. Cost: a
// few reads for each sender and topic, see sorted.summarize, or, where an index does
// not tell, those of reading what is unread.
func (s *Store) Summarize(ctx context.Context, r inbox.Receiver, q inbox.SummaryQuery) (sum inbox.Summary, err error) {
	err = s.askSorted(ctx, r, func(u *unread, sort func() (*sorted, error)) error {
		c := newSummary(u.upTo, q)
		all, err := c.read(ctx, u, s.sizes.few)
		if err != nil || all {
			sum = c.done()
			return err
		}
		c = newSummary(u.upTo, q)
		x, err := sort()
		if err == nil {
			defer x.close()
			err = x.summarize(ctx, c)
		}
		if isUnsorted(err) {
			c = newSummary(u.upTo, q)
			_, err = c.read(ctx, u, countLook)
		}
		sum = c.done()
		return err
	})
	if err != nil {
		return inbox.Summary{}, fmt.Errorf("summarize: %w", err)
	}
	return sum, nil
}

// read adds what is unread up to the summary's position, or so many entries of it, and
// reports whether that was all. Otherwise the summary is of the position that was
// come to.
func (c *summary) read(ctx context.Context, u *unread, most int) (all bool, err error) {
	all = true
	err = u.each(ctx, 0, c.sum.Position, false, func(e met) bool {
		if most == 0 {
			all = false
			c.sum.Position = e.Position - 1
			return false
		}
		most--
		c.add(e)
		return true
	})
	c.atLeast = !all
	return all, err
}

// summary counts messages by sender and by topic. Of the tallies it keeps those that
// the answer has: the first behind where the one before has ended.
type summary struct {
	query   inbox.SummaryQuery
	sum     inbox.Summary
	atLeast bool // there may be more behind the position
	tallies map[tallyKey]*tallied
	keys    map[string]tallyKey // the hashes of names met lately
}

// tallied is a tally, and between which positions its messages are.
type tallied struct {
	name           string
	count          inbox.Count
	oldest, newest spot
}

// spot is where a message is.
type spot struct {
	position inbox.Position
	mark     inbox.Mark
}

// tallyKey is the place of a tally: its kind, and the hash of its name.
type tallyKey string

// The kinds of tallies.
const (
	ofSender = "s"
	ofTopic  = "t"
)

func newSummary(upTo inbox.Position, q inbox.SummaryQuery) *summary {
	c := &summary{query: q, tallies: map[tallyKey]*tallied{}, keys: map[string]tallyKey{}}
	if c.sum.Position = upTo; q.UpTo != 0 {
		c.sum.Position = min(upTo, q.UpTo)
	}
	return c
}

// excepts reports whether the messages of a sender are not counted.
func (c *summary) excepts(sender string) bool {
	return c.query.Except != "" && sender == c.query.Except
}

// add counts a message, unless its time is over.
func (c *summary) add(e met) {
	if e.over || c.excepts(e.Envelope.Sender()) {
		return
	}
	at := spot{e.Position, inbox.Mark{ID: e.Envelope.ID, Time: e.Envelope.Time}}
	c.addPair(e.Envelope.Sender(), e.Envelope.Topic, tally{messages: 1, bytes: uint64(e.Envelope.Size() - emptyEnvelope)}, at, at)
}

// addPair counts messages of a sender in a topic, at least one.
func (c *summary) addPair(sender, topic string, t tally, oldest, newest spot) {
	addTally(&c.sum.Total, t)
	c.count(ofSender, sender, t, oldest, newest)
	c.count(ofTopic, topic, t, oldest, newest)
}

func (c *summary) count(kind, name string, t tally, oldest, newest spot) {
	key := c.keyOf(kind, name)
	if string(key) <= c.query.Next {
		return
	}
	of := c.tallies[key]
	if of == nil {
		if len(c.tallies) > 2*c.query.Max+1 {
			c.prune()
		}
		of = &tallied{name: name, oldest: oldest, newest: newest}
		c.tallies[key] = of
	}
	if oldest.position < of.oldest.position {
		of.oldest = oldest
	}
	if newest.position > of.newest.position {
		of.newest = newest
	}
	addTally(&of.count, t)
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
	c.sum.Total.AtLeast = c.atLeast
	for _, key := range keys {
		of := c.tallies[key]
		of.count.AtLeast = c.atLeast
		t := inbox.Tally{Name: of.name, Count: of.count, Oldest: of.oldest.mark, Newest: of.newest.mark}
		if key[:1] == ofSender {
			c.sum.Senders = append(c.sum.Senders, t)
		} else {
			c.sum.Topics = append(c.sum.Topics, t)
		}
	}
	return c.sum
}
