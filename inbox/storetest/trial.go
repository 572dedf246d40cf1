package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

// patience is how long a test waits for anything before it fails. What takes so long on a
// busy machine never comes.
const patience = 3 * time.Minute

// lasting is the expiry of sessions that survive a restart.
const lasting inbox.Expiry = 3600

// trial is one test on one store.
type trial struct {
	*testing.T
	ctx   context.Context // ends when patience does
	store inbox.Store
	main  *publisher // of the test's own goroutine

	dir        string
	keeping    Keeping
	open       func(*testing.T, string) inbox.Store
	publishers []*publisher
	markers    int
}

func start(t *testing.T, open func(*testing.T, string) inbox.Store) *trial {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	tr := &trial{T: t, open: open, dir: t.TempDir()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tr.ctx = ctx
	tr.main = tr.publisher()
	t.Cleanup(func() {
		cancel()
		if tr.store != nil {
			tr.closeStore()
		}
		if err := leaktest.Find(leaks); err != nil {
			t.Error(err)
		}
	})
	tr.store = open(t, tr.dir)
	return tr
}

// restart closes the store and opens it again.
func (tr *trial) restart() {
	tr.Helper()
	tr.closeStore()
	tr.store = tr.open(tr.T, tr.dir)
}

// closeStore also checks that Close waited for every done.
func (tr *trial) closeStore() {
	tr.Helper()
	if err := tr.store.Close(); err != nil {
		tr.Errorf("closing the store: %v", err)
	}
	for _, p := range tr.publishers {
		p.check()
	}
}

// eventually polls until the condition holds.
func (tr *trial) eventually(what string, holds func() bool) {
	tr.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-tr.ctx.Done():
			tr.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// append stores messages from the test's goroutine and waits until they are.
func (tr *trial) append(es ...*inbox.Envelope) []inbox.Receipt {
	tr.Helper()
	from := tr.main.sent
	for _, e := range es {
		tr.main.append(e)
	}
	return tr.main.stored(from)
}

// publish stores one message of QoS 1 for each payload.
func (tr *trial) publish(topic string, payloads ...string) []inbox.Receipt {
	tr.Helper()
	es := make([]*inbox.Envelope, len(payloads))
	for i, p := range payloads {
		es[i] = message(topic, 1, p)
	}
	return tr.append(es...)
}

func message(topic string, qos byte, payload string) *inbox.Envelope {
	return &inbox.Envelope{
		Time:    time.Now().UnixMilli(),
		Topic:   topic,
		QoS:     qos,
		Payload: []byte(payload),
		Client:  "publisher",
	}
}

// size is n, or less in a short run.
func size(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}

// numbers returns n payloads that count from 0.
func numbers(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return out
}

func payloads(entries []inbox.Entry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = string(e.Envelope.Payload)
	}
	return out
}

func positions(entries []inbox.Entry) []inbox.Position {
	out := make([]inbox.Position, len(entries))
	for i, e := range entries {
		out[i] = e.Position
	}
	return out
}

// same fails with the neighbourhood of the first difference.
func same[E comparable](t testing.TB, what string, got, want []E) {
	t.Helper()
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	if i == len(got) && i == len(want) {
		return
	}
	around := func(s []E) string {
		return fmt.Sprintf("%.300s", fmt.Sprintf("%v", s[min(max(i-2, 0), len(s)):min(i+4, len(s))]))
	}
	t.Fatalf("%s: %d instead of %d, first difference at %d:\n got … %s …\nwant … %s …",
		what, len(got), len(want), i, around(got), around(want))
}

// ascending fails unless positions ascend.
func ascending(t testing.TB, what string, entries []inbox.Entry) {
	t.Helper()
	for i := 1; i < len(entries); i++ {
		if entries[i].Position <= entries[i-1].Position {
			t.Fatalf("%s: position %d (%s) follows %d (%s)", what,
				entries[i].Position, entries[i].Envelope.Payload,
				entries[i-1].Position, entries[i-1].Envelope.Payload)
		}
	}
}
