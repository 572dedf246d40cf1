package broker

import (
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Access decides who may connect and which topics a client may use. Its
// methods are called on the goroutines of connections, concurrently, and hold
// up the connection that asks.
type Access interface {
	// Connect reports whether a client may connect. It is asked for each request
	// over HTTP, too, about the client whose inbox is meant, or about an empty id if the
	// request means none. The password must not be kept or logged, and be compared in
	// constant time; it is nil if none was sent.
	Connect(c Client, password []byte) bool

	// Publish reports whether a client may publish to a topic. Whoever may not
	// is refused when it connects with a will for that topic; it is not asked
	// again when the will is published.
	Publish(c Client, topic string) bool

	// Subscribe reports whether a client may subscribe with a filter. Of a shared
	// subscription it is asked about the filter within: what a client may not see
	// alone it may not see together with others. Of history it is asked about each
	// topic, whenever that is read.
	Subscribe(c Client, filter string) bool
}

// Client is who asks for access.
type Client struct {
	ID     string // client id
	User   string // user name, empty for none
	Remote string // address it connects from; empty when history is read
}

// accessHook asks an Access on behalf of the mochi server. Without one it lets
// everyone in.
//
// mochi admits what any of its hooks allows, so this is the only hook that
// answers these questions, but for what clients ask their own inboxes, which the
// inbox hook allows everyone.
type accessHook struct {
	mqtt.HookBase
	access Access
}

func (h *accessHook) ID() string { return "access" }

func (h *accessHook) Provides(b byte) bool {
	return b == mqtt.OnConnectAuthenticate || b == mqtt.OnACLCheck
}

func (h *accessHook) OnConnectAuthenticate(cl *mqtt.Client, pk packets.Packet) bool {
	return h.access == nil || h.access.Connect(clientOf(cl), pk.Connect.Password)
}

func (h *accessHook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	if h.access == nil {
		return true
	}
	if write {
		return h.access.Publish(clientOf(cl), topic)
	}
	if _, inner, ok := inbox.Shared(topic); ok {
		topic = inner
	}
	return h.access.Subscribe(clientOf(cl), topic)
}

func clientOf(cl *mqtt.Client) Client {
	return Client{ID: cl.ID, User: string(cl.Properties.Username), Remote: cl.Net.Remote}
}
