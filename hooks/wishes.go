package hooks

import (
	"fmt"
	"strconv"

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

	// In CONNECT: "on" has this connection be told when messages were acknowledged by
	// another way, in its own inbox or in another one of its user; see watch.
	propertyWatch = "inbox-watch"

	// In SUBSCRIBE: for each of its filters so many of the last messages in history
	// come first. Shared subscriptions have none.
	propertyLast = "inbox-last"
)

// wishes are what a client says in CONNECT of how its inbox is to be served.
type wishes struct {
	mode  inbox.Mode   // ModeKept if it says nothing
	from  *inbox.Bound // nil if it says nothing
	tell  bool         // CONNACK says the mode
	watch bool         // it is told what is acknowledged by another way
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
		case propertyWatch:
			if w.watch = p.Val == "on"; !w.watch && p.Val != "off" {
				wrong = propertyWatch + " must be on or off"
			}
		case propertyMetadata:
			w.tell = w.tell || p.Val == "on"
			if p.Val != "on" && p.Val != "off" {
				wrong = propertyMetadata + " must be on or off"
			}
		}
	}
	return w, wrong
}

// refuseWish is the code with which CONNACK refuses what a client has said of
// how its inbox is to be served, MQTT 5 alone.
func refuseWish(reason string) packets.Code {
	return packets.Code{Code: packets.ErrImplementationSpecificError.Code, Reason: reason}
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
