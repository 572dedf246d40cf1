package broker

import (
	"strconv"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/mochi-mqtt/server/v2/system"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// TopicCommits is the retained topic that tells how many commits the store has
// synced since it was opened, every second. Messages stored per commit are the
// measure of how well the disk is used.
const TopicCommits = "$SYS/broker/inbox/commits"

// sysHook adds to mochi's $SYS topics what the store counts.
type sysHook struct {
	mqtt.HookBase
	server *mqtt.Server
	store  inbox.Store
}

func (h *sysHook) ID() string { return "sys" }

func (h *sysHook) Provides(b byte) bool { return b == mqtt.OnSysInfoTick }

// OnSysInfoTick runs on mochi's event loop, once a second.
func (h *sysHook) OnSysInfoTick(*system.Info) {
	store, ok := h.store.(*badger.Store)
	if !ok {
		return
	}
	h.retain(TopicCommits, strconv.FormatInt(store.Stats().Commits, 10))
}

// retain goes past the publishing of the server, which would store the message.
func (h *sysHook) retain(topic, value string) {
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Retain: true},
		Created:     time.Now().Unix(),
		TopicName:   topic,
		Payload:     []byte(value),
	}
	h.server.Topics.RetainMessage(pk)
	pk.FixedHeader.Retain = false
	for id := range h.server.Topics.Subscribers(topic).Subscriptions {
		if cl, ok := h.server.Clients.Get(id); ok {
			out := pk
			out.ProtocolVersion = cl.Properties.ProtocolVersion
			_ = cl.WritePacket(out) // a client that has just gone misses one tick
		}
	}
}
