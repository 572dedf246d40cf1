package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Defaults of [Options].
const (
	DefaultAddress        = "127.0.0.1:1883"
	DefaultMaxPacketSize  = MaxPacketSize
	DefaultWindow         = 512
	DefaultSessionExpiry  = 7 * 24 * 60 * 60
	DefaultRetention      = 7 * 24 * time.Hour
	DefaultKeep           = 180 * 24 * time.Hour // what the command takes for History where nothing is said
	DefaultConnectTimeout = 10 * time.Second
	DefaultStopTimeout    = 10 * time.Second
)

// Bounds of [Options]. The store takes records up to 1 MiB less 1 KiB. Beside
// what is in the packet a record has the publisher's client id and user name,
// 64 KiB each at most, and its own fields: so every packet up to the upper bound,
// 880 KiB, can be stored.
const (
	MinPacketSize = 128
	MaxPacketSize = 1<<20 - 2*64<<10 - 16<<10

	MinRetention      = time.Second
	MinRewind         = time.Second
	MinKeep           = time.Second
	MinConnectTimeout = time.Millisecond
	MaxConnectTimeout = 24 * time.Hour
	MinStopTimeout    = time.Millisecond
)

// Options say what a broker listens on, where it stores and whom it lets in.
// The zero value of a field means its default.
type Options struct {
	// TCP, WebSocket and Unix are what to listen on: "host:port" (port 0 for
	// any free one), the same, and paths of sockets. If all three are empty,
	// the broker listens on DefaultAddress.
	TCP       []string
	WebSocket []string
	Unix      []string

	// HTTP is where the broker answers requests over HTTP, "host:port". What it
	// answers, and to whom, stands in docs/protocol.md. Empty for nowhere.
	HTTP []string

	// Origins are the web sites whose pages may use the WebSocket and HTTP
	// listeners, as "https://example.org", or "*" for every page of every site. A
	// page from the listener's own address and clients outside browsers always may.
	// They are refused where there is neither listener.
	Origins []string

	// Dir is the data directory. It is created if it does not exist, and used
	// by one broker at a time.
	Dir string

	// Store is used instead of one in Dir. The broker closes it.
	Store inbox.Store

	// Retention is how long a message that nobody has read is kept if it does
	// not expire earlier, 1 s or more. Negative for ever.
	Retention time.Duration

	// KeepQoS0 keeps messages of QoS 0 for receivers who are away and whose
	// subscription has QoS 1 or 2. A Store of the caller's must be opened for it.
	KeepQoS0 bool

	// History names the filters whose messages are kept for a time, whoever has
	// read them: those of QoS 1 and 2, and with KeepQoS0 all. Each filter is named
	// once; Keep is 1 s or more, or 0 for ever. Filters of shared subscriptions, and
	// others that begin with $, are refused. What is kept of a filter that is named no
	// more is deleted. A Store of the caller's must be opened for it.
	History []inbox.Kept

	// Rewind is how long after it was stored a message can be had again by a receiver
	// that has lost its memory and starts again, though it was acknowledged, 1 s or
	// more, and no longer than Retention. 0 for not at all. A Store of the caller's must
	// be opened for it.
	Rewind time.Duration

	// StreamFrom is how many sessions that outlive their connections must be
	// subscribed to one filter for its messages to be stored once for all of them,
	// rather than as a reference for each. 0 means 32; -1 means never. A Store of
	// the caller's has its own.
	StreamFrom int

	// Push and Pull name filters, or patterns that match filters as if they were
	// topics, for which it is not the number of sessions that decides: those of
	// Push have references always, those of Pull are stored once from the first
	// session on. Push has precedence. Filters of shared subscriptions, whose
	// messages are stored once in any case, are refused.
	Push, Pull []string

	// Metadata has MQTT 5 receivers told the id, the time and the sender of each
	// message, as the user properties inbox-id, inbox-time and inbox-sender,
	// unless they decline it by the user property inbox-metadata: off in CONNECT.
	// Without it those are told that ask for it by inbox-metadata: on.
	Metadata bool

	// PullUsers are users whose inboxes are in pull mode: what was stored while such a
	// client was away waits until it asks for it, see docs/protocol.md. A client says
	// otherwise by the user property inbox-mode: push in CONNECT.
	PullUsers []string

	// Access decides who may connect and use which topics. Nil lets everyone
	// do everything; the broker then listens on loopback addresses and unix
	// sockets only, unless AllowAnonymous is set.
	Access         Access
	AllowAnonymous bool

	// Window is how many QoS 1 and 2 messages a receiver may have that it has
	// not acknowledged, 1 to 65,535; above 16,384 counts as 16,384. A client's own
	// Receive Maximum lowers it.
	Window int

	// MaxPacketSize is the largest packet that a client may send, in bytes,
	// 128 to 901,120 (880 KiB).
	MaxPacketSize int

	// SessionExpiry is how long the session of an MQTT 3.1.1 client that asks
	// for one is kept after its connection has ended. An MQTT 5 client says it
	// itself.
	SessionExpiry inbox.Expiry

	// MaxSessionExpiry is the most that an MQTT 5 client may ask for, and gets if
	// it asks for more. 0 sets no limit.
	MaxSessionExpiry inbox.Expiry

	// MaxKeepAlive is the longest keep alive of an MQTT 5 client, in whole
	// seconds up to 65,535. One that wants a longer one, or none, is told to keep
	// to this. 0 leaves it to the clients.
	MaxKeepAlive time.Duration

	// ConnectTimeout is how long a new connection may take until its CONNECT
	// packet has arrived, 1 ms to 24 hours.
	ConnectTimeout time.Duration

	// StopTimeout bounds [Broker.Close], 1 ms or more.
	StopTimeout time.Duration

	// Log gets what the broker does, never what messages contain. Nil for
	// slog.Default().
	Log *slog.Logger
}

