package killtest

import (
	"slices"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// archive reads what the broker keeps in history, after the last kill: page by page,
// oldest first everything, and newest first what one publisher has sent. Both have every
// message that was acknowledged, in the order of storing, and nothing else.
type archive struct{ *run }

func (*archive) before(testing.TB, int) {}
func (*archive) after(testing.TB, int)  {}

func (x *archive) finally(t testing.TB) {
	c, ok := x.open(mqtttest.Options{ClientID: "archivist", Clean: true})
	if !ok {
		return
	}
	defer func() { _ = c.Close() }()
	a := &asker{run: x.run, conn: c, other: func(pk packets.Packet) error { return x.unasked("archivist", c, pk) }}
	x.compare(t, a, question{Topic: "load/#", Order: "asc", Limit: 1000}, x.ledger.Owed())
	owed := x.ledger.Owed()
	clear(owed[1:])
	x.compare(t, a, question{Topic: topic(0), Order: "desc", Limit: 300}, owed)
}

// compare walks through history and has the ledger judge what is there.
func (x *archive) compare(t testing.TB, a *asker, q question, owed [][]bool) {
	t.Helper()
	var all []pulled
	err := a.walk("history", q, func(p page) error {
		if q.Order == "desc" {
			slices.Reverse(p.Messages)
			all = slices.Concat(p.Messages, all)
		} else {
			all = append(all, p.Messages...)
		}
		return nil
	})
	if err != nil {
		t.Errorf("read history: %v", err)
		return
	}
	var messages []Message
	last := ""
	for _, m := range all {
		if m.ID <= last {
			x.ledger.Violate("history: %s stands behind %s", m.ID, last)
		}
		last = m.ID
		name, err := parse([]byte(m.Payload))
		if err != nil || m.Topic != topic(name.Publisher) {
			x.ledger.Violate("history: %s in %s: %v", m.ID, m.Topic, err)
			continue
		}
		messages = append(messages, name)
	}
	x.ledger.Archived(owed, messages)
}
