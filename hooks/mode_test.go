package hooks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// witness is a store that notes what sessions are opened and subscribed with, and
// can say another mode than they have.
type witness struct {
	inbox.Store
	mode inbox.Mode
	err  error // of Open

	mu     sync.Mutex // guards what follows
	opened []inbox.OpenOptions
	subs   []inbox.Subscription
}

func (w *witness) wrap(s inbox.Store) inbox.Store {
	w.Store = s
	return w
}

func (w *witness) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	w.mu.Lock()
	w.opened = append(w.opened, o)
	w.mu.Unlock()
	if w.err != nil {
		return nil, false, fmt.Errorf("open: %w", w.err)
	}
	o.Mode, o.From = inbox.ModeKept, nil
	in, resumed, err := w.Store.Open(ctx, r, o)
	return &witnessed{in, w}, resumed, err
}

// last returns how the last session was opened, and the subscriptions since then.
func (w *witness) last() (inbox.OpenOptions, []inbox.Subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	subs := w.subs
	w.subs = nil
	return w.opened[len(w.opened)-1], subs
}

type witnessed struct {
	inbox.Inbox
	store *witness
}

func (in *witnessed) Mode() inbox.Mode { return in.store.mode }

func (in *witnessed) Subscribe(ctx context.Context, subs ...inbox.Subscription) ([]bool, error) {
	in.store.mu.Lock()
	in.store.subs = append(in.store.subs, subs...)
	in.store.mu.Unlock()
	for i := range subs {
		subs[i].Last = 0
	}
	return in.Inbox.Subscribe(ctx, subs...)
}

// saying adds a user property to CONNECT.
func saying(o mqtttest.Options, key, value string) mqtttest.Options {
	o.UserProperties = append(slices.Clip(o.UserProperties), packets.UserProperty{Key: key, Val: value})
	return o
}

// told returns the value of a user property, "" without one.
func told(p packets.Properties, key string) string {
	for _, u := range p.User {
		if u.Key == key {
			return u.Val
		}
	}
	return ""
}

// CONNECT says how the inbox is served and from where, or else the operator does
// for the user; CONNACK says the mode to who asks.
func TestConnectSaysHowTheInboxIsServed(t *testing.T) {
	id := inbox.MessageID{Sequence: 0x1234, Store: 0xabcdef01}
	user := func(name string) mqtttest.Options {
		o := v5("client")
		o.Username = name
		return o
	}
	old := v3("client")
	old.Username = "pulling"
	for _, c := range []struct {
		name   string
		client mqtttest.Options
		mode   inbox.Mode
		from   *inbox.Bound
		told   string
	}{
		{"nothing", v5("client"), inbox.ModeKept, nil, ""},
		{"pull", saying(v5("client"), "inbox-mode", "pull"), inbox.ModePull, nil, "pull"},
		{"push", saying(v5("client"), "inbox-mode", "push"), inbox.ModePush, nil, "pull"},
		{"the last counts", saying(saying(v5("client"), "inbox-mode", "pull"), "inbox-mode", "push"), inbox.ModePush, nil, "pull"},
		{"who asks for metadata", saying(v5("client"), "inbox-metadata", "on"), inbox.ModeKept, nil, "pull"},
		{"who declines it", saying(v5("client"), "inbox-metadata", "off"), inbox.ModeKept, nil, ""},
		{"the operator's", user("pulling"), inbox.ModePull, nil, ""},
		{"the client's against it", saying(user("pulling"), "inbox-mode", "push"), inbox.ModePush, nil, "pull"},
		{"the operator's for an old client", old, inbox.ModePull, nil, ""},
		{"of another user", user("ann"), inbox.ModeKept, nil, ""},
		{"from an id", saying(v5("client"), "inbox-from", id.String()), inbox.ModeKept, &inbox.Bound{ID: id}, ""},
		{"from the beginning", saying(v5("client"), "inbox-from", "0"), inbox.ModeKept, &inbox.Bound{}, ""},
		{"from a time", saying(v5("client"), "inbox-from", "2026-01-02T03:04:05.678Z"), inbox.ModeKept, &inbox.Bound{Time: 1767323045678}, ""},
		{"from a time elsewhere", saying(v5("client"), "inbox-from", "2026-01-02T04:04:05+01:00"), inbox.ModeKept, &inbox.Bound{Time: 1767323045000}, ""},
		{"from before there was time", saying(v5("client"), "inbox-from", "1901-01-01T00:00:00Z"), inbox.ModeKept, &inbox.Bound{}, ""},
		{"properties of others", saying(v5("client"), "mode", "no"), inbox.ModeKept, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &witness{mode: inbox.ModePull}
			b := start(t, setting{Wrap: store.wrap, Options: hooks.Options{ModeOf: func(user string) inbox.Mode {
				if user == "pulling" {
					return inbox.ModePull
				}
				return inbox.ModeKept
			}}})
			client := b.dial(c.client)
			o, _ := store.last()
			if o.Mode != c.mode {
				t.Errorf("opened in mode %d, want %d", o.Mode, c.mode)
			}
			if (o.From == nil) != (c.from == nil) || o.From != nil && *o.From != *c.from {
				t.Errorf("opened from %+v, want %+v", o.From, c.from)
			}
			if mode := told(client.Properties, "inbox-mode"); mode != c.told {
				t.Errorf("CONNACK says mode %q, want %q", mode, c.told)
			}
		})
	}
}

