package hooks

import (
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// mode is how the session of a connection is to be served: as the client says, or
// else the operator, or else as it is.
func (h *Hook) mode(cl *mqtt.Client, w wishes) inbox.Mode {
	if w.mode == inbox.ModeKept && h.options.ModeOf != nil {
		return h.options.ModeOf(string(cl.Properties.Username))
	}
	return w.mode
}

// tellMode says in an accepting CONNACK how the inbox is served, if the client has
// asked for it and takes a packet so large.
func (l *link) tellMode(pk *packets.Packet) {
	if most := l.session.maxPacket; !l.wishes.tell || most > 0 && most < roomBesideReason {
		return
	}
	pk.Properties.User = append(pk.Properties.User, packets.UserProperty{Key: propertyMode, Val: pull.ModeName(l.session.inbox.Mode())})
}
