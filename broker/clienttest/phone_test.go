package clienttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/eclipse/paho.golang/paho"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/client"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// phone is a chat app on one device. What it has is what a database would: it outlives the
// program, and goes when the app is installed anew.
type phone struct {
	t        *testing.T
	broker   *brokertest.Broker
	user, id string

	dir    string            // of the outbox and the filter
	synced string            // history is there up to this id
	mu     sync.Mutex        // guards has
	has    map[string]string // texts, by id

	// While the program runs.
	device *device
	outbox *client.Outbox
	seen   *client.Seen
	quit   func()
}

// install makes the phone as it is when the app was just installed.
func (p *phone) install() {
	p.dir, p.synced, p.has = p.t.TempDir(), "0", map[string]string{}
}

// start starts the program.
func (p *phone) start() {
	p.t.Helper()
	var err error
	if p.seen, err = client.OpenSeen(filepath.Join(p.dir, "seen"), client.SeenOptions{}); err != nil {
		p.t.Fatal(err)
	}
	lost := func(l client.Lost) { p.t.Errorf("%s lost %v", p.id, l) }
	if p.outbox, err = client.OpenOutbox(filepath.Join(p.dir, "outbox"), client.OutboxOptions{Lost: lost}); err != nil {
		p.t.Fatal(err)
	}
	p.device = connectDevice(p.t, p.broker, deviceOptions{
		id: p.id, user: p.user, mode: pull.ModePull, subscribe: "chat/#",
		received: func(m *paho.Publish) {
			if err := p.show(client.MetadataOf(m).ID, string(m.Payload)); err != nil {
				p.t.Error(err)
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := p.outbox.Run(ctx, p.device.connection); !errors.Is(err, context.Canceled) && !errors.Is(err, client.ErrConnectionOver) {
			p.t.Errorf("%s sends: %v", p.id, err)
		}
	})
	p.quit = sync.OnceFunc(func() {
		cancel()
		sending.Wait()
		p.device.disconnect()
		if err := errors.Join(p.outbox.Close(), p.seen.Close()); err != nil {
			p.t.Error(err)
		}
	})
	p.t.Cleanup(p.quit)
}

// show puts a message where it belongs, once.
func (p *phone) show(id, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen.Has(id) {
		return nil
	}
	if had, ok := p.has[id]; ok && had != text {
		return fmt.Errorf("%s: %s is %q and %q", p.id, id, had, text)
	}
	p.has[id] = text
	return p.seen.Add(id)
}

// catchUp reads what is new in history and what is unread. An error means that the connection
// broke in the middle, and that it is to be done again.
func (p *phone) catchUp() error {
	ctx, cancel := context.WithTimeout(p.t.Context(), deadline)
	defer cancel()
	r := pull.HistoryRequest{Topic: "chat/#", Order: pull.OldestFirst, After: p.synced, Limit: 50}
	for m, err := range p.device.inbox.History(ctx, r) {
		if err != nil {
			return err
		}
		if err := p.show(m.ID, m.Payload); err != nil {
			return err
		}
		p.synced = m.ID
	}
	for m, err := range p.device.inbox.Messages(ctx, pull.PullRequest{Limit: 20}) {
		if err != nil {
			return err
		}
		if err := p.show(m.ID, m.Payload); err != nil {
			return err
		}
	}
	return nil
}

// mustCatchUp catches up over however many broken connections.
func (p *phone) mustCatchUp() {
	p.t.Helper()
	var err error
	mqtttest.EventuallyWithin(p.t, deadline, func() bool {
		err = p.catchUp()
		return err == nil
	}, "the phone catches up")
}

// write adds messages to the outbox.
func (p *phone) write(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if _, err := p.outbox.Add(&paho.Publish{Topic: "chat/tea", QoS: 1, Payload: []byte(text)}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// waitSent returns when the broker has all that was written.
func (p *phone) waitSent() {
	p.t.Helper()
	mqtttest.EventuallyWithin(p.t, deadline, func() bool { return p.outbox.Len() == 0 }, "everything is sent")
}

// texts are those that the phone has, in the order of their ids, which is that of storing.
func (p *phone) texts() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.has)) {
		all = append(all, p.has[id])
	}
	return all
}

// Two devices of one user, and one of another, over kills of the broker, times away and a new
// installation: in the end all have every message, each once, in one order and under one id,
// those that the user has sent among them, and nothing is unread.
func TestDevicesAgreeInTheEnd(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Args: []string{"--history", "chat/#"}})
	install := func(user, id string) *phone {
		p := &phone{t: t, broker: b, user: user, id: id}
		p.install()
		p.start()
		return p
	}
	crash := func() {
		b.Crash()
		b.Restart()
	}
	bob, mobile, tablet := install("bob", "bob-phone"), install("alice", "alice-phone"), install("alice", "alice-tablet")

	bob.write(numbered("b", 0, 40)...)
	mobile.write(numbered("a", 0, 20)...)
	crash() // in the middle
	tablet.mustCatchUp()
	tablet.quit()

	bob.write(numbered("b", 40, 90)...)
	mobile.write(numbered("a", 20, 30)...)
	mobile.quit() // with messages in its outbox, perhaps
	crash()
	mobile.start()
	mobile.mustCatchUp()
	mobile.waitSent()
	mobile.quit()

	mobile.install() // a new one, with the same name
	tablet.start()
	tablet.write(numbered("t", 0, 10)...)
	mobile.start()
	crash() // while it recovers
	mobile.mustCatchUp()
	bob.waitSent()
	tablet.waitSent()

	for _, p := range []*phone{bob, mobile, tablet} {
		p.mustCatchUp()
	}
	for _, p := range []*phone{bob, mobile, tablet} {
		if !maps.Equal(p.has, bob.has) {
			t.Errorf("%s and %s have not the same messages under the same ids", p.id, bob.id)
		}
		for before, n := range map[string]int{"a": 30, "b": 90, "t": 10} {
			got := slices.DeleteFunc(p.texts(), func(text string) bool { return text[:1] != before })
			equal(t, p.id+" has of "+before, got, numbered(before, 0, n))
		}
		mqtttest.Eventually(t, func() bool {
			s, err := p.device.inbox.Summary(t.Context())
			return err == nil && s.Messages == 0 && len(p.device.unread()) == 0
		}, "nothing is unread on "+p.id)
	}
}

