package killtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// puller is a receiver in pull mode that comes and goes. It pulls what has waited, in
// either order, of all, of one sender or in some topics, and acknowledges by asking for
// the next page, by ids and through cursors. What comes while it is there is delivered; some of
// that it acknowledges by PUBACK or PUBREC, and the rest it pulls. One that clears also
// acknowledges what it has not seen. It belongs to one goroutine.
type puller struct {
	asker
	run    *run
	id     string
	clears bool
	drawn  *rand.Rand
	open   []delivered // on this link, and not acknowledged

	unfinished map[uint16]string // QoS 2: ids of messages that were received and not yet released
}

func (x *puller) options(mode string) mqtttest.Options {
	return mqtttest.Options{
		ClientID: x.id, Version: 5, SessionExpiry: sessionExpiry, KeepAlive: keepAlive, ReceiveMaximum: 200,
		UserProperties: []packets.UserProperty{{Key: "inbox-mode", Val: mode}, {Key: "inbox-metadata", Val: "on"}},
	}
}

// live makes link after link, each for a few things that are drawn.
func (x *puller) live(over context.Context) {
	for over.Err() == nil {
		if !x.link("pull", func() error {
			for range 1 + x.drawn.IntN(6) {
				if err := x.one(); err != nil {
					return err
				}
			}
			return errLeft
		}) {
			return
		}
		pause(over, time.Duration(x.drawn.IntN(200))*time.Millisecond)
	}
}

// link makes one link and returns false when the run is over.
func (x *puller) link(mode string, do func() error) bool {
	c, ok := x.run.open(x.options(mode))
	if !ok {
		return false
	}
	x.run.ledger.LinkBegan(x.id, time.Now(), c.Connack.SessionPresent)
	x.asker, x.open = asker{run: x.run, conn: c, other: x.take}, nil
	err := do()
	var refused refusal
	if errors.As(err, &refused) && refused != unavailable {
		x.run.ledger.Violate("%s: %v", x.id, refused)
	}
	x.run.ledger.LinkEnded(x.id, time.Now(), false)
	_ = c.Close() // the broker may have been first
	return true
}

// one does one thing that is drawn.
func (x *puller) one() error {
	if x.clears && x.drawn.IntN(4) == 0 {
		return x.clear()
	}
	q := question{Order: "asc", Limit: 1 + x.drawn.IntN(300)}
	if x.drawn.IntN(2) == 0 {
		q.Order = "desc"
	}
	switch x.drawn.IntN(6) {
	case 0:
		return x.listen(50 * time.Millisecond)
	case 1:
		q.Sender = x.sender()
	case 2:
		q.Topic = topic(x.drawn.IntN(x.run.Publishers))
	case 3:
		q.Sender, q.Topic = x.sender(), "+/#"
	case 4:
		return x.acknowledge(q)
	}
	return x.pages(q, 1+x.drawn.IntN(5))
}

func (x *puller) sender() string { return publisherID(x.drawn.IntN(x.run.Publishers)) }

// pages walks over so many pages, of which the last stays unread, or to the end.
func (x *puller) pages(q question, most int) error {
	var before []string
	last := ""
	err := x.walk("pull", q, func(p page) error {
		x.run.ledger.Read(x.id, before)
		before = x.pulled(p)
		for _, id := range before {
			if last != "" && (q.Order == "asc") != (id > last) {
				x.run.ledger.Violate("%s: %s came behind %s, order is %s", x.id, id, last, q.Order)
			}
			last = id
		}
		x.run.trigger.passed(asked)
		if most--; most == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// errEnough ends a walk before its end.
var errEnough = errors.New("enough")

// pulled notes what a page has, and returns the ids.
func (x *puller) pulled(p page) (ids []string) {
	for _, m := range p.Messages {
		name, err := parse([]byte(m.Payload))
		if err != nil {
			x.run.ledger.Violate("%s: pulled %s: %v", x.id, m.ID, err)
			continue
		}
		x.run.ledger.Pulled(x.id, m.ID, name, x.asked)
		ids = append(ids, m.ID)
	}
	return ids
}

// acknowledge looks at a page, and acknowledges it by its cursor, or some of it by ids.
func (x *puller) acknowledge(q question) error {
	no := false
	q.Ack = &no
	var p page
	if err := x.ask("pull", q, &p); err != nil {
		return err
	}
	ids := x.pulled(p)
	if len(ids) == 0 {
		return nil
	}
	by := question{Through: p.Next}
	if x.drawn.IntN(2) == 0 {
		x.drawn.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		ids = ids[:1+x.drawn.IntN(len(ids))]
		by = question{IDs: ids}
	}
	var answer struct{ Acknowledged int }
	if err := x.ask("ack", by, &answer); err != nil {
		return err
	}
	if answer.Acknowledged > len(ids) {
		x.run.ledger.Violate("%s: %d acknowledged of %d", x.id, answer.Acknowledged, len(ids))
	}
	x.run.ledger.Read(x.id, ids)
	x.run.trigger.passed(asked)
	return nil
}

// clear acknowledges everything, or all of a sender or in a topic, as it is. Sometimes it first
// reads what there is, for afterwards nobody can tell whether something had been missing.
func (x *puller) clear() error {
	if owed := x.run.ledger.Owed(); x.drawn.IntN(2) == 0 {
		if err := x.pages(question{Order: "desc", Limit: 1000}, -1); err != nil {
			return err
		}
		x.run.ledger.HasAll(x.id, owed)
	}
	var q question
	var of []int
	switch p := x.drawn.IntN(x.run.Publishers); x.drawn.IntN(3) {
	case 0:
		q.Sender, of = publisherID(p), []int{p}
	case 1:
		q.Topic, of = topic(p), []int{p}
	default:
		q.All = true
		for p := range x.run.Publishers + 1 {
			of = append(of, p)
		}
	}
	x.run.ledger.Clears(x.id, of)
	var answer struct{ Acknowledged int }
	if err := x.ask("ack", q, &answer); err != nil {
		return err
	}
	x.run.ledger.Cleared(x.id, answer.Acknowledged)
	x.run.trigger.passed(asked)
	return nil
}

// drain pulls everything that is left, and then looks whether anything is unread still, is
// delivered, or keeps its packet id.
func (x *puller) drain() {
	limit := time.Now().Add(x.run.drainDeadline())
	for x.run.ledger.Lacks(x.id) && time.Now().Before(limit) {
		if !x.link("pull", func() error { return x.pages(question{Order: "asc", Limit: 1000}, -1) }) {
			return
		}
	}
	x.link("push", func() error {
		if err := x.pages(question{Order: "asc", Limit: 1000}, -1); err != nil {
			return err
		}
		var left struct{ Messages int }
		if err := x.ask("summary", question{}, &left); err != nil {
			return err
		}
		if left.Messages > 0 {
			x.run.ledger.Violate("%s: %d are unread when all is read", x.id, left.Messages)
		}
		return errLeft
	})
	x.link("push", func() error {
		for len(x.unfinished) > 0 && time.Now().Before(limit) {
			if err := errors.Join(x.confirm(true), x.listen(glance)); err != nil {
				return err
			}
		}
		return x.listen(quietTime)
	})
	for packetID, id := range x.unfinished {
		x.run.ledger.Violate("%s: packet id %d, of %s, is not released", x.id, packetID, id)
	}
}
