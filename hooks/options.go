package hooks

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// Options say how inboxes are served. The zero value is a good choice: each
// field that is 0 gets its default.
type Options struct {
	// Window is the most messages of QoS 1 and 2 that one receiver may have been
	// sent and not yet acknowledged, 1 to 65,535; above 16,384 counts as 16,384.
	// By default 512. A receiver's own Receive Maximum lowers it.
	Window int

	// PageMessages and PageBytes bound how much of an inbox is read at a time:
	// at most so many messages (by default 200), and not more payload than this
	// unless one message alone is larger (by default 256 KiB).
	PageMessages int
	PageBytes    int

	// OutBytes bounds what waits in memory to be written to one connection,
	// at least 4 KiB; by default 256 KiB. One packet may exceed it, and as much
	// again may be on its way to the network.
	OutBytes int

	// WriteTimeout ends a connection whose peer takes less than 64 KiB in this
	// time while there is more to write; by default 30 s.
	WriteTimeout time.Duration

	// ConnectTimeout ends a connection that has not sent a whole CONNECT packet
	// in this time; by default 10 s.
	ConnectTimeout time.Duration

	// SessionExpiryV3 is how long the session of a client older than MQTT 5
	// outlives its connection if it connects without Clean Session. Such a
	// client cannot say it itself; by default 7 days.
	SessionExpiryV3 inbox.Expiry

	// KeepQoS0 keeps messages of QoS 0 for receivers who are away and whose
	// subscription has QoS 1 or 2. They all go through the store then, which must
	// have been opened to do so.
	KeepQoS0 bool

	// Metadata has MQTT 5 receivers told the id, the time and the sender of each
	// message that comes from the store, as user properties, unless they decline
	// it in CONNECT. Without it those are told that ask for it.
	Metadata bool

	// ModeOf returns how a user's inboxes are served unless the client says it in
	// CONNECT; [inbox.ModeKept] leaves it as the session has it. It is called on the
	// goroutines of connections. Nil leaves it to the clients.
	ModeOf func(user string) inbox.Mode

	// MaxKeepAlive is the longest keep alive of an MQTT 5 client, in seconds. One
	// that wants a longer one, or none, is told to keep to this; 0, the default,
	// leaves it to the clients. Older clients cannot be told.
	MaxKeepAlive uint16

	// MayPublish reports whether a client may publish to a topic. It is asked
	// for wills alone, when the client connects: other messages have passed the
	// server's own access rules. Nil allows every will.
	MayPublish func(cl *mqtt.Client, topic string) bool

	// Pull answers what clients ask their inboxes, [Hook.Service]. By default a
	// service that lets everyone read everything in history, if the store keeps one:
	// give one with rules if not everyone may.
	Pull *pull.Service

	// Log takes what an operator should know; by default slog.Default().
	Log *slog.Logger
}

// complete returns the options with defaults in place, or what is wrong with
// them.
func (o Options) complete() (Options, error) {
	setDefault(&o.Window, 512)
	setDefault(&o.PageMessages, 200)
	setDefault(&o.PageBytes, 256<<10)
	setDefault(&o.OutBytes, 256<<10)
	setDefault(&o.WriteTimeout, 30*time.Second)
	setDefault(&o.ConnectTimeout, 10*time.Second)
	setDefault(&o.SessionExpiryV3, 7*24*60*60)
	if o.Log == nil {
		o.Log = slog.Default()
	}

	return o, errors.Join(
		within("Window", o.Window, 1, inbox.MaxWindow),
		within("PageMessages", o.PageMessages, 1, 1<<20),
		within("PageBytes", o.PageBytes, 1, 1<<30),
		within("OutBytes", o.OutBytes, 4<<10, 1<<30),
		within("WriteTimeout", o.WriteTimeout, time.Millisecond, 24*time.Hour),
		within("ConnectTimeout", o.ConnectTimeout, time.Millisecond, 24*time.Hour),
	)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func within[T int | time.Duration](name string, value, low, high T) error {
	if value < low || value > high {
		return fmt.Errorf("option %s is %v, must be from %v to %v", name, value, low, high)
	}
	return nil
}