// withDefaults returns o with every zero field that has a default set to it.
func (o Options) withDefaults() Options {
	if len(o.TCP)+len(o.WebSocket)+len(o.Unix) == 0 {
		o.TCP = []string{DefaultAddress}
	}
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	if o.MaxPacketSize == 0 {
		o.MaxPacketSize = DefaultMaxPacketSize
	}
	if o.SessionExpiry == 0 {
		o.SessionExpiry = DefaultSessionExpiry
	}
	if o.MaxSessionExpiry == 0 {
		o.MaxSessionExpiry = inbox.ExpiryNever
	}
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = DefaultConnectTimeout
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = DefaultStopTimeout
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Validate reports everything that is wrong with the options, each with what
// to do about it. It opens nothing.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	for _, address := range o.TCP {
		errs = append(errs, o.validateAddress(address))
	}
	for _, address := range o.WebSocket {
		errs = append(errs, o.validateAddress(address))
	}
	for _, address := range o.HTTP {
		errs = append(errs, o.validateAddress(address))
	}
	for _, path := range o.Unix {
		if path == "" {
			errs = append(errs, errors.New("unix socket: the path is empty; name a file"))
		}
	}
	if len(o.Origins) > 0 && len(o.WebSocket)+len(o.HTTP) == 0 {
		errs = append(errs, fmt.Errorf("origin %q: nothing listens for WebSocket or HTTP, which alone have origins; add an address with --ws or --http, or leave the origin out", o.Origins[0]))
	}
	if o.Store == nil && o.Dir == "" {
		errs = append(errs, errors.New("data directory: none given; name one"))
	}
	errs = append(errs, o.validateStoring(), o.validateLimits())
	return errors.Join(errs...)
}

// validateStoring checks how messages are kept.
func (o Options) validateStoring() error {
	var errs []error
	if o.Retention > 0 && o.Retention < MinRetention {
		errs = append(errs, fmt.Errorf("retention %v: choose %v or more, or less than 0 for ever", o.Retention, MinRetention))
	}
	if slices.Contains(o.PullUsers, "") {
		errs = append(errs, errors.New("pull user: the name is empty; name a user"))
	}
	if o.Rewind != 0 && o.Rewind < MinRewind {
		errs = append(errs, fmt.Errorf("rewind %v: choose %v or more, or 0s for none", o.Rewind, MinRewind))
	}
	if o.Retention > 0 && o.Rewind > o.Retention {
		errs = append(errs, fmt.Errorf("rewind %v: nothing waits in an inbox for longer than the retention, %v; choose no more than that, or a longer retention", o.Rewind, o.Retention))
	}
	errs = append(errs, validateHistory(o.History))
	if o.StreamFrom < -1 {
		errs = append(errs, fmt.Errorf("group stream from %d: choose 1 or more sessions, 0 for the default, or -1 for never", o.StreamFrom))
	}
	for _, pattern := range o.Push {
		errs = append(errs, validatePattern("group push", pattern))
	}
	for _, pattern := range o.Pull {
		errs = append(errs, validatePattern("group pull", pattern))
	}
	return errors.Join(errs...)
}