// An app that has lost what it had begins where it says, in what was acknowledged, if the
// operator has it kept: with everything, or behind the last message that it knows.
func TestAppBeginsAgain(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Args: []string{"--rewind", "7d"}})
	away(t, b, "alice", "chat/#")
	ids := connectDevice(t, b, deviceOptions{id: "bob"}).publish("chat/tea", numbered("", 0, 10)...)

	alice := connectDevice(t, b, deviceOptions{id: "alice", mode: pull.ModePull})
	for _, err := range alice.inbox.Pages(t.Context(), pull.PullRequest{Limit: 3}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "unread", alice.unread(), nil)
	page, err := alice.inbox.Pull(t.Context(), pull.PullRequest{After: ids[6]})
	if err != nil || len(page.Messages) != 3 || page.Messages[0].ID != ids[7] {
		t.Errorf("behind an id of its own: %v, %v", page, err)
	}
	alice.disconnect()
	b.Kill()
	b.Restart()
	for _, x := range []struct {
		from string
		want int
	}{{ids[4], 5}, {"0", 0}} {
		alice = connectDevice(t, b, deviceOptions{
			id: "alice", mode: pull.ModePull, properties: []paho.UserProperty{{Key: client.PropertyFrom, Value: x.from}},
		})
		equal(t, "unread from "+x.from, alice.unread(), numbered("", x.want, 10))
		alice.disconnect()
	}
}
