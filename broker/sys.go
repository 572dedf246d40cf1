package broker

import (
	"runtime/debug"
	"slices"
	"strconv"
	"sync"

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

// storeStats is what a store has that counts what it does.
type storeStats interface{ Stats() badger.Stats }

var _ storeStats = (*badger.Store)(nil)

// sysHook adds to mochi's $SYS topics what the store counts, puts the version of
// this broker in the place of mochi's, and gives memory back when the store is
// quiet.
type sysHook struct {
	mqtt.HookBase
	server *mqtt.Server
	store  inbox.Store

	mu      sync.Mutex   // the first tick may overlap with the second
	client  *mqtt.Client // publishes the topics; made at the first tick
	commits int64        // at the last tick
	quiet   int          // ticks since they changed
}

func (h *sysHook) ID() string { return "sys" }

func (h *sysHook) Provides(b byte) bool { return b == mqtt.OnSysInfoTick }

// Init runs before the server publishes anything.
func (h *sysHook) Init(any) error {
	h.server.Info.Version = "mqtt-inbox " + Version()
	return nil
}

// OnSysInfoTick runs on mochi's event loop, once a second, and once at the start.
func (h *sysHook) OnSysInfoTick(*system.Info) {
	store, ok := h.store.(storeStats)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	commits := store.Stats().Commits
	h.publish(TopicCommits, strconv.FormatInt(commits, 10))

	if h.quiet++; commits != h.commits {
		h.commits, h.quiet = commits, 0
	}
	if h.quiet == quietTicks {
		debug.FreeOSMemory()
	}
}

// quietTicks is how long the store must be quiet before memory is given back.
// Badger lets go of its table buffers within 16 seconds, but nothing collects
// them while nothing is allocated.
const quietTicks = 20

// publish sends a retained message to mochi's own subscribers. It never waits
// for one of them.
func (h *sysHook) publish(topic, value string) {
	if h.client == nil {
		h.client = h.server.NewClient(nil, "local", "sys", true)
	}
	err := h.server.InjectPacket(h.client, packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Retain: true},
		TopicName:   topic,
		Payload:     []byte(value),
	})
	if err != nil {
		h.server.Log.Error("cannot publish system topic", "topic", topic, "error", err)
	}
}

// Version returns the version of this module in the program that it is part of.
// If that is one of the module's own, the commit that it was built from follows,
// where it is known.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	const module = "github.com/mqtt-inbox/mqtt-inbox"
	if i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module }); i >= 0 {
		return info.Deps[i].Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return info.Main.Version + " " + s.Value
		}
	}
	return info.Main.Version
}
