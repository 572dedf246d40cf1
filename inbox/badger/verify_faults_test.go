package badger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// everything is a store with records of every kind, and where they are.
type everything struct {
	dir string

	a, b, slow, fast, stream, group incarnation

	counted  inbox.Position // a body that two of three still refer to
	body     inbox.Position // one that three refer to, and stored before the last
	last     inbox.Position // the last body
	own      inbox.Position // a message to a alone
	streamed []inbox.Position
	top      inbox.Position // the last number in use
}

func everythingOptions(dir string) Options {
	return Options{
		Dir: dir, Reserve: -1, Retention: -1, StreamFrom: -1, Pull: []string{"news"},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), sweepEvery: 5 * time.Millisecond,
	}
}

// actor is a session of the test.
type actor struct {
	inbox.Inbox
	mu     sync.Mutex
	window *inbox.Window
}

func (a *actor) state() inbox.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.window.State()
}

func enter(t *testing.T, s *Store, r inbox.Receiver, will *inbox.Will, subs ...inbox.Subscription) *actor {
	t.Helper()
	a := &actor{window: inbox.NewWindow(100, inbox.State{})}
	in, _, err := s.Open(t.Context(), r, inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: a.state, Will: will})
	if err != nil {
		t.Fatal(err)
	}
	a.Inbox = in
	if _, err := in.Subscribe(t.Context(), subs...); err != nil {
		t.Fatal(err)
	}
	return a
}

