package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// defaults are shown in the help, so that they are written down once.
var defaults = map[string]string{
	"address":         broker.DefaultAddress,
	"max_packet_size": fmt.Sprint(broker.DefaultMaxPacketSize),
	"window":          fmt.Sprint(broker.DefaultWindow),
	"session_expiry":  (broker.DefaultSessionExpiry * time.Second).String(),
	"retention":       broker.DefaultRetention.String(),
	"keep":            fmt.Sprintf("%dd", broker.DefaultKeep/day),
	"connect_timeout": broker.DefaultConnectTimeout.String(),
	"stop_timeout":    broker.DefaultStopTimeout.String(),
}

type serveCommand struct {
	Listen []string `group:"Listening" sep:"none" placeholder:"HOST:PORT" help:"TCP address to listen on; may be repeated (default: ${address}, if there is no --ws and no --unix)."`
	WS     []string `group:"Listening" name:"ws" sep:"none" placeholder:"HOST:PORT" help:"Address to listen on for MQTT over WebSocket; may be repeated."`
	HTTP   []string `group:"Listening" name:"http" sep:"none" placeholder:"HOST:PORT" help:"Address to answer HTTP requests on: inboxes, history, publishing; GET / there tells how; may be repeated."`
	Origin []string `group:"Listening" sep:"none" placeholder:"URL" help:"Web site whose pages may use --ws and --http, as in https://example.org, or * for all; may be repeated."`
	Unix   []string `group:"Listening" sep:"none" placeholder:"PATH" help:"Unix socket to listen on; may be repeated."`

	AllowAnonymous bool `group:"Listening" help:"Let everyone in on any address. Without it, only addresses of this machine can be listened on."`

	Metadata bool `group:"Telling" help:"Tell MQTT 5 receivers the id, time and sender of each message, as user properties, unless they decline it by the user property inbox-metadata: off in CONNECT. Without this, those are told that ask for it by inbox-metadata: on."`

	PullUser []string `group:"Telling" sep:"none" placeholder:"NAME" help:"User whose inboxes wait until they are asked for, and are not delivered when the client comes back, unless it says so by the user property inbox-mode: push in CONNECT; may be repeated. What comes while it is connected is delivered."`

	Data string `group:"Storing" default:"data" placeholder:"DIR" help:"Directory of everything that is stored; created if missing (default: ${default})."`

	Retention time.Duration `group:"Storing" default:"${retention}" placeholder:"TIME" help:"How long a message that nobody has read is kept if it does not expire earlier; 0s for ever (default: ${default})."`
	KeepQoS0  bool          `group:"Storing" name:"keep-qos0" help:"Keep messages of QoS 0, too, for receivers who are away, if their subscription has QoS 1 or 2."`

	History []kept        `group:"Storing" sep:"none" placeholder:"FILTER[=TIME[,BYTES]]" help:"Filter whose messages are kept for all who may read them, whoever has read them, as in chat/#=180d,10GiB: for how long, 0s for ever (default: ${keep}), and the most that is kept, of which the oldest go first (default: no limit); may be repeated."`
	Rewind  time.Duration `group:"Storing" placeholder:"TIME" help:"How long after it was stored a message can be had again by a receiver that has lost its memory and starts again, though it was acknowledged, as in 7d (default: not at all)."`

	GroupStreamFrom int      `group:"Storing" default:"0" placeholder:"N" help:"Sessions that must be subscribed to one filter for its messages to be stored once for all of them, and not as a reference for each; 0 for the measured default, 32, and --group-stream-from=-1 for never."`
	GroupPush       []string `group:"Storing" sep:"none" placeholder:"FILTER" help:"Filter, or pattern of filters, whose messages are stored as references however many sessions there are; has precedence over --group-pull; may be repeated."`
	GroupPull       []string `group:"Storing" sep:"none" placeholder:"FILTER" help:"Filter, or pattern of filters, whose messages are stored once however few sessions there are; may be repeated."`

	Window           int           `group:"Limits" default:"${window}" placeholder:"N" help:"Messages that a receiver may have and not have acknowledged, 1 to 65535; above 16384 counts as 16384 (default: ${default})."`
	MaxPacketSize    int           `group:"Limits" default:"${max_packet_size}" placeholder:"BYTES" help:"Largest packet that a client may send (default: ${default})."`
	SessionExpiry    time.Duration `group:"Limits" default:"${session_expiry}" placeholder:"TIME" help:"How long the session and the inbox of an MQTT 3.1.1 client are kept after it has gone, in whole seconds; an MQTT 5 client says it itself (default: ${default})."`
	MaxSessionExpiry time.Duration `group:"Limits" placeholder:"TIME" help:"The most that an MQTT 5 client can ask for of that, in whole seconds (default: no limit)."`
	MaxKeepAlive     time.Duration `group:"Limits" placeholder:"TIME" help:"Longest keep alive of an MQTT 5 client, in whole seconds (default: as it asks for)."`
	ConnectTimeout   time.Duration `group:"Limits" default:"${connect_timeout}" placeholder:"TIME" help:"Longest time from a connection to its CONNECT packet (default: ${default})."`
	StopTimeout      time.Duration `group:"Limits" default:"${stop_timeout}" placeholder:"TIME" help:"Longest time that stopping may take (default: ${default})."`

	LogLevel  slog.Level `group:"Logging" default:"info" placeholder:"LEVEL" help:"debug, info, warn or error (default: ${default})."`
	LogFormat string     `group:"Logging" default:"text" enum:"text,json" placeholder:"FORMAT" help:"text or json (default: ${default})."`
}

