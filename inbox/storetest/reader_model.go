package storetest

import (
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// readerModel is what one inbox should be for those who ask: a plain list.
type readerModel struct {
	receiver inbox.Receiver
	client   *client // nil while absent
	subs     []string
	items    []*item // everything that came and was not given up, in order
	unsure   bool    // whether what was acknowledged and then given up comes to who starts again

	mode   inbox.Mode // of the next connection
	behind bool       // in push mode: Next waits until what was open before is finished
}

// item is one message in one inbox. Where Next and the owner have come with it is
// said twice: as it is now, and as it was saved.
type item struct {
	*told
	position   inbox.Position // once it was seen
	now, saved stage
	waits      bool // to be pulled: Next does not have it
	acked      bool // by the other door
}

type stage byte

const (
	ahead stage = iota // of Next
	onWay
	finished
)

// told is one message, as it was published.
type told struct {
	id       inbox.MessageID
	envelope inbox.Envelope
	deleted  bool
	erased   bool
}

func (t *told) expired(at int64) bool { return t.envelope.Expiry != 0 && at >= t.envelope.Expiry }

// unread reports whether the store must say so.
func (i *item) unread(at int64) bool {
	return !i.acked && i.saved != finished && !i.deleted && !i.expired(at)
}

func (m *readerModel) covers(topic string) bool {
	return slices.ContainsFunc(m.subs, func(f string) bool { return covers(f, topic) })
}

// unread returns what is unread and selected, in order.
func (m *readerModel) unread(s inbox.Selection, at int64) (out []*item) {
	for _, i := range m.items {
		if i.unread(at) && selected(s, &i.envelope) {
			out = append(out, i)
		}
	}
	return out
}

// due returns what Next must have, in order. What is expired it may have.
func (m *readerModel) due() (out []*item) {
	if m.behind {
		return nil
	}
	for _, i := range m.items {
		if i.now == ahead && !i.waits && !i.acked && !i.deleted {
			out = append(out, i)
		}
	}
	return out
}

// lastsUntil reports whether none of the items expires between two times.
func lastsUntil(items []*item, from, to int64) bool {
	return !slices.ContainsFunc(items, func(i *item) bool { return !i.expired(from) && i.expired(to) })
}

// save notes what the store knows from now on.
func (m *readerModel) save() {
	for _, i := range m.items {
		i.saved = i.now
	}
	if m.behind && len(m.client.current().Open) == 0 {
		m.goBack()
	}
}

// goBack has Next begin with what waited.
func (m *readerModel) goBack() {
	m.behind = false
	for _, i := range m.items {
		i.waits = false
	}
}

// leave forgets what was not saved.
func (m *readerModel) leave() {
	m.client, m.behind = nil, false
	for _, i := range m.items {
		i.now = i.saved
	}
}

// arrive opens the inbox.
func (m *readerModel) arrive(c *client) {
	m.leave()
	m.client = c
	m.begin(len(c.State().Open) > 0)
}

// begin decides where Next begins, and whether it waits for what is open.
func (m *readerModel) begin(open bool) {
	if m.mode == inbox.ModePull {
		for _, i := range m.items {
			i.waits = i.waits || i.now == ahead
		}
		return
	}
	waiting := slices.ContainsFunc(m.items, func(i *item) bool { return i.waits && !i.acked && !i.deleted })
	if m.behind = waiting && open; !m.behind {
		m.goBack()
	}
}

// again makes unread what is behind a place; everything if at is below 0.
func (m *readerModel) again(at int) {
	for n, i := range m.items {
		if n > at || !i.acked && i.saved != finished {
			i.acked, i.now, i.saved, i.waits = false, ahead, ahead, false
		}
	}
}

// giveUp removes what came by one filter alone, and Next has not returned. What is expired
// it may still have, for it may have been expired when it was acknowledged.
func (m *readerModel) giveUp(filter string) {
	now := nowMillis()
	m.subs = slices.DeleteFunc(m.subs, func(f string) bool { return f == filter })
	m.items = slices.DeleteFunc(m.items, func(i *item) bool {
		if i.now != ahead || !covers(filter, i.envelope.Topic) || m.covers(i.envelope.Topic) {
			return false
		}
		m.unsure = m.unsure || i.acked
		return !i.acked && !i.expired(now)
	})
}

func nowMillis() int64 { return time.Now().UnixMilli() }