// What cannot be meant is refused, with words for it.
func TestConnectRefusesWhatCannotBeMeant(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"inbox-mode", "", "inbox-mode must be push or pull"},
		{"inbox-mode", "Pull", "inbox-mode must be push or pull"},
		{"inbox-mode", "off", "inbox-mode must be push or pull"},
		{"inbox-metadata", "yes", "inbox-metadata must be on or off"},
		{"inbox-metadata", "", "inbox-metadata must be on or off"},
		{"inbox-watch", "yes", "inbox-watch must be on or off"},
		{"inbox-watch", "", "inbox-watch must be on or off"},
		{"inbox-from", "", "inbox-from must be"},
		{"inbox-from", "1", "inbox-from must be"},
		{"inbox-from", "yesterday", "inbox-from must be"},
		{"inbox-from", "2026-01-02", "inbox-from must be"},
		{"inbox-from", strings.Repeat("0", 65535), "inbox-from must be"},
	} {
		store := &witness{}
		b := start(t, setting{Wrap: store.wrap})
		connack := mqtttest.Refused(t, b.addr, saying(v5("client"), c.key, c.value))
		if connack.ReasonCode != packets.ErrImplementationSpecificError.Code || !strings.Contains(connack.Properties.ReasonString, c.want) {
			t.Errorf("%s: %.40q is refused with %#x %q", c.key, c.value, connack.ReasonCode, connack.Properties.ReasonString)
		}
		if len(store.opened) > 0 {
			t.Errorf("%s: %.40q opens a session", c.key, c.value)
		}
		client := b.dial(v5("client")) // which is not held up by it
		client.Ping()
	}
}

// A message that the store does not know is no place to start from.
func TestConnectRefusesAnUnknownID(t *testing.T) {
	store := &witness{err: inbox.ErrUnknownID}
	b := start(t, setting{Wrap: store.wrap})
	connack := mqtttest.Refused(t, b.addr, saying(v5("client"), "inbox-from", inbox.MessageID{Sequence: 7}.String()))
	if connack.ReasonCode != packets.ErrImplementationSpecificError.Code || connack.Properties.ReasonString != "inbox-from: there is no such message" {
		t.Errorf("refused with %#x %q", connack.ReasonCode, connack.Properties.ReasonString)
	}
}

// CONNACK says less to who takes no larger packet.
func TestSmallConnackSaysNoMode(t *testing.T) {
	b := start(t, setting{Wrap: (&witness{}).wrap})
	o := saying(v5("client"), "inbox-mode", "pull")
	o.MaxPacketSize = 60
	if mode := told(b.dial(o).Properties, "inbox-mode"); mode != "" {
		t.Errorf("CONNACK says mode %q", mode)
	}
}

// SUBSCRIBE asks for the last of history for each of its filters that can have it.
func TestSubscribeAsksForTheLast(t *testing.T) {
	store := &witness{}
	b := start(t, setting{Wrap: store.wrap})
	client := b.dial(v5("client"))
	subscribe := func(value string) packets.Packet {
		t.Helper()
		id := client.NextID()
		pk := packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: id,
			Filters: packets.Subscriptions{{Filter: "a", Qos: 1}, {Filter: "b/#", Qos: 2}, {Filter: "$share/g/c", Qos: 1}},
		}
		pk.Properties.User = []packets.UserProperty{{Key: "inbox-last", Val: value}}
		client.Send(pk)
		return client.NextOf(packets.Suback)
	}
	for value, want := range map[string]int{"0": 0, "20": 20, "1000": 1000} {
		if suback := subscribe(value); !slices.Equal(suback.ReasonCodes, []byte{1, 2, 1}) {
			t.Errorf("last %s: SUBACK %#x", value, suback.ReasonCodes)
		}
		_, subs := store.last()
		for _, sub := range subs {
			if shared := strings.HasPrefix(sub.Filter, inbox.SharePrefix); shared && sub.Last != 0 || !shared && sub.Last != want {
				t.Errorf("last %s: subscribed to %s with the last %d", value, sub.Filter, sub.Last)
			}
		}
	}
	code := packets.ErrImplementationSpecificError.Code
	for _, value := range []string{"", "-1", "1001", "all", "1e2", "99999999999999999999"} {
		suback := subscribe(value)
		if !slices.Equal(suback.ReasonCodes, []byte{code, code, code}) || suback.Properties.ReasonString != "inbox-last must be a number from 0 to 1000" {
			t.Errorf("last %q: SUBACK %#x %q", value, suback.ReasonCodes, suback.Properties.ReasonString)
		}
		if _, subs := store.last(); len(subs) > 0 {
			t.Errorf("last %q: subscribed to %v", value, subs)
		}
	}
	if codes := client.SubscribeAll(packets.Subscription{Filter: "d", Qos: 1}); codes[0] != 1 {
		t.Errorf("without it then: SUBACK %#x", codes)
	}
}

