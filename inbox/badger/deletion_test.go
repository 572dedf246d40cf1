package badger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// post publishes a message by a user.
func post(t testing.TB, s inbox.Store, user, topic, text string) inbox.MessageID {
	t.Helper()
	return publish(t, s, &inbox.Envelope{
		Topic: topic, QoS: 1, Payload: []byte(text), Client: user + "'s phone", User: user, Time: time.Now().UnixMilli(),
	}).ID
}

func remove(t testing.TB, s inbox.Store, ids ...inbox.MessageID) {
	t.Helper()
	for _, id := range ids {
		if err := s.Delete(background, id, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// wherever opens a store with receivers that get what is in topic a in all the ways there are.
// What each of them gets is checked by the function that is returned.
func wherever(t *testing.T, s inbox.Store) func(want ...string) {
	const group = "$share/group/a"
	connected := map[string]*receiver{}
	for _, name := range []string{"own", "member", "fellow", "member, once more"} {
		connected[name] = connect(t, s, inbox.Receiver(name), inbox.ExpiryNever)
	}
	connected["in memory"] = connect(t, s, "in memory", inbox.ExpiryAtOnce)
	for name, filter := range map[string]string{
		"own": "a", "in memory": "a", "member": "a/#", "fellow": "a/#", "member, once more": "a/#",
	} {
		subscribeTo(t, connected[name], inbox.Subscription{Filter: filter, QoS: 1})
	}
	shared := connect(t, s, "shares", inbox.ExpiryNever)
	subscribeTo(t, shared, inbox.Subscription{Filter: group, QoS: 1})
	var err error
	shared.Inbox, _, err = s.Open(background, inbox.GroupReceiver(group), inbox.OpenOptions{State: shared.state})
	if err != nil {
		t.Fatal(err)
	}
	connected["group"] = shared
	leave(t, connect(t, s, "away", inbox.ExpiryNever, "a"), inbox.ExpiryNever)
	leave(t, connect(t, s, "member that is away", inbox.ExpiryNever, "a/#"), inbox.ExpiryNever)

	return func(want ...string) {
		t.Helper()
		for _, name := range []inbox.Receiver{"away", "member that is away"} {
			c := connect(t, s, name, inbox.ExpiryNever)
			connected[string(name)] = c
		}
		for name, c := range connected {
			if _, entries := c.take(t, len(want)); !slices.Equal(texts(entries), want) {
				t.Errorf("%s: got %q, want %q", name, texts(entries), want)
			}
		}
	}
}

func streamsOf(dir, filter string, kept ...string) badger.Options {
	o := keeping(dir, kept...)
	o.Pull = []string{filter}
	return o
}

// What is deleted is gone from every inbox where it is unread, though its receiver is
// connected and has it in memory.
func TestDeletedWhereverItIs(t *testing.T) {
	s := verifying(t, streamsOf(t.TempDir(), "a/#", "a"))
	defer s.Close()
	check := wherever(t, s)
	var ids []inbox.MessageID
	for _, text := range []string{"1", "2", "3", "4", "5"} {
		ids = append(ids, post(t, s, "ann", "a", text))
	}
	remove(t, s, ids[0], ids[3], ids[4])
	post(t, s, "ann", "a", "6")
	check("2", "3", "6")
	wantHistory(t, s, "#", "a: -", "a: 2", "a: 3", "a: -", "a: -", "a: 6")
}

// The same for those that had come so far that they read pages from disk, some of them
// decoded already for others.
func TestDeletedWhileReadAhead(t *testing.T) {
	s := verifying(t, streamsOf(t.TempDir(), "a/#", "a"))
	defer func() { s.Close() }()
	wherever(t, s)
	const n = 1200
	fillHistory(t, s, n, func(int) string { return "a" })
	all := walk(t, s, inbox.Query{Max: n, MaxBytes: 1 << 30})
	names := []inbox.Receiver{"own", "member", "fellow", "away", "member that is away"}
	behind := map[inbox.Receiver]*receiver{}
	for _, name := range names {
		behind[name] = connect(t, s, name, inbox.ExpiryNever)
		behind[name].take(t, 5) // and has read on
	}
	gone := []inbox.MessageID{all[6].Envelope.ID, all[199].Envelope.ID, all[700].Envelope.ID, all[n-1].Envelope.ID}
	remove(t, s, gone...)
	want := slices.DeleteFunc(slices.Clone(all), func(e inbox.Entry) bool { return slices.Contains(gone, e.Envelope.ID) })
	check := func(from int) {
		t.Helper()
		for name, c := range behind {
			if _, entries := c.take(t, len(want)-from); !slices.Equal(texts(entries), texts(want[from:])) {
				t.Errorf("%s gets something else from %d on", name, from)
			}
		}
	}
	check(5)
	for _, c := range behind {
		leave(t, c, inbox.ExpiryNever)
	}
	s.Close()
	s = verifying(t, streamsOf(s.dir, "a/#", "a"))
	at := make([]inbox.Position, n)
	for i, e := range all {
		at[i] = e.Position
	}
	for _, name := range names {
		entries, err := connect(t, s, name, inbox.ExpiryNever).Read(background, at)
		if err != nil || !slices.Equal(texts(entries), texts(want)) {
			t.Errorf("%s reads %d again, want %d: %v", name, len(entries), len(want), err)
		}
	}
}

// A deleted message at the end of a stream is passed over by the readers, which no state
// says, and swept: verify does not take it for lost.
func TestDeletedAtTheEndOfAStream(t *testing.T) {
	s := verifying(t, streamsOf(t.TempDir(), "a", "a"))
	c := connect(t, s, "c", inbox.ExpiryNever, "a")
	post(t, s, "ann", "a", "stays")
	id := post(t, s, "ann", "a", "deleted")
	remove(t, s, id)
	ids, _ := c.take(t, 1)
	c.finish(ids...)
	ended := make(chan error)
	go func() {
		_, err := c.Next(background, 1, 1<<20) // passes over it
		ended <- err
	}()
	eventually(t, s.Store, map[string]int{"i": 2}) // those of the history
	if err := s.Close(); err != nil {              // which verifies
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, inbox.ErrClosed) {
		t.Errorf("Next: %v, want %v", err, inbox.ErrClosed)
	}
}

// Once Delete has returned, Next returns the message to nobody, whatever it was about to
// read or to be handed.
func TestDeletedWhileOthersRead(t *testing.T) {
	const n = 1500
	s := verifying(t, streamsOf(t.TempDir(), "a/#", "a"))
	defer s.Close()
	var mu sync.Mutex
	gone := map[inbox.MessageID]bool{}
	snapshot := func() map[inbox.MessageID]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(gone)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(background)
	defer wg.Wait()
	defer cancel()
	for name, expiry := range map[inbox.Receiver]inbox.Expiry{"own": inbox.ExpiryNever, "member": inbox.ExpiryNever, "fellow": inbox.ExpiryNever, "in memory": inbox.ExpiryAtOnce} {
		c := connect(t, s, name, expiry, map[bool]string{true: "a/#", false: "a"}[name == "member" || name == "fellow"])
		wg.Go(func() {
			for {
				known := snapshot()
				entries, err := c.Next(ctx, 7, 1<<20)
				if err != nil {
					return
				}
				for _, e := range entries {
					if known[e.Envelope.ID] {
						t.Errorf("%s gets message %s, which was deleted", name, e.Envelope.Payload)
					}
				}
			}
		})
	}
	stored := make(chan inbox.MessageID, n)
	for i := range n {
		s.Append(background, &inbox.Envelope{Topic: "a", QoS: 1, Payload: fmt.Append(nil, i)}, func(r inbox.Receipt, _ error) { stored <- r.ID })
	}
	for i := range n {
		id := <-stored
		if i%4 > 0 {
			continue
		}
		remove(t, s, id)
		mu.Lock()
		gone[id] = true
		mu.Unlock()
	}
}

// Nor what the fan-out has had since before it was deleted.
func TestDeletedBeforeTheFanOutHasCome(t *testing.T) {
	s := verifying(t, streamsOf(t.TempDir(), "a", "a"))
	defer s.Close()
	stalled, goOn := make(chan struct{}), make(chan struct{})
	in, _, err := s.Open(background, "slow", inbox.OpenOptions{Expiry: inbox.ExpiryNever, Live: func(inbox.Entry) {
		close(stalled)
		<-goOn
	}})
	if err != nil {
		t.Fatal(err)
	}
	subscribeTo(t, in, inbox.Subscription{Filter: "a", QoS: 1})
	c := connect(t, s, "c", inbox.ExpiryNever, "a")
	post(t, s, "ann", "a", "first")
	first := post(t, s, "ann", "a", "second")
	c.take(t, 2)
	remove(t, s, first) // so that there is something to look for
	post(t, s, "ann", "a", "third")
	c.take(t, 1)

	publish(t, s, &inbox.Envelope{Topic: "a"})
	<-stalled
	remove(t, s, post(t, s, "ann", "a", "deleted"))
	next := make(chan []string)
	go func() {
		_, entries := c.take(t, 1)
		next <- texts(entries)
	}()
	post(t, s, "ann", "a", "last")
	close(goOn)
	if got := <-next; got[0] != "last" {
		t.Errorf("got %q", got)
	}
}

// A message is also gone where it stands as a copy: brought by a subscription since it
// is retained, or given by a group.
func TestDeletedCopies(t *testing.T) {
	o := keeping(t.TempDir(), "a")
	s := verifying(t, o)
	defer func() { s.Close() }()
	kept := publish(t, s, &inbox.Envelope{Topic: "a", QoS: 1, Payload: []byte("retained"), Retain: true, Client: "c"})
	c := connect(t, s, "c", inbox.ExpiryNever, "a")
	m := connect(t, s, "member", inbox.ExpiryNever)
	subscribeTo(t, m, inbox.Subscription{Filter: "$share/g/a", QoS: 2})
	group := &receiver{window: inbox.NewWindow(100, inbox.State{})}
	var err error
	if group.Inbox, _, err = s.Open(background, inbox.GroupReceiver("$share/g/a"), inbox.OpenOptions{State: group.state}); err != nil {
		t.Fatal(err)
	}
	given := post(t, s, "ann", "a", "given")
	late := post(t, s, "ann", "a", "deleted before it is given")
	post(t, s, "ann", "a", "stays")
	post(t, s, "ann", "a", "stays too")
	_, entries := group.take(t, 4)
	give := func(e inbox.Entry) {
		t.Helper()
		e.QoS = 2
		done := make(chan error, 1)
		group.Give(m.Inbox, []inbox.Entry{e}, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	give(entries[0])
	remove(t, s, kept.ID, given, late)
	give(entries[2])
	_, got := m.take(t, 1) // so that it has looked
	give(entries[1])
	give(entries[3])
	_, then := m.take(t, 1)
	_, others := c.take(t, 1)
	if texts(got)[0] != "stays" || texts(then)[0] != "stays too" || texts(others)[0] != "stays" {
		t.Errorf("the member gets %q and %q, and who was sent what is retained %q", texts(got), texts(then), texts(others))
	}
	for e, err := range s.Retained(background, "#") {
		t.Errorf("retained: %+v, %v", e, err)
	}
	s.Close()
	s = verifying(t, o)
	for _, name := range []inbox.Receiver{"c", "member"} {
		if _, got := connect(t, s, name, inbox.ExpiryNever).take(t, 1); texts(got)[0] != "stays" {
			t.Errorf("after a restart %s gets %q", name, texts(got))
		}
	}
}

// A message that was deleted is not brought back by its publisher who sends it again. One
// that was erased is unknown.
func TestDeletedAndSentAgain(t *testing.T) {
	s := verifying(t, keeping(t.TempDir(), "a"))
	defer s.Close()
	named := func(name string) inbox.Receipt {
		return publish(t, s, &inbox.Envelope{
			Topic: "a", QoS: 1, Payload: []byte(name), Client: "c", User: "ann",
			UserProperties: []inbox.UserProperty{{Key: inbox.PropertyMessageID, Value: name}},
		})
	}
	first := named("1").ID
	remove(t, s, first)
	if again := named("1"); !again.Duplicate || again.ID != first {
		t.Errorf("sent again: %+v", again)
	}
	named("2")
	if n, err := s.Erase(background, "ann"); n != 1 || err != nil {
		t.Errorf("%d erased, %v", n, err)
	}
	if again := named("2"); again.Duplicate {
		t.Error("the name of what was erased is still known")
	}
	wantHistory(t, s, "a", "a: -", "a: -", "a: 2")
}

func TestDeleteByWhom(t *testing.T) {
	s := verifying(t, keeping(t.TempDir(), "a"))
	defer s.Close()
	id := post(t, s, "ann", "a", "1")
	other := post(t, s, "ann", "b", "not kept")
	for by, want := range map[string]error{"bob": inbox.ErrNotSender, "ann's phone": inbox.ErrNotSender} {
		if err := s.Delete(background, id, by); !errors.Is(err, want) {
			t.Errorf("by %s: %v", by, err)
		}
	}
	for _, unknown := range []inbox.MessageID{other, {}, {Sequence: id.Sequence, Store: id.Store + 1}, {Sequence: id.Sequence + 100, Store: id.Store}} {
		if err := s.Delete(background, unknown, ""); !errors.Is(err, inbox.ErrUnknownID) {
			t.Errorf("%s: %v", unknown, err)
		}
	}
	for range 2 {
		if err := s.Delete(background, id, "ann"); err != nil {
			t.Error(err)
		}
	}
}

// Everything of a sender is erased, however much, and its name.
func TestErase(t *testing.T) {
	o := keeping(t.TempDir(), "#", "a/#")
	s := verifying(t, o)
	defer func() { s.Close() }()
	leave(t, connect(t, s, "away", inbox.ExpiryNever, "a/0"), inbox.ExpiryNever)
	const n = 900
	fillHistory(t, s, n, func(i int) string { return []string{"a/0", "a/1", "b"}[i%3] })
	post(t, s, "ann", "a/0", "stays")
	remove(t, s, walk(t, s, inbox.Query{Max: 1, MaxBytes: 1})[0].Envelope.ID)
	if got, err := s.Erase(background, "filler"); got != n-1 || err != nil {
		t.Errorf("%d erased, %v", got, err)
	}
	if got, err := s.Erase(background, "filler"); got != 0 || err != nil {
		t.Errorf("then %d, %v", got, err)
	}
	for range 2 {
		all := walk(t, s, inbox.Query{Max: 100, MaxBytes: 1 << 20})
		if len(all) != n+1 {
			t.Fatalf("%d places", len(all))
		}
		for _, e := range all[:n] {
			if !e.Envelope.Deleted || e.Envelope.Sender() != "" || len(e.Envelope.Payload) > 0 {
				t.Fatalf("left of it: %+v", e.Envelope)
			}
		}
		s.Close()
		s = verifying(t, o)
	}
	finishAll(t, connect(t, s, "away", inbox.ExpiryNever), "stays")
}