// finish takes n messages and acknowledges them.
func (a *actor) finish(t *testing.T, n int) {
	t.Helper()
	for n > 0 {
		page, err := a.Next(t.Context(), n, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		for _, e := range page {
			a.window.Ack(a.window.Send(e.Position, e.QoS))
		}
		a.mu.Unlock()
		n -= len(page)
	}
	a.Save(nil)
}

// fillEverything makes the store, and leaves it closed.
func fillEverything(t *testing.T) *everything {
	t.Helper()
	x := &everything{dir: t.TempDir()}
	s, err := Open(everythingOptions(x.dir))
	if err != nil {
		t.Fatal(err)
	}
	publish := func(e *inbox.Envelope) inbox.Position {
		t.Helper()
		e.Time, e.Client = time.Now().UnixMilli(), "publisher"
		done := make(chan inbox.Receipt, 1)
		s.Append(t.Context(), e, func(r inbox.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
			done <- r
		})
		x.top = (<-done).ID.Sequence
		return x.top
	}
	for range 3 { // leaves numbers free
		publish(&inbox.Envelope{Topic: "nobody", QoS: 1})
	}
	will := &inbox.Will{Envelope: &inbox.Envelope{Topic: "will", QoS: 1}, Delay: 3600}
	a := enter(t, s, "a", will, sub("all", 1), sub("a", 1), sub("$share/g/jobs", 1))
	b := enter(t, s, "b", nil, sub("all", 1))
	slow := enter(t, s, "slow", nil, sub("all", 1), sub("news", 1))
	fast := enter(t, s, "fast", nil, sub("news", 2))

	x.counted = publish(&inbox.Envelope{Topic: "all", QoS: 1})
	x.body = publish(&inbox.Envelope{Topic: "all", QoS: 1})
	x.last = publish(&inbox.Envelope{Topic: "all", QoS: 1})
	x.own = publish(&inbox.Envelope{Topic: "a", QoS: 1})
	publish(&inbox.Envelope{Topic: "jobs", QoS: 1})
	publish(&inbox.Envelope{Topic: "kept", QoS: 1, Retain: true, Payload: []byte{1}})
	named := &inbox.Envelope{Topic: "a", QoS: 1}
	named.UserProperties = append(named.UserProperties, inbox.UserProperty{Key: inbox.PropertyMessageID, Value: "name"})
	publish(named)
	for range 4 {
		x.streamed = append(x.streamed, publish(&inbox.Envelope{Topic: "news", QoS: 1}))
	}
	received := make(chan error, 1)
	a.Publish(t.Context(), 7, &inbox.Envelope{Topic: "nobody", QoS: 2}, func(_ inbox.Receipt, err error) { received <- err })
	if err := <-received; err != nil {
		t.Fatal(err)
	}
	x.top++
	b.finish(t, 1)
	fast.finish(t, 4)
	s.Eventually(t, func() bool { return s.Keys()["c"] == 1 }, func() string { return fmt.Sprintf("keys %v: nothing is counted down", s.Keys()) })
	for _, in := range []*actor{a, b, slow, fast} {
		if err := in.Close(t.Context(), inbox.Ending{Expiry: inbox.ExpiryNever}); err != nil {
			t.Fatal(err)
		}
	}
	incarnations := func(receivers ...inbox.Receiver) (all []incarnation) {
		for _, r := range receivers {
			all = append(all, s.sessions.at(s.sessions.member(r)).incarnation)
		}
		return all
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all := incarnations("a", "b", "slow", "fast", streamReceiver("news"), inbox.GroupReceiver("$share/g/jobs")) // the committer has ended
	x.a, x.b, x.slow, x.fast, x.stream, x.group = all[0], all[1], all[2], all[3], all[4], all[5]
	return x
}

func sub(filter string, qos byte) inbox.Subscription {
	return inbox.Subscription{Filter: filter, QoS: qos}
}

// copied returns a copy of the store's directory.
func (x *everything) copied(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(x.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// damage changes a database past the store.
func damage(t *testing.T, dir string, change func(d *damager)) {
	t.Helper()
	db, lock, err := openDB(everythingOptions(dir))
	if err == nil {
		err = db.Update(func(txn *badger.Txn) error { change(&damager{t, txn}); return nil })
		err = errors.Join(err, db.Close(), lock.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

type damager struct {
	t   *testing.T
	txn *badger.Txn
}

func (d *damager) get(key []byte) []byte {
	d.t.Helper()
	item, err := d.txn.Get(key)
	if err != nil {
		d.t.Fatalf("%q: %v", key, err)
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return value
}

func (d *damager) set(key, value []byte, meta byte) {
	if err := d.txn.SetEntry(badger.NewEntry(key, value).WithMeta(meta)); err != nil {
		d.t.Fatal(err)
	}
}

// drop deletes a record that is there.
func (d *damager) drop(key []byte) {
	d.t.Helper()
	d.get(key)
	if err := d.txn.Delete(key); err != nil {
		d.t.Fatal(err)
	}
}

// cut takes the last byte from a record.
func (d *damager) cut(key []byte) {
	value := d.get(key)
	d.set(key, value[:len(value)-1], 0)
}

func (d *damager) first(prefix []byte) []byte {
	d.t.Helper()
	it := d.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	if it.Rewind(); !it.Valid() {
		d.t.Fatalf("no record %q", prefix)
	}
	return it.Item().KeyCopy(nil)
}

func (d *damager) state(inc incarnation, swept inbox.Position, st inbox.State) {
	d.set(numberKey(prefixState, uint64(inc)), appendProgress(nil, progressRecord{swept: swept, State: st}), 0)
}

func (d *damager) session(r inbox.Receiver, inc incarnation) {
	d.t.Helper()
	value, err := appendRecord(nil, sessionVersion, string(r), uint64(inc), uint64(inbox.ExpiryNever), int64(1))
	if err != nil {
		d.t.Fatal(err)
	}
	d.set(sessionKey(r), value, 0)
}

func (d *damager) subscription(inc incarnation, r subscriptionRecord) {
	d.t.Helper()
	value, err := appendSubscription(nil, r)
	if err != nil {
		d.t.Fatal(err)
	}
	d.set(subscriptionKey(inc, r.Filter), value, 0)
}

// bodyOf returns a body with a count and an empty message of some time.
func bodyOf(references uint64, at time.Time) []byte {
	return inbox.AppendEnvelope(binary.AppendUvarint(nil, references), &inbox.Envelope{Topic: "all", QoS: 1, Time: at.UnixMilli()})
}

// verifyAll returns the faults of a store, as lines.
func verifyAll(t *testing.T, dir string) (Summary, []string) {
	t.Helper()
	var faults []string
	sum, err := Verify(t.Context(), everythingOptions(dir), func(f Fault) { faults = append(faults, f.String()) })
	if err != nil {
		t.Fatal(err)
	}
	if sum.Faults != len(faults) {
		t.Errorf("%d faults counted, %d reported", sum.Faults, len(faults))
	}
	return sum, faults
}

const nobody = 999 // an incarnation below those that are taken

// Each damage is found, and nothing but that.
func TestVerifyFindsFaults(t *testing.T) {
	x := fillEverything(t)
	state := func(d *damager, inc incarnation) inbox.State {
		r, err := readProgress(d.txn, inc)
		if err != nil {
			t.Fatal(err)
		}
		return r.State
	}
	tests := []struct {
		name string
		do   func(d *damager)
		want []string // a part of each fault
	}{
		{"nothing", func(*damager) {}, nil},

		{"body dropped", func(d *damager) { d.drop(numberKey(prefixBody, uint64(x.body))) },
			[]string{fmt.Sprintf("lost: message %d is gone, and 3 entries", x.body)}},
		{"body with a counter dropped", func(d *damager) { d.drop(numberKey(prefixBody, uint64(x.counted))) },
			[]string{fmt.Sprintf("lost: message %d is gone, and 2 entries", x.counted)}},
		{"counter dropped", func(d *damager) { d.drop(numberKey(prefixCount, uint64(x.counted))) },
			[]string{"stays: 2 entries refer to message"}},
		{"counter too low", func(d *damager) { d.set(numberKey(prefixCount, uint64(x.counted)), []byte{1}, 0) },
			[]string{"early: 2 entries refer to message"}},
		{"counter too high", func(d *damager) { d.set(numberKey(prefixCount, uint64(x.counted)), []byte{3}, 0) },
			[]string{"stays: 2 entries refer to message"}},
		{"counter of nothing", func(d *damager) { d.set(numberKey(prefixCount, 1), []byte{1}, 0) },
			[]string{"stays: counter of message 1"}},
		{"first count too low", func(d *damager) { d.set(numberKey(prefixBody, uint64(x.body)), bodyOf(2, time.Now()), 0) },
			[]string{"early: 3 entries refer to message"}},
		{"first count too high", func(d *damager) { d.set(numberKey(prefixBody, uint64(x.body)), bodyOf(4, time.Now()), 0) },
			[]string{"stays: 3 entries refer to message"}},
		{"body that nobody refers to", func(d *damager) { d.set(numberKey(prefixBody, 1), bodyOf(2, time.Now()), 0) },
			[]string{"stays: 0 entries refer to message 1"}},

		{"block dropped", func(d *damager) { d.drop(blockKey(x.a, x.body)) },
			[]string{"stays: 2 entries refer to message"}},
		{"block of nobody", func(d *damager) { d.set(blockKey(nobody, x.own), d.get(blockKey(x.a, x.own)), 0) },
			[]string{"stays: block of incarnation 999"}},
		{"block of another key", func(d *damager) { d.set(blockKey(x.a, x.own+1), d.get(blockKey(x.a, x.own)), 0) },
			[]string{"damaged: read block: it ends at"}},
		{"block not marked", func(d *damager) { d.set(blockKey(x.a, x.body), d.get(blockKey(x.a, x.body)), 0) },
			[]string{"stays: block of session \"a\" is not marked"}},
		{"block behind what is swept", func(d *damager) {
			st := state(d, x.b)
			d.set(blockKey(x.b, x.counted-1), d.block(x.counted-1, nil), 0)
			d.state(x.b, x.counted, st)
		}, []string{"stays: block of session \"b\""}},

		{"subscription of nobody", func(d *damager) {
			d.subscription(nobody, subscriptionRecord{Subscription: sub("all", 1), subscribed: true})
		}, []string{"stays: subscription of incarnation 999"}},
		{"state of nobody", func(d *damager) { d.state(nobody, 0, inbox.State{}) },
			[]string{"stays: delivery state of incarnation 999"}},
		{"packet ids of nobody", func(d *damager) {
			d.set(receivedKey(nobody, 1), nil, 0)
			d.set(receivedKey(nobody, 2), nil, 0)
		}, []string{"stays: packet id of incarnation 999"}},
		{"subscription that says nothing", func(d *damager) {
			d.subscription(x.a, subscriptionRecord{Subscription: sub("b", 1)})
		}, []string{"stays: session \"a\" has a record of \"b\""}},

		{"state ahead of the numbers", func(d *damager) { d.state(x.a, 0, inbox.State{Sent: 1 << 40}) },
			[]string{"lost: delivered position"}},
		{"swept ahead of what was sent", func(d *damager) { d.state(x.fast, x.top, state(d, x.fast)) },
			[]string{"lost: session \"fast\" is swept up to"}},
		{"number ahead", func(d *damager) { d.set(numberKey(prefixBody, 1<<40), bodyOf(2, time.Now()), 0) },
			[]string{"lost: message 1099511627776", "stays: 0 entries"}},
		{"incarnation ahead", func(d *damager) { d.session("new", 1<<40) },
			[]string{"lost: session \"new\" has incarnation"}},
		{"incarnation twice", func(d *damager) { d.session("twin", x.a) },
			[]string{"damaged: session"}},
		{"session noted to be purged", func(d *damager) { d.set(numberKey(prefixPurge, uint64(x.a)), nil, 0) },
			[]string{"lost: what belongs to session \"a\""}},

		{"stream swept too far", func(d *damager) {
			d.drop(blockKey(x.stream, x.streamed[0]))
			d.state(x.stream, x.streamed[0], inbox.State{})
		}, []string{fmt.Sprintf("lost: stream \"news\" is swept up to %d, and session \"slow\"", x.streamed[0])}},
		{"past swept too far", func(d *damager) {
			past := []segment{{since: x.streamed[0] - 1, until: x.streamed[1], sub: sub("news", 1)}}
			d.subscription(x.slow, subscriptionRecord{Subscription: sub("news", 1), past: past})
			d.drop(blockKey(x.stream, x.streamed[0]))
			d.state(x.stream, x.streamed[0], inbox.State{})
		}, []string{"lost: stream \"news\" is swept"}},
		{"stream swept without deleting", func(d *damager) {
			d.state(x.slow, 0, inbox.State{Sent: x.top}) // everybody has finished
			d.state(x.stream, x.streamed[0], inbox.State{})
		}, []string{"stays: block of stream \"news\""}},
		{"member of no stream", func(d *damager) {
			d.subscription(x.a, subscriptionRecord{Subscription: sub("no/stream", 1), subscribed: true, member: true})
		}, []string{"lost: session \"a\" reads stream \"no/stream\""}},
		{"membership that begins ahead", func(d *damager) {
			d.subscription(x.slow, subscriptionRecord{Subscription: sub("news", 1), subscribed: true, member: true, since: 1 << 40})
		}, []string{"lost: beginning 1099511627776"}},
		{"group without its filter", func(d *damager) { d.drop(subscriptionKey(x.group, "jobs")) },
			[]string{"lost: group \"$share/g/jobs\" has members and no subscription"}},
		{"group dropped", func(d *damager) {
			d.subscription(x.a, subscriptionRecord{Subscription: sub("$share/other/jobs", 1), subscribed: true})
		}, []string{"lost: \"$share/other/jobs\" has members and no group"}},

		{"bad session", func(d *damager) { d.cut(sessionKey("b")) }, []string{"damaged: read session"}},
		{"session of another key", func(d *damager) { d.set(sessionKey("z"), d.get(sessionKey("b")), 0); d.drop(sessionKey("b")) },
			[]string{"damaged: session of \"b\""}},
		{"bad subscription", func(d *damager) { d.cut(subscriptionKey(x.a, "a")) }, []string{"damaged: read subscription"}},
		{"subscription of another key", func(d *damager) {
			d.set(subscriptionKey(x.a, "z"), d.get(subscriptionKey(x.a, "a")), 0)
		}, []string{"damaged: subscription to \"a\""}},
		{"bad state", func(d *damager) { d.cut(numberKey(prefixState, uint64(x.b))) }, []string{"damaged: parse state"}},
		{"bad block", func(d *damager) { d.cut(blockKey(x.a, x.own)) }, []string{"damaged: read block"}},
		{"bad block of references", func(d *damager) { d.set(blockKey(x.a, x.body), []byte{blockVersion, 0xff}, metaReferences) },
			[]string{"damaged: read block"}},
		{"bad message in a block", func(d *damager) { d.set(blockKey(x.a, x.own), d.block(x.own, []byte{0xc1}), 0) },
			[]string{"damaged: parse envelope"}},
		{"bad body", func(d *damager) { d.set(numberKey(prefixBody, uint64(x.body)), []byte{3, 0xc1}, 0) },
			[]string{"damaged: parse envelope"}},
		{"bad counter", func(d *damager) { d.set(numberKey(prefixCount, uint64(x.counted)), []byte{0x80}, 0) },
			[]string{"damaged: read counter"}},
		{"bad will", func(d *damager) { d.cut(willKey(x.a)) }, []string{"damaged: "}},
		{"bad packet id", func(d *damager) { d.set(receivedKey(x.a, 7), []byte{1}, 0) }, []string{"damaged: packet id"}},
		{"bad name", func(d *damager) { d.set(d.first([]byte{prefixName}), []byte{1}, 0) }, []string{"damaged: read name"}},
		{"bad retained message", func(d *damager) { d.cut(retainedKey("kept")) }, []string{"damaged: "}},
		{"retained message of another key", func(d *damager) { d.set(retainedKey("z"), d.get(retainedKey("kept")), 0) },
			[]string{"damaged: retained message of \"kept\""}},
		{"bad note to purge", func(d *damager) { d.set([]byte{prefixPurge, 1}, nil, 0) }, []string{"damaged: key of 2 bytes"}},
		{"bad number of the store", func(d *damager) { d.cut(keyStore) }, []string{"damaged: record of 3 bytes"}},
		{"unknown record of the store", func(d *damager) { d.set([]byte("Mother"), nil, 0) }, []string{"damaged: unknown record"}},
		{"unknown kind", func(d *damager) { d.set([]byte("zzz"), nil, 0) }, []string{"damaged: unknown record"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := x.copied(t)
			damage(t, dir, test.do)
			sum, faults := verifyAll(t, dir)
			ok := len(faults) == len(test.want)
			for i := range test.want {
				ok = ok && strings.Contains(faults[i], test.want[i])
			}
			if !ok {
				t.Errorf("faults %q, want %q", faults, test.want)
			}
			if sum.Torn != 0 || sum.Expired != 0 {
				t.Errorf("excused: %+v", sum)
			}
		})
	}
}

// block returns a block with one entry at p; without a record it is a reference.
func (*damager) block(p inbox.Position, record []byte) []byte {
	if record == nil {
		record = inbox.AppendEnvelope(nil, &inbox.Envelope{Topic: "all", QoS: 1})
	}
	var b block
	b.add(p, p, inbox.Grant{QoS: 1}, record)
	return b.buf
}

// What only waits is counted, and is no fault.
func TestVerifyExcuses(t *testing.T) {
	x := fillEverything(t)
	clean, _ := verifyAll(t, x.dir)
	if want := (Summary{
		Sessions: 4, Groups: 1, Streams: 1, Subscriptions: 8, Retained: 1, Bodies: 3, Bytes: clean.Bytes,
		Entries: 3 + 2 + 3 + 2 + 1 + 4,
	}); clean != want || clean.Bytes == 0 {
		t.Fatalf("summary %+v, want %+v", clean, want)
	}
	references := func(at ...inbox.Position) []byte {
		var b block
		for _, p := range at {
			b.add(p, p, inbox.Grant{QoS: 1}, nil)
		}
		return b.buf
	}
	tests := []struct {
		name string
		do   func(d *damager)
		want func(s *Summary)
	}{
		{"finished", func(d *damager) { d.state(x.b, x.counted, inbox.State{Sent: x.body}) },
			func(s *Summary) { s.Waiting = 1 }},
		{"finished but for one", func(d *damager) {
			d.state(x.b, x.counted, inbox.State{Sent: x.last, Open: []inbox.Delivery{{Position: x.body, PacketID: 1}}, LastID: 1})
		}, func(s *Summary) { s.Waiting = 1 }},
		{"finished in a stream", func(d *damager) { d.state(x.slow, 0, inbox.State{Sent: x.streamed[1]}) },
			func(s *Summary) { s.Waiting = 3 + 2 }},
		{"session that has ended", func(d *damager) {
			d.drop(sessionKey("b"))
			d.set(numberKey(prefixPurge, uint64(x.b)), nil, 0)
		}, func(s *Summary) { s.Waiting, s.Sessions, s.Subscriptions = 2, 3, 7 }},
		{"body that was cut off", func(d *damager) { d.drop(numberKey(prefixBody, uint64(x.last))) },
			func(s *Summary) { s.Torn, s.Bodies = 3, 2 }},
		{"body whose time may be over", func(d *damager) {
			d.set(blockKey(x.fast, 2), references(1, 2), metaReferences)
			d.set(blockKey(x.slow, 2), references(1, 2), metaReferences)
			d.set(numberKey(prefixBody, 2), bodyOf(2, time.Now()), 0)
			d.state(x.fast, 0, inbox.State{})
		}, func(s *Summary) { s.Expired, s.Bodies, s.Entries = 2, 4, s.Entries+4 }},
		{"will of nobody", func(d *damager) { d.set(willKey(nobody), d.get(willKey(x.a)), 0) }, func(*Summary) {}},
		{"passed over by No Local", func(d *damager) {
			own := sub("news", 1)
			own.NoLocal = true
			d.subscription(x.slow, subscriptionRecord{Subscription: own, subscribed: true, member: true})
			d.drop(blockKey(x.stream, x.streamed[0]))
			d.state(x.stream, x.streamed[0], inbox.State{})
		}, func(s *Summary) { s.Entries-- }},
		{"given up", func(d *damager) {
			past := []segment{{since: x.streamed[0] - 1, until: x.streamed[1], sub: sub("news", 1)}}
			d.subscription(x.slow, subscriptionRecord{Subscription: sub("news", 1), past: past, left: []leaving{{filter: "news", of: inbox.Spans{{Through: x.streamed[1]}}}}})
			d.drop(blockKey(x.stream, x.streamed[0]))
			d.state(x.stream, x.streamed[0], inbox.State{})
		}, func(s *Summary) { s.Entries-- }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := x.copied(t)
			damage(t, dir, test.do)
			sum, faults := verifyAll(t, dir)
			want := clean
			test.want(&want)
			want.Bytes = sum.Bytes
			if len(faults) > 0 || sum != want {
				t.Errorf("faults %q, summary %+v, want %+v", faults, sum, want)
			}
		})
	}
}

// A store that was closed is not changed by a single byte. One that a crash left
// holds the same afterwards.
func TestVerifyChangesNothing(t *testing.T) {
	x := fillEverything(t)
	before := contents(t, x.dir)
	closed, _ := verifyAll(t, x.dir)
	for name, was := range before {
		if now := contents(t, x.dir); !bytes.Equal(now[name], was) || len(now) != len(before) {
			t.Errorf("%s has changed, or files have come or gone", name)
		}
	}

	s, err := Open(everythingOptions(x.dir))
	if err != nil {
		t.Fatal(err)
	}
	crashed := x.copied(t) // as a process leaves it that is killed
	if _, err := Verify(t.Context(), Options{Dir: x.dir, LockWait: -1}, nil); !errors.Is(err, inbox.ErrInUse) {
		t.Errorf("while it is in use: %v, want ErrInUse", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if sum, faults := verifyAll(t, crashed); len(faults) > 0 || sum != closed {
			t.Errorf("after a crash: faults %q, summary %+v, want %+v", faults, sum, closed)
		}
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files[name], err = os.ReadFile(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Where there is no store, none is made.
func TestVerifyNoStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for range 2 {
		if _, err := Verify(t.Context(), Options{Dir: dir}, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want ErrNotExist", err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}

func TestVerifyCancelled(t *testing.T) {
	x := fillEverything(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, everythingOptions(x.dir), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want Canceled", err)
	}
}