// validateHistory checks each filter that is kept, and that none is named twice.
func validateHistory(history []inbox.Kept) error {
	var errs []error
	named := make(map[string]bool, len(history))
	for _, k := range history {
		switch {
		case strings.HasPrefix(k.Filter, "$"):
			errs = append(errs, fmt.Errorf("history %q: what begins with $ is the server's own or shared, and not kept; name other filters", k.Filter))
		case !inbox.ValidFilter(k.Filter):
			errs = append(errs, fmt.Errorf("history %q: this is no topic filter; choose one in which + and # are whole levels, and # is the last, as in a/+/b or a/#", k.Filter))
		case named[k.Filter]:
			errs = append(errs, fmt.Errorf("history %q: this filter is named twice; name it once", k.Filter))
		}
		named[k.Filter] = true
		if k.Keep != 0 && k.Keep < MinKeep.Milliseconds() {
			errs = append(errs, fmt.Errorf("history %q, kept for %v: choose %v or more, or 0s for ever", k.Filter, time.Duration(k.Keep)*time.Millisecond, MinKeep))
		}
		if k.Bytes < 0 {
			errs = append(errs, fmt.Errorf("history %q, %d bytes: choose 1 or more, or 0 for no limit", k.Filter, k.Bytes))
		}
	}
	return errors.Join(errs...)
}

// validatePattern checks that a pattern of filters can match one.
func validatePattern(name, pattern string) error {
	if strings.HasPrefix(pattern, inbox.SharePrefix) {
		return fmt.Errorf("%s %q: messages of a shared subscription are stored once in any case; name other filters", name, pattern)
	}
	if !inbox.ValidFilter(pattern) {
		return fmt.Errorf("%s %q: this is no topic filter; choose one in which + and # are whole levels, and # is the last, as in a/+/b or a/#", name, pattern)
	}
	return nil
}

// validateLimits checks the bounds of what one client may do, and of stopping.
func (o Options) validateLimits() error {
	var errs []error
	if o.Window < 1 || o.Window > inbox.MaxWindow {
		errs = append(errs, fmt.Errorf("window %d: choose 1 to %d", o.Window, inbox.MaxWindow))
	}
	if o.MaxPacketSize < MinPacketSize || o.MaxPacketSize > MaxPacketSize {
		errs = append(errs, fmt.Errorf("packet size %d: choose %d to %d", o.MaxPacketSize, MinPacketSize, MaxPacketSize))
	}
	if o.MaxKeepAlive != o.MaxKeepAlive.Truncate(time.Second) || o.MaxKeepAlive < 0 || o.MaxKeepAlive > math.MaxUint16*time.Second {
		errs = append(errs, fmt.Errorf("keep alive %v: choose whole seconds up to %v", o.MaxKeepAlive, math.MaxUint16*time.Second))
	}
	if o.ConnectTimeout < MinConnectTimeout || o.ConnectTimeout > MaxConnectTimeout {
		errs = append(errs, fmt.Errorf("connect timeout %v: choose %v to %v", o.ConnectTimeout, MinConnectTimeout, MaxConnectTimeout))
	}
	if o.StopTimeout < MinStopTimeout {
		errs = append(errs, fmt.Errorf("stop timeout %v: choose %v or more", o.StopTimeout, MinStopTimeout))
	}
	return errors.Join(errs...)
}

// validateAddress checks the form of an address, and that strangers reach the
// broker only if somebody said so.
func (o Options) validateAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen on %q: this is not host:port, as in %s", address, DefaultAddress)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("listen on %q: the port must be a number from 0 to 65535", address)
	}
	if o.Access == nil && !o.AllowAnonymous && !isLoopback(host) {
		return fmt.Errorf("listen on %q: there are no users, so everyone who reaches this address could read every inbox; "+
			"listen on 127.0.0.1, or allow it with --allow-anonymous", address)
	}
	return nil
}

// isLoopback reports whether only this machine reaches the host. A name other
// than localhost is not looked up: what it means may change.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
