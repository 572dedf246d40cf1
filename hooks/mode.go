package hooks

import (
	"fmt"
	"strconv"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// User properties by which an MQTT 5 client says how its inbox is to be served.
const (
	// In CONNECT: "push" or "pull", from now on, see inbox.Mode. In CONNACK how it
	// is, for those who have asked for this or for metadata.
	propertyMode = "inbox-mode"

	// In CONNECT: what is behind this, an id or a time in RFC 3339, is unread again;
	// "0" is for everything.
	propertyFrom = "inbox-from"

	// In SUBSCRIBE: for each of its filters so many of the last messages in history
	// come first. Shared subscriptions have none.
	propertyLast = "inbox-last"
)

// wishes are what a client says in CONNECT of how its inbox is to be served.
type wishes struct {
	mode inbox.Mode   // ModeKept if it says nothing
	from *inbox.Bound // nil if it says nothing
	tell bool         // CONNACK says the mode
}

// readWishes returns what the user properties of a CONNECT say, and what is wrong
// with them, "" for nothing. All must be right; of each the last one counts.
func readWishes(properties []packets.UserProperty) (w wishes, wrong string) {
	for _, p := range properties {
		switch p.Key {
		case propertyMode:
			w.tell = true
			var ok bool
			if w.mode, ok = pull.ParseMode(p.Val); !ok {
				wrong = propertyMode + " must be push or pull"
			}
		case propertyFrom:
			from, err := pull.ParsePlace(p.Val)
			if err != nil {
				wrong = propertyFrom + " must be the id of a message, a time in RFC 3339, or 0"
			}
			w.from = &from
		case propertyMetadata:
			w.tell = w.tell || p.Val == "on"
		}
	}
	return w, wrong
}

// mostLast is the most that a subscription may have of history.
const mostLast = 1000

// readLast returns how much of history the user properties of a SUBSCRIBE ask
// for, 0 for nothing, and what is wrong with them, "" for nothing.
func readLast(properties []packets.UserProperty) (last int, wrong string) {
	for _, p := range properties {
		if p.Key != propertyLast {
			continue
		}
		n, err := strconv.ParseUint(p.Val, 10, 32)
		if err != nil || n > mostLast {
			wrong = fmt.Sprintf("%s must be a number from 0 to %d", propertyLast, mostLast)
		}
		last = int(n)
	}
	return last, wrong
}

// mode is how the session of a connection is to be served: as the client says, or
// else the operator, or else as it is.
func (h *Hook) mode(cl *mqtt.Client, w wishes) inbox.Mode {
	if w.mode == inbox.ModeKept && h.options.ModeOf != nil {
		return h.options.ModeOf(string(cl.Properties.Username))
	}
	return w.mode
}

// refuseWish is the code with which CONNACK refuses what a client has said of
// how its inbox is to be served, MQTT 5 alone.
func refuseWish(reason string) packets.Code {
	return packets.Code{Code: packets.ErrImplementationSpecificError.Code, Reason: reason}
}

// tellMode says in an accepting CONNACK how the inbox is served, if the client has
// asked for it and takes a packet so large.
func (l *link) tellMode(pk *packets.Packet) {
	if most := l.session.maxPacket; !l.wishes.tell || most > 0 && most < roomBesideReason {
		return
	}
	pk.Properties.User = append(pk.Properties.User, packets.UserProperty{Key: propertyMode, Val: pull.ModeName(l.session.inbox.Mode())})
}