// collectAt lets garbage grow to half of what is in use before it is collected,
// rather than to as much: the broker's memory is mostly a few large buffers, and
// collecting costs little. GOGC in the environment has precedence.
const collectAt = 50

// Help explains what the help of the flags has in common.
func (c *serveCommand) Help() string {
	return "TIME is a number with its unit, or several: 90s, 15m, 168h, 7d, 1h30m. BYTES is a number, with a unit or without: 1000000, 500MB, 10GiB."
}

// Run serves until the process is told to stop.
func (c *serveCommand) Run(env *environment) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if err := c.check(); err != nil {
		return usageError{err}
	}
	options := c.options(env)
	if err := options.Validate(); err != nil {
		return usageError{err}
	}
	b, err := broker.New(options)
	if err != nil {
		return err
	}
	options.Log.Info("starting", "version", broker.Version(), "data", dataPath(c.Data))
	return b.Serve(env.ctx)
}

// check refuses values that would mean something else in [broker.Options], where
// 0 is the default and time without end is negative.
func (c *serveCommand) check() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	const longest = math.MaxUint32 * time.Second
	refuse(c.Retention < broker.MinRetention && c.Retention != 0, "retention %v: choose %v or more, or 0s for ever", c.Retention, broker.MinRetention)
	refuse(c.Window == 0, "window 0: choose 1 to %d", inbox.MaxWindow)
	refuse(c.MaxPacketSize == 0, "packet size 0: choose %d to %d", broker.MinPacketSize, broker.MaxPacketSize)
	refuse(c.SessionExpiry < time.Second || c.SessionExpiry > longest || c.SessionExpiry%time.Second != 0,
		"session expiry %v: choose whole seconds from 1s to %v", c.SessionExpiry, longest)
	refuse(c.MaxSessionExpiry < 0 || c.MaxSessionExpiry > longest || c.MaxSessionExpiry%time.Second != 0,
		"max session expiry %v: choose whole seconds up to %v", c.MaxSessionExpiry, longest)
	refuse(c.ConnectTimeout == 0, "connect timeout 0s: choose %v to %v", broker.MinConnectTimeout, broker.MaxConnectTimeout)
	refuse(c.StopTimeout == 0, "stop timeout 0s: choose %v or more", broker.MinStopTimeout)
	return errors.Join(errs...)
}

// dataPath is the data directory as it is found from anywhere: a start in the
// wrong directory would seem to have lost everything.
func dataPath(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

func (c *serveCommand) options(env *environment) broker.Options {
	handler := slog.Handler(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	if c.LogFormat == "json" {
		handler = slog.NewJSONHandler(env.stderr, &slog.HandlerOptions{Level: c.LogLevel})
	}
	retention := c.Retention
	if retention == 0 {
		retention = -1 // 0 is the default there
	}
	history := make([]inbox.Kept, len(c.History))
	for i, k := range c.History {
		history[i] = inbox.Kept(k)
	}
	return broker.Options{
		TCP:              c.Listen,
		WebSocket:        c.WS,
		HTTP:             c.HTTP,
		Origins:          c.Origin,
		Unix:             c.Unix,
		AllowAnonymous:   c.AllowAnonymous,
		Dir:              c.Data,
		Window:           c.Window,
		MaxPacketSize:    c.MaxPacketSize,
		SessionExpiry:    inbox.Expiry(c.SessionExpiry / time.Second),
		MaxSessionExpiry: inbox.Expiry(c.MaxSessionExpiry / time.Second),
		MaxKeepAlive:     c.MaxKeepAlive,
		Retention:        retention,
		KeepQoS0:         c.KeepQoS0,
		Metadata:         c.Metadata,
		PullUsers:        c.PullUser,
		History:          history,
		Rewind:           c.Rewind,
		StreamFrom:       c.GroupStreamFrom,
		Push:             c.GroupPush,
		Pull:             c.GroupPull,
		ConnectTimeout:   c.ConnectTimeout,
		StopTimeout:      c.StopTimeout,
		Log:              slog.New(handler),
	}
}