// What the store has lost, and what expires on its way, is told with the next
// message to those who are told about messages.
func TestGapsAreTold(t *testing.T) {
	store := &losing{}
	b := start(t, setting{Wrap: store.wrap})
	publisher := b.dial(v5("publisher"))
	for _, receiver := range []mqtttest.Options{asking(v5("told"), "on"), v5("untold")} {
		b.subscribed(receiver, "a", 1)
	}
	small := asking(v5("small"), "on")
	small.MaxPacketSize = 400
	b.subscribed(small, "a", 1)
	publisher.PublishAndWait("a", "over", 1)
	publisher.PublishAndWait("a", strings.Repeat("x", 1000), 1)
	publisher.PublishAndWait("a", strings.Repeat("y", 350), 1) // with metadata too large for one
	publisher.PublishAndWait("a", "first", 1)
	publisher.PublishAndWait("a", "second", 1)

	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	store.lose = map[string]*inbox.Gap{
		strings.Repeat("x", 1000): {From: from.UnixMilli(), To: from.Add(time.Second).UnixMilli(), Messages: 3, Reason: inbox.GapLimit},
		"first":                   {From: from.Add(-time.Minute).UnixMilli(), To: from.UnixMilli(), Messages: 2, Reason: inbox.GapLimit},
	}
	gaps := func(pk packets.Packet) (all []string) {
		for _, u := range pk.Properties.User {
			if u.Key == "inbox-gap" {
				all = append(all, u.Val)
			}
		}
		return all
	}
	const limit3 = "3 limit 2026-01-02T03:04:05.000Z 2026-01-02T03:04:06.000Z"
	const limit2 = "2 limit 2026-01-02T03:03:05.000Z 2026-01-02T03:04:05.000Z"
	const limit5 = "5 limit 2026-01-02T03:03:05.000Z 2026-01-02T03:04:06.000Z"

	messages := b.dial(asking(v5("told"), "on")).Collect(4)
	if got := gaps(messages[0]); len(got) != 2 || !strings.HasPrefix(got[0], "1 expired ") || got[1] != limit3 {
		t.Errorf("told of %q before the large message", got)
	}
	if got := gaps(messages[1]); got != nil {
		t.Errorf("told of %q before the message of 350 bytes", got)
	}
	if got := gaps(messages[2]); !slices.Equal(got, []string{limit2}) {
		t.Errorf("told of %q before the first small one", got)
	}
	if got := gaps(messages[3]); got != nil {
		t.Errorf("told of %q before the second small one", got)
	}
	for _, pk := range b.dial(v5("untold")).Collect(4) {
		if got := gaps(pk); got != nil {
			t.Errorf("told of %q without having asked", got)
		}
	}
	messages = b.dial(small).Collect(3)
	if got := gaps(messages[0]); got != nil {
		t.Errorf("told of %q where there is no room", got)
	}
	got := gaps(messages[1])
	if len(got) != 3 || !strings.HasPrefix(got[0], "1 expired ") || got[1] != limit5 || !strings.HasPrefix(got[2], "1 oversize ") {
		t.Errorf("told of %q behind a message that is too large", got)
	}
}

// losing is a store that says of messages that something is lost before them.
type losing struct {
	inbox.Store
	lose map[string]*inbox.Gap // by payload
}

func (s *losing) wrap(store inbox.Store) inbox.Store {
	s.Store = store
	return s
}

func (s *losing) Open(ctx context.Context, r inbox.Receiver, o inbox.OpenOptions) (inbox.Inbox, bool, error) {
	in, resumed, err := s.Store.Open(ctx, r, o)
	return &losingInbox{in, s}, resumed, err
}

type losingInbox struct {
	inbox.Inbox
	store *losing
}

func (in *losingInbox) Next(ctx context.Context, max, maxBytes int) ([]inbox.Entry, error) {
	entries, err := in.Inbox.Next(ctx, max, maxBytes)
	for i, e := range entries {
		entries[i].Lost = in.store.lose[string(e.Envelope.Payload)]
		if string(e.Envelope.Payload) == "over" {
			expired := *e.Envelope
			expired.Expiry = expired.Time
			entries[i].Envelope = &expired
		}
	}
	return entries, err
}
